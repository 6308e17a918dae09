//! The unit tests of the command's modules. They run from here, so that the whole command, which takes long to link,
//! is not built a second time for them.

#![allow(dead_code, missing_docs, reason = "only the tests of these modules are used here")]

#[path = "../src/commands/cluster_address.rs"]
mod cluster_address;
#[path = "../src/commands/duration.rs"]
mod duration;
#[path = "../src/exit.rs"]
mod exit;
#[path = "../src/commands/flag_table.rs"]
mod flag_table;
#[path = "../src/output.rs"]
mod output;
#[path = "../src/png.rs"]
mod png;
#[path = "../src/commands/quorums.rs"]
mod quorums;
#[path = "../src/table.rs"]
mod table;

/// The long names of the flags in a help text: `  -n, --sites <N>` and `      --json`. Descriptions are indented
/// further.
fn flags(help: &str) -> Vec<&str> {
    let flag = |line: &'_ str| -> Option<usize> {
        let indent = line.len() - line.trim_start().len();
        (indent <= 6 && line[indent..].starts_with('-')).then(|| line.find("--"))?
    };
    let names = help.lines().filter_map(|line| {
        let rest = &line[flag(line)? + 2..];
        rest.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).next()
    });
    let mut names: Vec<&str> = names.filter(|name| *name != "help").collect();
    names.sort_unstable();
    names
}

#[test]
fn every_flag_is_in_the_table_of_its_command() {
    use flag_table::{CHECK, COMPARE, SIM};
    for (command, table) in [("check", CHECK), ("sim", SIM), ("compare", COMPARE)] {
        let mut binary = std::process::Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        let output = binary.args([command, "--help"]).output().expect("the binary runs");
        let help = String::from_utf8(output.stdout).expect("help is UTF-8");
        let mut known: Vec<&str> = table.iter().map(|(flag, _)| *flag).collect();
        known.sort_unstable();
        assert_eq!(
            flags(&help),
            known,
            "the flags of `{command} --help`, and those of its table in flag_table.rs"
        );
    }
}

//! `lockkeeper explain` for algorithms for shared memory: the header of the file, and runs on registers.

use super::explain::{hanging, print_header};
use super::run_text::{line_numbers, print_code};
use crate::print_line;
use lockkeeper_lab::checker::registers::{self, RegisterKind, Walk};
use lockkeeper_lab::comparison::explain::Header;
use lockkeeper_shared_memory::{ALL, About};

/// Explains the algorithm of this name. Returns whether there is one.
pub fn explain(slug: &str) -> bool {
    let Some(about) = ALL.iter().find(|about| about.slug == slug) else { return false };
    print_header(about.title, about.slug, about.family, &Header::parse(about.source));
    print_line!("\nIn brief");
    hanging("  idea      ", about.idea);
    hanging("  needs     ", about.needs);
    hanging("  fairness  ", about.fairness);
    match registers::ALL.iter().find(|checked| checked.slug == slug) {
        Some(checked) => print_program(about, checked),
        None => {
            print_line!("\nIts whole program is one instruction, so there is no run on registers to show.")
        }
    }
    print_line!("\nTry it:      lockkeeper threads --algorithm {slug}");
    true
}

fn print_program(about: &About, checked: &registers::About) {
    if let Ok(walk) = Walk::new(about.slug, 2, RegisterKind::Atomic, None) {
        print_line!("\nPseudo-code\n");
        print_code(&walk.listing().lines, &[]);
        print_line!("\nIn brackets: the lines of the pseudo-code that a step of the runs below executes.");
    }
    print_run(about.slug, RegisterKind::Atomic, "Two processes take steps in turn");
    if checked.weakest == RegisterKind::Safe {
        let title =
            "The same on safe registers, where each read that overlaps a write returns the highest value";
        print_run(about.slug, RegisterKind::Safe, title);
    }
    let mutants = registers::ALL.iter().filter(|mutant| mutant.mutant_of == Some(about.slug));
    print_line!("\nCheck it:    lockkeeper check {}", about.slug);
    for mutant in mutants {
        print_line!("Break it:    lockkeeper check {:<32} {}", mutant.slug, mutant.what);
    }
    print_line!("Drive it:    lockkeeper step {} --sites 2 --safe-registers", about.slug);
}

fn print_run(slug: &str, kind: RegisterKind, title: &str) {
    let Ok(mut walk) = Walk::new(slug, 2, kind, None) else { return };
    print_line!("\n{title}\n");
    let initial = walk
        .registers()
        .into_iter()
        .map(|register| format!("{} = {}", register.name, register.value.unwrap_or_default()));
    hanging("  at first  ", &initial.collect::<Vec<_>>().join(", "));
    walk.in_turn();
    for (number, step) in walk.story().iter().enumerate() {
        let text = format!("{step}{}", line_numbers(walk.fires(number)));
        hanging(&format!("  {:>6}.  ", number + 1), &text);
    }
}

//! The command line that reproduces a run.

use crate::simulator::spec::{Action, DetectorSpec, LoadSpec, Spec};
use crate::simulator::time::Time;
use lockkeeper_core::SiteId;
use std::fmt::Write as _;

impl Spec {
    /// The command line that runs this spec with the given seed.
    pub fn command(&self, seed: u64) -> String {
        let mut command = String::from("lockkeeper sim");
        if let Some(scenario) = &self.scenario {
            let _ = write!(command, " --scenario {} --seed {seed}", quoted(scenario));
            return command;
        }
        let mut flag = |name: &str, value: &dyn ToString| {
            let _ = write!(command, " --{name} {}", quoted(&value.to_string()));
        };
        flag("algorithm", &self.algorithm);
        flag("sites", &self.sites);
        for (name, value) in &self.settings {
            flag("set", &format!("{name}={value}"));
        }
        if self.load != LoadSpec::Script {
            flag("load", &self.load);
        }
        flag("entries", &self.entries);
        if let Some(warmup) = self.warmup {
            flag("warmup", &warmup);
        }
        let network = &self.network;
        flag("delay", &network.delay);
        if let Some(cs) = &self.cs {
            flag("cs", cs);
        }
        self.network_flags(&mut flag);
        if !self.holders.is_empty() {
            let holders: Vec<String> = self.holders.iter().map(ToString::to_string).collect();
            flag("holder", &holders.join(","));
        }
        if self.readers > 0.0 {
            flag("readers", &self.readers);
        }
        self.fault_flags(&mut flag);
        flag("seed", &seed);
        if !network.fifo {
            command.push_str(" --non-fifo");
        }
        command
    }

    /// The command line that runs an election with this spec, these initiators and the given seed.
    pub(crate) fn election_command(&self, initiators: &[(SiteId, Time)], seed: u64) -> String {
        if let Some(scenario) = &self.scenario {
            return format!("lockkeeper sim --scenario {} --seed {seed}", quoted(scenario));
        }
        let mut command = format!("lockkeeper sim --election {} --sites {}", self.algorithm, self.sites);
        let mut flag = |name: &str, value: &dyn ToString| {
            let _ = write!(command, " --{name} {}", quoted(&value.to_string()));
        };
        for (name, value) in &self.settings {
            flag("set", &format!("{name}={value}"));
        }
        for (site, at) in initiators {
            flag("initiator", &format!("{}@{at}", site.number()));
        }
        flag("delay", &self.network.delay);
        self.network_flags(&mut flag);
        self.fault_flags(&mut flag);
        flag("seed", &seed);
        if !self.network.fifo {
            command.push_str(" --non-fifo");
        }
        command
    }

    fn network_flags(&self, flag: &mut dyn FnMut(&str, &dyn ToString)) {
        let network = &self.network;
        if network.loss > 0.0 {
            flag("loss", &network.loss);
        }
        if network.duplicate > 0.0 {
            flag("duplicate", &network.duplicate);
        }
        for link in &network.links {
            flag("link", link);
        }
        for partition in &network.partitions {
            flag("partition", partition);
        }
        if network.service.ticks() > 0 {
            flag("service", &network.service);
        }
        for (site, time) in &network.service_at {
            flag("service-at", &format!("{}={time}", site.number()));
        }
    }

    fn fault_flags(&self, flag: &mut dyn FnMut(&str, &dyn ToString)) {
        if self.detector != DetectorSpec::None {
            flag("detector", &self.detector);
        }
        for (index, scripted) in self.script.iter().enumerate() {
            let at = scripted.at;
            match &scripted.action {
                Action::Crash(site) => flag("crash", &format!("{}@{at}", site.number())),
                Action::Recover(site) => flag("recover", &format!("{}@{at}", site.number())),
                Action::Pause(site) => {
                    let ends =
                        self.script[index..].iter().find(|later| later.action == Action::Resume(*site));
                    let to = ends.map(|end| end.at.to_string()).unwrap_or_default();
                    flag("pause", &format!("{}@{at}..{to}", site.number()));
                }
                _ => {}
            }
        }
    }
}

/// The text as one argument for a POSIX shell, quoted if necessary.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:=@/+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_for_the_shell() {
        assert_eq!(quoted("uniform:0.5..1.5"), "uniform:0.5..1.5");
        assert_eq!(quoted("1,2|3@0..1"), "'1,2|3@0..1'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}

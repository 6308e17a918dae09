//! Scenario files: scripts of requests, deliveries and faults.
//!
//! A scenario is a text file for people to read and write. Lines before the first event are headings; each
//! event starts with its time in T; `#` starts a comment.
//!
//! ```text
//! title: Two sites ask at the same time
//! algorithm: ricart-agrawala
//! sites: 3
//! cs: 1
//!
//! 0     S1 requests
//! 0.5   S2 requests
//! ```
//!
//! | heading | meaning | default |
//! |---|---|---|
//! | `title:` | one line | the file's name |
//! | `about:` | what to look at; may be repeated | |
//! | `algorithm:` | its slug | required, or `election:` |
//! | `election:` | the slug of an election, in place of an algorithm; the highest site leads at the start | |
//! | `sites:` | number of sites | required |
//! | `set:` | a setting of the algorithm, `name=value` | |
//! | `delay:` | as `--delay` | `constant:1` |
//! | `fifo:` | `yes` or `no` | `yes` |
//! | `cs:` | duration of a critical section, or `by hand` | `1` |
//! | `delivery:` | `by delay`, or `by hand`: only by an event | `by delay` |
//! | `timers:` | `by time`, or `by hand`: only by an event | `by time` |
//! | `holder:` | the sites inside at the start: `S1`, `S1, S2`, `S1 shared, S2 shared` | none |
//! | `clock:` | the Lamport clocks at the start: `S1=40, S2=33`; the next event has the number after it | 0 |
//! | `detector:` | as `--detector` | `none` |
//!
//! | event | meaning |
//! |---|---|
//! | `S1 requests`, `S1 exits` | S1 requests; S1 leaves |
//! | `S1 requests shared` | S1 requests in shared mode |
//! | `S1 campaigns` | elections: S1 misses the leader and starts an election |
//! | `deliver S1>S2 REQUEST` | the oldest such message under way arrives now; see below |
//! | `duplicate S1>S2 REQUEST` | by hand: it arrives now, and can arrive again |
//! | `lose S1>S2 REQUEST` | it is lost; by delay: the next one sent |
//! | `slow S1>S2 REQUEST 5` | by delay: the next one sent takes 5 |
//! | `crash S3`, `recover S3` | S3 crashes and loses its state; starts again with an initial state |
//! | `pause S3`, `resume S3` | S3 pauses and keeps its state; resumes |
//! | `S1 suspects S2` | S1's failure detector reports a crash of S2 |
//! | `S1 forgets` | S1, idle, loses its state and gets an initial one |
//! | `S1 wakes 1` | the first of S1's armed timers expires; with `timers: by hand` no timer expires otherwise |
//! | `cut 1,2\|3`, `cut 1>3` | messages between the groups, or only from left to right, are lost |
//! | `heal 1,2\|3` | the partition ends |
//! | `say …` | a remark |
//!
//! The name of a message may be omitted, or be its complete text: `REQUEST(1)`.

use crate::election::ElectionSpec;
use crate::simulator::delay::{Delay, DelayError};
use crate::simulator::network::{NetworkError, Partition, site};
use crate::simulator::run_spec::RunSpec;
use crate::simulator::spec::{
    Action, ClockError, DetectorError, DetectorSpec, LoadSpec, MessageSelector, Scripted, Spec, parse_clocks,
    parse_holders,
};
use crate::simulator::time::{Time, TimeError};
use lockkeeper_core::Mode;
use lockkeeper_core::sharing::HolderError;

/// The maximum size of a scenario, in bytes.
pub const LONGEST: u64 = 16 << 20;

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The title.
    pub title: String,
    /// What to look at.
    pub about: String,
    /// The run. If it is an election, the election's slug is its algorithm, and load, holders and clocks are unused.
    pub spec: Spec,
    /// Whether it is an election.
    pub election: bool,
}

impl Scenario {
    /// Reads a scenario from a file, or one of the [figures](crate::simulator::figures) by its name.
    pub fn open(name: &str) -> Result<Self, ScenarioError> {
        if let Some(figure) = crate::simulator::figures::find(name) {
            return Self::parse(name, figure.text);
        }
        let unreadable = |source: std::io::Error| ScenarioError::Read { name: name.into(), source };
        if std::fs::metadata(name).map_err(unreadable)?.len() > LONGEST {
            return Err(ScenarioError::TooLarge { name: name.into() });
        }
        Self::parse(name, &std::fs::read_to_string(name).map_err(unreadable)?)
    }

    /// Parses the text of a scenario; `name` is its source, for errors.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        let mut spec = Spec::new("", 0);
        spec.load = LoadSpec::Script;
        spec.entries = u64::MAX;
        spec.cs = Some(Delay::UNIT);
        spec.scenario = Some(name.into());
        let mut scenario = Self { title: name.into(), about: String::new(), spec, election: false };
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim();
            if !line.is_empty() {
                let wrong = |source| ScenarioError::Line { name: name.into(), line: index + 1, source };
                scenario.line(line).map_err(wrong)?;
            }
        }
        if scenario.spec.algorithm.is_empty() || scenario.spec.sites == 0 {
            return Err(ScenarioError::NoSystem { name: name.into() });
        }
        scenario.spec.script.sort_by_key(|scripted| scripted.at);
        Ok(scenario)
    }

    /// The run, of either kind.
    pub fn run_spec(&self) -> RunSpec {
        let system = self.spec.clone();
        if self.election {
            RunSpec::Election(ElectionSpec { system, initiators: Vec::new() })
        } else {
            RunSpec::MutualExclusion(system)
        }
    }

    fn line(&mut self, line: &str) -> Result<(), LineError> {
        if line.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            let (time, event) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let action = self.event(event.trim())?;
            self.fits(&action, event.trim())?;
            self.spec.script.push(Scripted { at: Time::parse(time)?, action });
            return Ok(());
        }
        let (heading, value) =
            line.split_once(':').ok_or_else(|| LineError::NoHeading { line: line.into() })?;
        self.heading(heading.trim(), value.trim())
    }

    fn heading(&mut self, heading: &str, value: &str) -> Result<(), LineError> {
        let spec = &mut self.spec;
        match heading {
            "title" => self.title = value.into(),
            "about" => {
                let blank = if self.about.is_empty() { "" } else { " " };
                self.about += blank;
                self.about += value;
            }
            "algorithm" | "election" => {
                (spec.algorithm, self.election) = (value.into(), heading == "election");
            }
            "sites" => {
                spec.sites = value.parse().map_err(|_| LineError::Sites { value: value.into() })?;
            }
            "set" => {
                let (name, value) =
                    value.split_once('=').ok_or_else(|| LineError::Setting { setting: value.into() })?;
                spec.settings.push((name.trim().into(), value.trim().into()));
            }
            "delay" => spec.network.delay = Delay::parse(value)?,
            "fifo" => {
                spec.network.fifo = match value {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(LineError::value("fifo", "yes or no", value)),
                }
            }
            "cs" if value == "by hand" => spec.cs = None,
            "cs" => spec.cs = Some(Delay::parse(value)?),
            "delivery" => {
                spec.by_hand = match value {
                    "by hand" => true,
                    "by delay" => false,
                    _ => return Err(LineError::value("delivery", "'by hand' or 'by delay'", value)),
                }
            }
            "timers" => {
                spec.timers_by_hand = match value {
                    "by hand" => true,
                    "by time" => false,
                    _ => return Err(LineError::value("timers", "'by hand' or 'by time'", value)),
                }
            }
            "holder" => spec.holders = parse_holders(value, spec.sites)?,
            "clock" => spec.clocks = parse_clocks(value, spec.sites)?,
            "detector" => spec.detector = DetectorSpec::parse(value)?,
            _ => return Err(LineError::UnknownHeading { heading: heading.into() }),
        }
        Ok(())
    }

    /// Rejects the events of mutual exclusion in an election, and those of an election elsewhere.
    fn fits(&self, action: &Action, event: &str) -> Result<(), LineError> {
        let event = || event.to_string();
        match action {
            Action::Request(..) | Action::Exit(_) | Action::Forget(_) if self.election => {
                Err(LineError::NotInElections { event: event() })
            }
            Action::Campaign(_) if !self.election => Err(LineError::OnlyInElections { event: event() }),
            _ => Ok(()),
        }
    }

    fn event(&self, event: &str) -> Result<Action, LineError> {
        if self.spec.sites == 0 {
            return Err(LineError::EventBeforeSites);
        }
        // A separate coordinator counts as one more process. The run itself rejects a site that does not
        // exist.
        let processes = self.spec.sites + 1;
        let site = |text: &str| match text {
            "C" => Ok(lockkeeper_core::SiteId::new(self.spec.sites)),
            number => site(number, processes),
        };
        let wrong = || LineError::UnknownEvent { event: event.into() };
        let (first, rest) = event.split_once(char::is_whitespace).unwrap_or((event, ""));
        let rest = rest.trim();
        let selector = |text: &str| -> Result<MessageSelector, LineError> {
            let (ends, name) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
            let (from, to) = ends.split_once('>').ok_or_else(wrong)?;
            let name = (!name.trim().is_empty()).then(|| name.trim().to_uppercase());
            Ok(MessageSelector { from: site(from)?, to: site(to)?, name })
        };
        Ok(match first {
            "deliver" => Action::Deliver(selector(rest)?),
            "duplicate" => Action::Duplicate(selector(rest)?),
            "lose" => Action::Lose(selector(rest)?),
            "slow" => {
                let (message, time) = rest.rsplit_once(char::is_whitespace).ok_or_else(wrong)?;
                Action::Slow(selector(message)?, Time::parse(time)?)
            }
            "crash" => Action::Crash(site(rest)?),
            "recover" => Action::Recover(site(rest)?),
            "pause" => Action::Pause(site(rest)?),
            "resume" => Action::Resume(site(rest)?),
            "cut" | "heal" => {
                let (left, right, one_way) = Partition::parse_groups(rest, processes)?.ok_or_else(wrong)?;
                if first == "cut" { Action::Cut(left, right, one_way) } else { Action::Heal(left, right) }
            }
            "say" => Action::Remark(rest.into()),
            name => match rest {
                "requests" => Action::Request(site(name)?, Mode::Exclusive),
                "requests shared" => Action::Request(site(name)?, Mode::Shared),
                "exits" => Action::Exit(site(name)?),
                "campaigns" => Action::Campaign(site(name)?),
                "forgets" => Action::Forget(site(name)?),
                _ => match rest.split_once(char::is_whitespace) {
                    Some(("suspects", suspect)) => Action::Suspect(site(name)?, site(suspect.trim())?),
                    Some(("wakes", which)) => {
                        let which: usize = which.trim().parse().map_err(|_| wrong())?;
                        Action::Wake(site(name)?, which.checked_sub(1).ok_or_else(wrong)?)
                    }
                    _ => return Err(wrong()),
                },
            },
        })
    }
}

/// The reason why a scenario cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// There is no figure of this name, and the file cannot be read.
    #[error(
        "cannot read the scenario '{name}': {source}; it is neither a file nor one of the figures, which 'lockkeeper \
         scenarios' lists"
    )]
    Read {
        /// The name of the file.
        name: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is too large.
    #[error("the scenario {name} is larger than 16 MiB")]
    TooLarge {
        /// The name of the file.
        name: String,
    },
    /// The algorithm or the number of sites is missing.
    #[error(
        "{name}: a scenario needs the lines 'algorithm:' or 'election:', and 'sites:', before its events"
    )]
    NoSystem {
        /// The source of the scenario.
        name: String,
    },
    /// A line is invalid.
    #[error("{name}, line {line}: {source}")]
    Line {
        /// The source of the scenario.
        name: String,
        /// The number of the line, from 1.
        line: usize,
        /// The reason.
        source: LineError,
    },
}

/// The reason why a line of a scenario is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// The line is neither a heading nor an event.
    #[error("this is neither a heading such as 'sites: 3' nor an event such as '0 S1 requests': '{line}'")]
    NoHeading {
        /// The line.
        line: String,
    },
    /// There is no heading of this name.
    #[error("there is no heading '{heading}:'")]
    UnknownHeading {
        /// The name.
        heading: String,
    },
    /// A heading does not accept the value.
    #[error("{heading} takes {accepted}, not '{value}'")]
    Value {
        /// The name of the heading.
        heading: &'static str,
        /// The accepted values.
        accepted: &'static str,
        /// The value.
        value: String,
    },
    /// The number of sites is not a number.
    #[error("'{value}' is not a number of sites")]
    Sites {
        /// The value.
        value: String,
    },
    /// A setting has no value.
    #[error("a setting is written name=value, not '{setting}'")]
    Setting {
        /// The setting.
        setting: String,
    },
    /// There is no event of this form.
    #[error("there is no event '{event}'")]
    UnknownEvent {
        /// The event.
        event: String,
    },
    /// The first event is above the number of sites.
    #[error("the line 'sites:' must come before the first event")]
    EventBeforeSites,
    /// An election has no such event.
    #[error(
        "an election has no requests, exits and forgotten states: '{event}'; a site starts one with 'S1 campaigns'"
    )]
    NotInElections {
        /// The event.
        event: String,
    },
    /// Only an election has this event.
    #[error("only a scenario with the line 'election:' has the event '{event}'")]
    OnlyInElections {
        /// The event.
        event: String,
    },
    /// The clocks at the start are invalid.
    #[error(transparent)]
    Clock(#[from] ClockError),
    /// A time is invalid.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// A delay is invalid.
    #[error(transparent)]
    Delay(#[from] DelayError),
    /// A site or a partition is invalid.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A holder is invalid.
    #[error(transparent)]
    Holder(#[from] HolderError),
    /// The failure detector is invalid.
    #[error(transparent)]
    Detector(#[from] DetectorError),
}

impl LineError {
    fn value(heading: &'static str, accepted: &'static str, value: &str) -> Self {
        Self::Value { heading, accepted, value: value.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_line_and_the_mistake() {
        let cases = [
            ("sites: 3\nalgorithm: lamport\n0 S9 requests\n", "line 3: there is no site 'S9'"),
            ("0 S1 requests\n", "line 1: the line 'sites:' must come before"),
            ("sites: many\n", "line 1: 'many' is not a number of sites"),
            ("sites: 3\nalgorithm: lamport\n1 S1 dances\n", "line 3: there is no event 'S1 dances'"),
            ("colour: blue\n", "line 1: there is no heading 'colour:'"),
            ("hello\n", "line 1: this is neither"),
            ("sites: 3\n", "needs the lines 'algorithm:'"),
            ("sites: 3\nalgorithm: x\n1 deliver S1\n", "line 3: there is no event"),
            ("sites: 3\nalgorithm: x\n-1 S1 requests\n", "line 3"),
            ("fifo: maybe\n", "line 1: fifo takes"),
            ("sites: 3\nholder: 1, 4\n", "line 2: there is no site '4'"),
            ("sites: 3\nclock: S1\n", "line 2: a clock at the start is written SITE=READING"),
            ("sites: 3\nclock: S1=4, S1=5\n", "line 2: S1 has two clocks"),
            ("sites: 3\nclock: S4=4\n", "line 2: there is no site 'S4'"),
            ("sites: 3\nelection: bully\n1 S1 requests\n", "line 3: an election has no requests"),
            (
                "sites: 3\nalgorithm: lamport\n1 S1 campaigns\n",
                "line 3: only a scenario with the line 'election:'",
            ),
        ];
        for (text, expected) in cases {
            let error = Scenario::parse("s", text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}\n does not contain\n{expected}");
        }
    }

    #[test]
    fn scenario_is_parsed_into_headings_and_events() {
        let text = "title: t # comment\nalgorithm: lamport\nsites: 3\ncs: by hand\ndelivery: by hand\n\
                    2 deliver S1>S2 request\n1 S1 requests shared\n";
        let scenario = Scenario::parse("s", text).unwrap();
        assert_eq!(scenario.title, "t");
        assert_eq!(scenario.spec.script[0].action, Action::Request(lockkeeper_core::SiteId(0), Mode::Shared));
        let Action::Deliver(which) = &scenario.spec.script[1].action else { panic!("a delivery") };
        assert_eq!(which.name.as_deref(), Some("REQUEST"));
        assert!(scenario.spec.by_hand && scenario.spec.cs.is_none());
    }
}

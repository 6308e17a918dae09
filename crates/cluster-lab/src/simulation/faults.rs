//! Faults, and the schedule in which they happen.

use super::spec::{ClusterSpec, MS};
use lockkeeper_lab::simulator::rng::Rng;
use lockkeeper_member::ClusterSettings;
use std::fmt;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A member crashes and restarts with its disk intact.
    Crash,
    /// A member crashes and restarts with an empty disk.
    Wipe,
    /// All members restart at once.
    RestartAll,
    /// A member pauses for longer than a lease and keeps its memory.
    Pause,
    /// A member pauses for too short a time to be suspected.
    Hiccup,
    /// Links are cut in one or both directions; cuts may overlap.
    Cut,
    /// Frames are lost.
    Loss,
    /// Frames are delivered twice.
    Duplicate,
    /// Some frames are delayed by up to 0.9 s.
    Delay,
    /// Clocks run fast or slow, within the bound.
    Drift,
    /// The voters elect another leader without need.
    Leader,
    /// Clients crash, pause, or lose their links.
    Client,
    /// A client loses its links to the member that it is connected to, and reaches the others.
    HomeCut,
    /// All members restart one after the other, by a crash or a planned leave each.
    RestartInTurn,
    /// A member leaves as planned and comes back.
    Leave,
    /// An operator revokes a hold.
    Revoke,
    /// Each incarnation of a member is configured with a different algorithm and different times, and an operator
    /// changes the cluster's settings.
    Settings,
    /// All members crash and lose their disks; the same machines found a new cluster.
    LoseAll,
    /// One member permanently loses its links to all other members. Its clients still reach it.
    Isolate,
    /// A client presents the session of another one to a member that does not have it.
    Theft,
}

impl Fault {
    /// All kinds of faults.
    pub const ALL: &[Self] = &[
        Self::Crash,
        Self::Wipe,
        Self::RestartAll,
        Self::Pause,
        Self::Hiccup,
        Self::Cut,
        Self::Loss,
        Self::Duplicate,
        Self::Delay,
        Self::Drift,
        Self::Leader,
        Self::Client,
        Self::HomeCut,
        Self::RestartInTurn,
        Self::Leave,
        Self::Revoke,
        Self::Settings,
        Self::LoseAll,
        Self::Isolate,
        Self::Theft,
    ];

    /// Its name, as `--faults` accepts it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Wipe => "wipe",
            Self::RestartAll => "restart-all",
            Self::HomeCut => "home-cut",
            Self::RestartInTurn => "restart-in-turn",
            Self::Pause => "pause",
            Self::Hiccup => "hiccup",
            Self::Cut => "cut",
            Self::Loss => "loss",
            Self::Duplicate => "duplicate",
            Self::Delay => "delay",
            Self::Drift => "drift",
            Self::Leader => "leader",
            Self::Client => "client",
            Self::Leave => "leave",
            Self::Revoke => "revoke",
            Self::Settings => "settings",
            Self::LoseAll => "lose-all",
            Self::Isolate => "isolate",
            Self::Theft => "theft",
        }
    }

    /// Parses `all`, `none`, or a list of names separated by commas.
    pub fn parse(text: &str) -> Result<Vec<Self>, UnknownFault> {
        match text {
            "all" => return Ok(Self::ALL.to_vec()),
            "none" => return Ok(Vec::new()),
            _ => {}
        }
        let read = |name: &str| {
            let fault = Self::ALL.iter().copied().find(|fault| fault.name() == name.trim());
            fault.ok_or_else(|| UnknownFault { name: name.into() })
        };
        text.split(',').map(read).collect()
    }

    /// Whether a client must keep its recorded holds under this fault, if they live long enough.
    pub(crate) fn spares_recorded_holds(self) -> bool {
        !matches!(self, Self::Wipe | Self::LoseAll | Self::Client | Self::Revoke)
    }

    /// Whether clients of unaffected members must keep their holds under this fault.
    pub(crate) fn spares_survivors(self) -> bool {
        matches!(
            self,
            Self::Crash
                | Self::Hiccup
                | Self::Drift
                | Self::Duplicate
                | Self::Leave
                | Self::Settings
                | Self::Theft
        )
    }
}

/// There is no fault of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFault {
    /// The name that no fault has.
    pub name: String,
}

impl fmt::Display for UnknownFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<&str> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        write!(f, "there is no fault '{}'; the faults are all, none, {}", self.name, known.join(", "))
    }
}

impl std::error::Error for UnknownFault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One occurrence of a fault. Machines are numbered with the members first.
#[derive(Clone, Debug)]
pub enum FaultEvent {
    /// A machine crashes and restarts later, with or without its disk.
    Crash { machine: usize, wipe: bool, back_ns: u64 },
    /// A machine pauses.
    Pause { machine: usize, until_ns: u64 },
    /// These directions of links are cut until then.
    Cut { ways: Vec<(usize, usize)>, until_ns: u64 },
    /// The links between a client and the member that it is connected to are cut until then.
    HomeCut { client: usize, until_ns: u64 },
    /// The voters elect another leader.
    Leader,
    /// A member leaves as planned; its clients may keep their holds for this long.
    Leave { machine: usize, timeout_ns: u64 },
    /// An operator revokes one hold, selected by its index among all of them.
    Revoke { place: usize },
    /// A client presents a session of another one, selected by its index, to this machine.
    Theft { machine: usize, place: usize },
    /// An operator changes the cluster's settings.
    Change(ClusterSettings),
    /// All members crash and lose their disks; each restarts at its own time.
    LoseAll { back_ns: Vec<u64> },
}

impl FaultEvent {
    /// Whether it lasts until the end of the run.
    pub(crate) fn is_for_good(&self) -> bool {
        matches!(self, Self::Cut { until_ns: u64::MAX, .. })
    }
}

/// Draws the faults of a run, sorted by time.
pub fn draw(spec: &ClusterSpec, rng: &mut Rng) -> Vec<(u64, FaultEvent)> {
    let kinds: Vec<Fault> = {
        let drawn =
            |fault: &Fault| !matches!(fault, Fault::Loss | Fault::Duplicate | Fault::Delay | Fault::Drift);
        spec.faults.iter().copied().filter(drawn).collect()
    };
    let mut fault_events = Vec::new();
    if kinds.is_empty() {
        return fault_events;
    }
    let mut at = 2_500 * MS;
    while at < spec.chaos_ns {
        let until = at + 50 * MS + rng.exponential(1_500.0 * MS as f64) as u64;
        let until = until.min(spec.chaos_ns);
        fault_event(spec, *rng.pick(&kinds), at, until, rng, &mut fault_events);
        // Faults come one at a time if survivors must keep their holds; otherwise they overlap.
        at += if spec.spares_survivors() { 5_000 * MS } else { rng.exponential(900.0 * MS as f64) as u64 };
    }
    fault_events.sort_by_key(|&(at, _)| at);
    fault_events
}

fn fault_event(
    spec: &ClusterSpec,
    kind: Fault,
    at: u64,
    until: u64,
    rng: &mut Rng,
    fault_events: &mut Vec<(u64, FaultEvent)>,
) {
    let member = rng.below(spec.members);
    let client = spec.members + rng.below(spec.clients + spec.tenants);
    let isolated = fault_events.iter().any(|(_, fault_event)| fault_event.is_for_good());
    let mut add = |fault_event| fault_events.push((at, fault_event));
    match kind {
        Fault::Crash => add(FaultEvent::Crash { machine: member, wipe: false, back_ns: until }),
        Fault::Wipe => add(FaultEvent::Crash { machine: member, wipe: true, back_ns: until }),
        Fault::RestartAll if rng.chance(0.3) => {
            for machine in 0..spec.members {
                let back_ns = at + rng.below(500 * MS as usize) as u64;
                add(FaultEvent::Crash { machine, wipe: false, back_ns });
            }
        }
        Fault::RestartInTurn if rng.chance(0.3) => {
            let planned = rng.chance(0.5);
            // Long enough for a view change between two of them.
            let pause = (spec.chaos_ns.saturating_sub(at) / spec.members as u64).min(3_000 * MS);
            for (place, machine) in (0..spec.members).enumerate() {
                let down = at + pause * place as u64;
                let back_ns = down + (100 + rng.below(400) as u64) * MS;
                let crash = FaultEvent::Crash { machine, wipe: false, back_ns };
                let leave = FaultEvent::Leave { machine, timeout_ns: 500 * MS };
                fault_events.push((down, if planned { leave } else { crash }));
            }
        }
        Fault::HomeCut => {
            let until_ns = until + rng.below(3_000 * MS as usize) as u64;
            add(FaultEvent::HomeCut { client: client - spec.members, until_ns });
        }
        Fault::Pause => add(FaultEvent::Pause {
            machine: member,
            until_ns: until + rng.below(2_500 * MS as usize) as u64,
        }),
        Fault::Hiccup => {
            add(FaultEvent::Pause { machine: member, until_ns: at + rng.below(400 * MS as usize) as u64 })
        }
        Fault::Cut => {
            let until_ns = until + rng.below(1_500 * MS as usize) as u64;
            add(FaultEvent::Cut { ways: ways(spec, member, rng), until_ns });
        }
        Fault::Leader => add(FaultEvent::Leader),
        Fault::Leave => {
            add(FaultEvent::Leave { machine: member, timeout_ns: rng.below(1_500 * MS as usize) as u64 })
        }
        Fault::Settings => add(FaultEvent::Change(spec.settings(rng))),
        Fault::LoseAll if rng.chance(0.2) => {
            let back_ns = (0..spec.members).map(|_| at + (20 + rng.below(400) as u64) * MS).collect();
            add(FaultEvent::LoseAll { back_ns });
        }
        // The other members still have a majority.
        Fault::Isolate if !isolated && spec.members >= 3 => {
            let others = (0..spec.members).filter(|other| *other != member);
            let ways = others.flat_map(|other| [(member, other), (other, member)]).collect();
            add(FaultEvent::Cut { ways, until_ns: u64::MAX });
        }
        Fault::Theft => add(FaultEvent::Theft { machine: member, place: rng.below(usize::MAX) }),
        Fault::Revoke => add(FaultEvent::Revoke { place: rng.below(usize::MAX) }),
        Fault::Client => match rng.below(3) {
            0 => add(FaultEvent::Crash { machine: client, wipe: true, back_ns: until }),
            1 => add(FaultEvent::Pause { machine: client, until_ns: until + 500 * MS }),
            _ => {
                let (out, back) = (rng.chance(0.7), rng.chance(0.7));
                let ways =
                    (0..spec.members).flat_map(|member| [(client, member, out), (member, client, back)]);
                let ways = ways.filter(|way| way.2).map(|(from, to, _)| (from, to)).collect();
                add(FaultEvent::Cut { ways, until_ns: until });
            }
        },
        _ => {}
    }
}

/// The directions that a cut affects: one link, all links of one member, or the links between two groups; both
/// directions or one.
fn ways(spec: &ClusterSpec, member: usize, rng: &mut Rng) -> Vec<(usize, usize)> {
    let left: Vec<bool> = match rng.below(3) {
        0 => (0..spec.members).map(|m| m == member).collect(),
        _ => (0..spec.members).map(|_| rng.chance(0.5)).collect(),
    };
    let single = rng.chance(0.3).then(|| rng.below(spec.members));
    let one_way = rng.chance(0.4);
    let mut ways = Vec::new();
    for from in 0..spec.members {
        for to in 0..spec.members {
            // Example: `left` is [true, false, false]: the cut affects 0>1 and 0>2, and 1>0 and 2>0 unless it is
            // one way.
            let across = match single {
                Some(other) => (from, to) == (member, other) || (to, from) == (member, other),
                None => left[from] != left[to],
            };
            let forward = match single {
                Some(_) => from == member,
                None => left[from],
            };
            if from != to && across && (forward || !one_way) {
                ways.push((from, to));
            }
        }
    }
    ways
}

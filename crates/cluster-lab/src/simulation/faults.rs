//! What goes wrong, and when.

use super::spec::{ClusterSpec, MS};
use lockkeeper_lab::rng::Rng;
use lockkeeper_member::ClusterSettings;
use std::fmt;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A member crashes and starts again, its disk intact.
    Crash,
    /// A member crashes and starts again with an empty disk.
    Wipe,
    /// Everybody restarts at once.
    RestartAll,
    /// A member stops for longer than a lease, and forgets nothing.
    Pause,
    /// A member stops for less than it takes to be noticed.
    Hiccup,
    /// Links are cut: one way or both, overlapping.
    Cut,
    /// Frames are lost.
    Loss,
    /// Frames arrive twice.
    Duplicate,
    /// Some frames take very long.
    Delay,
    /// Clocks run fast and slow, up to the bound.
    Drift,
    /// The voters change their leader, without need.
    Leader,
    /// Clients crash, pause and are cut off.
    Client,
    /// A member leaves in order, and comes back.
    Leave,
    /// An operator takes a lock away from whoever holds it.
    Revoke,
    /// Members are configured with different algorithms and times, each of their lives anew, and an operator changes the
    /// cluster's settings.
    Settings,
    /// All members crash and lose their disks; the same machines found a new cluster.
    LoseAll,
    /// One member loses its links to all other members for good. Its clients still reach it.
    Isolate,
}

impl Fault {
    /// Every kind.
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
        Self::Leave,
        Self::Revoke,
        Self::Settings,
        Self::LoseAll,
        Self::Isolate,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Wipe => "wipe",
            Self::RestartAll => "restart-all",
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
        }
    }

    /// Reads `all`, `none`, or names with commas between them.
    pub fn parse(text: &str) -> Result<Vec<Self>, String> {
        match text {
            "all" => return Ok(Self::ALL.to_vec()),
            "none" => return Ok(Vec::new()),
            _ => {}
        }
        let read = |name: &str| {
            Self::ALL.iter().copied().find(|fault| fault.name() == name.trim()).ok_or_else(|| {
                let known: Vec<&str> = Self::ALL.iter().map(|fault| fault.name()).collect();
                format!("there is no fault '{name}': there is all, none, {}", known.join(", "))
            })
        };
        text.split(',').map(read).collect()
    }

    /// Whether clients of members that are not hit must keep what they hold.
    pub(crate) fn spares_survivors(self) -> bool {
        matches!(
            self,
            Self::Crash | Self::Hiccup | Self::Drift | Self::Duplicate | Self::Leave | Self::Settings
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One thing that goes wrong. Machines are numbered members first.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// Crashes; comes back later, with its disk or without.
    Crash { machine: usize, wipe: bool, back_ns: u64 },
    /// Stops for a while.
    Pause { machine: usize, until_ns: u64 },
    /// These directions are cut, for a while.
    Cut { ways: Vec<(usize, usize)>, until_ns: u64 },
    /// The voters choose another leader.
    Leader,
    /// Leaves in order; its clients may keep what they hold for so long.
    Leave { machine: usize, patience_ns: u64 },
    /// Takes a lock from one of its holders, the one at this place of all.
    Revoke { place: usize },
    /// An operator changes the cluster's settings.
    Change(ClusterSettings),
    /// All members crash and lose their disks; each comes back at its time.
    LoseAll { back_ns: Vec<u64> },
}

impl Trouble {
    /// Whether it lasts until the end of the run.
    pub(crate) fn is_for_good(&self) -> bool {
        matches!(self, Self::Cut { until_ns: u64::MAX, .. })
    }
}

/// Draws the troubles of a run, in the order of time.
pub fn draw(spec: &ClusterSpec, rng: &mut Rng) -> Vec<(u64, Trouble)> {
    let kinds: Vec<Fault> = {
        let drawn =
            |fault: &Fault| !matches!(fault, Fault::Loss | Fault::Duplicate | Fault::Delay | Fault::Drift);
        spec.faults.iter().copied().filter(drawn).collect()
    };
    let mut troubles = Vec::new();
    if kinds.is_empty() {
        return troubles;
    }
    let mut at = 2_500 * MS;
    while at < spec.chaos_ns {
        let until = at + 50 * MS + rng.exponential(1_500.0 * MS as f64) as u64;
        let until = until.min(spec.chaos_ns);
        trouble(spec, *rng.pick(&kinds), at, until, rng, &mut troubles);
        // One at a time where survivors must be spared; otherwise they overlap.
        at += if spec.spares_survivors() { 5_000 * MS } else { rng.exponential(900.0 * MS as f64) as u64 };
    }
    troubles.sort_by_key(|&(at, _)| at);
    troubles
}

fn trouble(
    spec: &ClusterSpec,
    kind: Fault,
    at: u64,
    until: u64,
    rng: &mut Rng,
    troubles: &mut Vec<(u64, Trouble)>,
) {
    let member = rng.below(spec.members);
    let client = spec.members + rng.below(spec.clients + spec.tenants);
    let isolated = troubles.iter().any(|(_, trouble)| trouble.is_for_good());
    let mut add = |trouble| troubles.push((at, trouble));
    match kind {
        Fault::Crash => add(Trouble::Crash { machine: member, wipe: false, back_ns: until }),
        Fault::Wipe => add(Trouble::Crash { machine: member, wipe: true, back_ns: until }),
        Fault::RestartAll if rng.chance(0.3) => {
            for machine in 0..spec.members {
                let back_ns = at + rng.below(500 * MS as usize) as u64;
                add(Trouble::Crash { machine, wipe: false, back_ns });
            }
        }
        Fault::Pause => {
            add(Trouble::Pause { machine: member, until_ns: until + rng.below(2_500 * MS as usize) as u64 })
        }
        Fault::Hiccup => {
            add(Trouble::Pause { machine: member, until_ns: at + rng.below(400 * MS as usize) as u64 })
        }
        Fault::Cut => {
            let until_ns = until + rng.below(1_500 * MS as usize) as u64;
            add(Trouble::Cut { ways: ways(spec, member, rng), until_ns });
        }
        Fault::Leader => add(Trouble::Leader),
        Fault::Leave => {
            add(Trouble::Leave { machine: member, patience_ns: rng.below(1_500 * MS as usize) as u64 })
        }
        Fault::Settings => add(Trouble::Change(spec.settings(rng))),
        Fault::LoseAll if rng.chance(0.2) => {
            let back_ns = (0..spec.members).map(|_| at + (20 + rng.below(400) as u64) * MS).collect();
            add(Trouble::LoseAll { back_ns });
        }
        // The others keep a majority.
        Fault::Isolate if !isolated && spec.members >= 3 => {
            let others = (0..spec.members).filter(|other| *other != member);
            let ways = others.flat_map(|other| [(member, other), (other, member)]).collect();
            add(Trouble::Cut { ways, until_ns: u64::MAX });
        }
        Fault::Revoke => add(Trouble::Revoke { place: rng.below(usize::MAX) }),
        Fault::Client => match rng.below(3) {
            0 => add(Trouble::Crash { machine: client, wipe: true, back_ns: until }),
            1 => add(Trouble::Pause { machine: client, until_ns: until + 500 * MS }),
            _ => {
                let (out, back) = (rng.chance(0.7), rng.chance(0.7));
                let ways =
                    (0..spec.members).flat_map(|member| [(client, member, out), (member, client, back)]);
                let ways = ways.filter(|way| way.2).map(|(from, to, _)| (from, to)).collect();
                add(Trouble::Cut { ways, until_ns: until });
            }
        },
        _ => {}
    }
}

/// What a cut cuts: one link, one member, or two groups; both ways or one.
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

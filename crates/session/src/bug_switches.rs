//! Bug switches: members and clients that are wrong on purpose, for tests that must detect it.
//!
//! Members and clients are generic over [`Bugs`]. Daemons and the library use [`NoBugs`], which has no size and for which
//! every check is the constant `false`: the compiler removes the check together with the wrong code. Simulations use
//! `Option<BugSwitch>`, which is a [`Bugs`] only with the cargo feature `bug-switches`.
//!
//! The feature alone would not be enough. Cargo unites the features of a build, and the binary `lockkeeper` contains the
//! simulation as well as the daemon, so the feature is on in both. The type parameter separates them: the member of
//! a daemon has no field in which a bug switch could be set.

use core::fmt::Debug;

/// The bug switches of a member or a client: [`NoBugs`], or one that is chosen at run time.
pub trait Bugs: sealed::Sealed + Copy + Debug + Default + Send + Sync + 'static {
    /// Whether this safeguard is left out.
    fn has(self, bug: BugSwitch) -> bool;
}

/// No bug switch, the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoBugs;

impl Bugs for NoBugs {
    #[inline(always)]
    fn has(self, _: BugSwitch) -> bool {
        false
    }
}

#[cfg(feature = "bug-switches")]
impl Bugs for Option<BugSwitch> {
    #[inline]
    fn has(self, bug: BugSwitch) -> bool {
        self == Some(bug)
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::NoBugs {}
    #[cfg(feature = "bug-switches")]
    impl Sealed for Option<super::BugSwitch> {}
}

/// One safeguard that is left out. For simulations only: each of these can violate mutual exclusion or liveness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BugSwitch {
    /// A frame of an epoch that is not installed yet is acknowledged and dropped.
    HigherEpochsDropped,
    /// A frame of an old epoch is handled as one of the present epoch.
    LowerEpochsAccepted,
    /// A release that arrives while the member is frozen is applied at once, so the report is wrong.
    ReportChanges,
    /// A frozen member does not renew its lease.
    FreezeStopsRenewals,
    /// A member continues in the old view after its report, instead of freezing.
    NoFreeze,
    /// A leader starts a view that another leader proposed, instead of proposing one of its own.
    TwoCoordinators,
    /// A new leader does not replace a view that was decided and not started.
    UnstartedViewLeft,
    /// A view starts before every member has reported.
    StartsWithoutEveryReport,
    /// The start does not wait for the leases of missing members.
    NoWait,
    /// The start waits only for missing members that are known to have had holds.
    WaitsForKnownHoldersOnly,
    /// The leader waits before the proposal, not before the start.
    ProposerWaits,
    /// Renewals are answered for any epoch.
    AnswersOldEpochs,
    /// A leader answers renewals without a confirmation of its leadership.
    MinorityGrants,
    /// A member's lease is counted from the arrival of the answer.
    LeaseFromArrival,
    /// A client's lease is counted from the arrival of the answer.
    ClientLeaseFromArrival,
    /// A client gets a full lease although less is left of its member's own.
    ClientOutlivesMember,
    /// Grants do not check that the member's lease runs.
    GrantsWithoutLease,
    /// A session ends when its client is silent, without a wait for its lease.
    SilentClientForgotten,
    /// A revocation frees the lock at once.
    RevokedAtOnce,
    /// A member drops the instance of an idle lock.
    IdleInstanceDropped,
    /// Waits do not allow for clock drift.
    NoDrift,
    /// A member that leaves sends its departure notice while its clients hold locks.
    LeavesInUse,
    /// The fences for further entries of a delegation are not reserved.
    NothingSetAside,
    /// A client does not end a delegation when it is recalled or expires.
    DelegationsNeverEnd,
    /// A member uses the times of its own configuration, and a leader waits for its own lease, although earlier views
    /// may have granted longer ones.
    OwnLeaseWaitedFor,
    /// A member runs the algorithm of its own configuration, not that of the view.
    OwnAlgorithm,
    /// The first view of a cluster starts at once, although a cluster of the same members may just have lost its
    /// disks.
    FounderDoesNotWait,
    /// The founder of a cluster waits for one lease of its own settings, although the members may have had a longer
    /// one before they lost their disks.
    FounderWaitsForOwnLease,
    /// A table that is full of idle locks stays full: no view that would drop them is requested, new names are
    /// refused permanently, and messages about new names are acknowledged and dropped.
    TableNeverReclaimed,
    /// Work on all holds is done in one step, regardless of their number.
    OneBigStep,
    /// A client sends each request once and does not repeat it while its connection stays open.
    RequestsSentOnce,
    /// A client keeps a link to a daemon that never answers its keep-alives.
    SilentLinkKept,
    /// A daemon reports to a client without a session that it can rely on its hold for as long as the daemon's own
    /// clock allows, without an allowance for drift.
    LeaseWithoutDrift,
    /// A client takes the promise of one recorded hold for a promise of all holds of its session.
    PromisedPerSession,
    /// A member reports a hold as recorded when it proposes the record, not when the record is committed.
    PromisedBeforeCommit,
    /// A member promises recorded holds although its own lease has expired.
    PromisedWithoutLease,
    /// A member that adopts a session frees its holds although the previous member may have promised them.
    OrphanOwesNothing,
    /// A member that adopts a session keeps its holds although the client has been silent for longer than promised.
    OrphanKeptForEver,
    /// A member frees a recorded hold before the end of its record is committed.
    FreedBeforeEnd,
    /// A member frees a hold whose record is proposed and not answered, as if it were not recorded.
    ProposedCountsAsShort,
    /// A start has the recorded holds of members that this view excludes, but not those that a member was given by an earlier start that it never installed.
    TableForMissingOnly,
    /// A member accepts relayed messages for a session without comparing the client's proof.
    ProofNotCompared,
    /// A member that leaves sends its departure notice before the holds of its clients are recorded.
    DepartsUnrecorded,
    /// The founder of a cluster does not wait for the times to live of holds that a lost cluster may have recorded.
    FounderIgnoresTtl,
    /// A member promises recorded holds while it is frozen, also those of a session that it has not adopted completely.
    PromisedWhileFrozen,
    /// A client accepts messages of an earlier generation of its session.
    OldGenerationAccepted,
    /// A client keeps a hold that has lapsed, or that the member which has adopted its session does not have.
    LapsedHoldRevived,
    /// The recorded holds of a member that has left as planned get no new home.
    DepartedNotAdopted,
    /// The report of a frozen member lacks holds that are released and whose records have not ended.
    EndingNotReported,
    /// The start of a view contains adopted holds although their home reports them.
    TableBesideReports,
    /// The table accepts the write of a member that the newest view excludes.
    ExcludedRecordsAccepted,
    /// The table accepts the write of a member that has not installed the newest view.
    StaleEpochAccepted,
    /// The table lets any member end a record, also one that is not the home of the record, in any view.
    FormerHomeEnds,
    /// The table applies a write again that it has applied before.
    WritesAppliedTwice,
    /// A member that adopts a session counts the time to live of its holds from their grant.
    TtlFromGrant,
    /// The forced release of an adopted hold frees the lock although the previous member may have promised the hold.
    OrphanFreedByForce,
    /// A member promises recorded holds of clients in its own process although its lease has expired.
    ResidentPromisedWithoutLease,
    /// A daemon ends an adopted lease when the client has not renewed it within half of its time to live.
    AdoptedLeaseCutShort,
    /// A daemon that adopts a hold does not know that the previous daemon has promised it: a forced release frees the lock
    /// at the end of the member's lease.
    AdoptedPromiseForgotten,
    /// A member that adopts a hold keeps the lock for the time to live on its own clock, although the clock of the previous
    /// daemon may be slower.
    AdoptedWithoutDrift,
    /// A member that has sent its departure notice, and ends a hold by force, forgets the lease that it has given up.
    GivenUpLeaseForgotten,
}

impl BugSwitch {
    /// All bug switches, with their names.
    #[cfg(feature = "bug-switches")]
    pub const ALL: &[(&str, Self)] = &[
        ("higher-epochs-dropped", Self::HigherEpochsDropped),
        ("lower-epochs-accepted", Self::LowerEpochsAccepted),
        ("report-changes", Self::ReportChanges),
        ("freeze-stops-renewals", Self::FreezeStopsRenewals),
        ("no-freeze", Self::NoFreeze),
        ("two-coordinators", Self::TwoCoordinators),
        ("unstarted-view-left", Self::UnstartedViewLeft),
        ("starts-without-every-report", Self::StartsWithoutEveryReport),
        ("no-wait", Self::NoWait),
        ("waits-for-known-holders-only", Self::WaitsForKnownHoldersOnly),
        ("proposer-waits", Self::ProposerWaits),
        ("answers-old-epochs", Self::AnswersOldEpochs),
        ("minority-grants", Self::MinorityGrants),
        ("lease-from-arrival", Self::LeaseFromArrival),
        ("client-lease-from-arrival", Self::ClientLeaseFromArrival),
        ("client-outlives-member", Self::ClientOutlivesMember),
        ("grants-without-lease", Self::GrantsWithoutLease),
        ("silent-client-forgotten", Self::SilentClientForgotten),
        ("revoked-at-once", Self::RevokedAtOnce),
        ("idle-instance-dropped", Self::IdleInstanceDropped),
        ("no-drift", Self::NoDrift),
        ("leaves-in-use", Self::LeavesInUse),
        ("nothing-set-aside", Self::NothingSetAside),
        ("delegations-never-end", Self::DelegationsNeverEnd),
        ("own-lease-waited-for", Self::OwnLeaseWaitedFor),
        ("own-algorithm", Self::OwnAlgorithm),
        ("founder-does-not-wait", Self::FounderDoesNotWait),
        ("founder-waits-for-own-lease", Self::FounderWaitsForOwnLease),
        ("table-never-reclaimed", Self::TableNeverReclaimed),
        ("one-big-step", Self::OneBigStep),
        ("requests-sent-once", Self::RequestsSentOnce),
        ("silent-link-kept", Self::SilentLinkKept),
        ("lease-without-drift", Self::LeaseWithoutDrift),
        ("promised-per-session", Self::PromisedPerSession),
        ("promised-before-commit", Self::PromisedBeforeCommit),
        ("promised-without-lease", Self::PromisedWithoutLease),
        ("orphan-owes-nothing", Self::OrphanOwesNothing),
        ("orphan-kept-for-ever", Self::OrphanKeptForEver),
        ("freed-before-end", Self::FreedBeforeEnd),
        ("proposed-counts-as-short", Self::ProposedCountsAsShort),
        ("table-for-missing-only", Self::TableForMissingOnly),
        ("proof-not-compared", Self::ProofNotCompared),
        ("departs-unrecorded", Self::DepartsUnrecorded),
        ("founder-ignores-ttl", Self::FounderIgnoresTtl),
        ("promised-while-frozen", Self::PromisedWhileFrozen),
        ("old-generation-accepted", Self::OldGenerationAccepted),
        ("lapsed-hold-revived", Self::LapsedHoldRevived),
        ("departed-not-adopted", Self::DepartedNotAdopted),
        ("ending-not-reported", Self::EndingNotReported),
        ("table-beside-reports", Self::TableBesideReports),
        ("excluded-records-accepted", Self::ExcludedRecordsAccepted),
        ("stale-epoch-accepted", Self::StaleEpochAccepted),
        ("former-home-ends", Self::FormerHomeEnds),
        ("writes-applied-twice", Self::WritesAppliedTwice),
        ("ttl-from-grant", Self::TtlFromGrant),
        ("orphan-freed-by-force", Self::OrphanFreedByForce),
        ("resident-promised-without-lease", Self::ResidentPromisedWithoutLease),
        ("adopted-lease-cut-short", Self::AdoptedLeaseCutShort),
        ("adopted-promise-forgotten", Self::AdoptedPromiseForgotten),
        ("adopted-without-drift", Self::AdoptedWithoutDrift),
        ("given-up-lease-forgotten", Self::GivenUpLeaseForgotten),
    ];

    /// Earlier names, which are still accepted.
    #[cfg(feature = "bug-switches")]
    const FORMER: &[(&str, Self)] = &[
        ("wedge-stops-renewals", Self::FreezeStopsRenewals),
        ("no-wedge", Self::NoFreeze),
        ("kept-for-ever", Self::DelegationsNeverEnd),
        ("requests-said-once", Self::RequestsSentOnce),
        ("old-home-heard", Self::OldGenerationAccepted),
    ];

    /// The bug switch of this name. The error lists the names.
    #[cfg(feature = "bug-switches")]
    pub fn parse(name: &str) -> Result<Self, UnknownBugSwitch> {
        let mut known = Self::ALL.iter().chain(Self::FORMER);
        let known = known.find(|(known, _)| *known == name).map(|(_, bug)| *bug);
        known.ok_or_else(|| UnknownBugSwitch { name: name.into() })
    }

    /// The name of the bug switch.
    #[cfg(feature = "bug-switches")]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, bug)| *bug == self).map_or("", |(name, _)| name)
    }
}

/// There is no bug switch of this name. The text lists the names.
#[cfg(feature = "bug-switches")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownBugSwitch {
    /// The name that no bug switch has.
    pub name: alloc::string::String,
}

#[cfg(feature = "bug-switches")]
impl core::fmt::Display for UnknownBugSwitch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let names: alloc::vec::Vec<&str> = BugSwitch::ALL.iter().map(|(known, _)| *known).collect();
        write!(f, "there is no bug switch '{}': there is {}", self.name, names.join(", "))
    }
}

#[cfg(feature = "bug-switches")]
impl core::error::Error for UnknownBugSwitch {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientLink, ClientSettings, SessionId};

    #[test]
    fn a_client_without_bug_switches_stores_nothing_for_them() {
        assert_eq!(size_of::<NoBugs>(), 0);
        let id = SessionId { client: 1, number: 1 };
        let link: ClientLink = ClientLink::new(id, ClientSettings::new(1), 0, 0, 0);
        // The type of a client that does not name bug switches is the one that cannot have any.
        let _: &ClientLink<NoBugs> = &link;
    }

    #[cfg(feature = "bug-switches")]
    #[test]
    fn every_bug_switch_is_found_by_its_name_and_by_its_former_one() {
        for (name, bug) in BugSwitch::ALL {
            assert_eq!((BugSwitch::parse(name), bug.name()), (Ok(*bug), *name));
        }
        assert_eq!(BugSwitch::parse("no-wedge"), Ok(BugSwitch::NoFreeze));
        let unknown = BugSwitch::parse("perfect").unwrap_err();
        assert_eq!(unknown.name, "perfect");
        assert!(alloc::format!("{unknown}").contains("no-freeze"), "{unknown}");
    }
}

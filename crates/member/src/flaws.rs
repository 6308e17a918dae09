//! Ways of being wrong on purpose, for tests that must catch them.

/// One guard left out. A member with a flaw is for the lab alone: each of these has cost somebody a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Flaw {
    /// A frame of an epoch that is not installed yet is acknowledged and dropped.
    HigherEpochsDropped,
    /// A frame of an old epoch is taken for one of the present.
    LowerEpochsAccepted,
    /// A release that comes while frozen is applied at once, behind the back of the report.
    ReportChanges,
    /// A wedged member asks for no lease.
    WedgeStopsRenewals,
    /// A member goes on in the old view after its report.
    NoWedge,
    /// A leader starts a view that another has decided, instead of deciding one of its own.
    TwoCoordinators,
    /// A new leader leaves a view that was decided and not started as it is.
    UnstartedViewLeft,
    /// A view starts before every member has reported.
    StartsWithoutEveryReport,
    /// The start does not wait for the leases of missing members.
    NoWait,
    /// Only missing members that are known to have held something are waited for.
    WaitsForKnownHoldersOnly,
    /// The wait is done before the proposal, not before the start.
    ProposerWaits,
    /// Renewals are answered whatever epoch they name.
    AnswersOldEpochs,
    /// A leader answers renewals without having its leadership confirmed.
    MinorityGrants,
    /// The member's lease is counted from the arrival of the answer.
    LeaseFromArrival,
    /// A client's lease is counted from the arrival of the answer.
    ClientLeaseFromArrival,
    /// A client is promised a full lease, whatever its member has left.
    ClientOutlivesMember,
    /// Entries are not checked against the lease at the moment of entry.
    GrantsWithoutLease,
    /// A client that fell silent is not waited for.
    SilentClientForgotten,
    /// A forced release frees the lock at once.
    RevokedAtOnce,
    /// A member that is idle drops its instance.
    IdleInstanceDropped,
    /// The waits ignore that clocks drift.
    NoDrift,
    /// A member that leaves says farewell while its clients hold locks.
    LeavesInUse,
    /// The fences that a client may use for further entries are not set aside.
    NothingSetAside,
    /// A client goes on keeping what somebody else waits for.
    KeptForEver,
    /// A member uses the times of its own configuration, and a leader waits for its own lease, whatever the views before granted.
    OwnLeaseWaitedFor,
    /// A member runs the algorithm of its own configuration, not of the view.
    OwnAlgorithm,
    /// The first view of a cluster starts at once, although a cluster of the same members may have lost its disks just now.
    FounderDoesNotWait,
    /// The founder of a cluster waits for one lease of its own settings, although the members may have had a longer one before they lost
    /// their disks.
    FounderWaitsForOwnLease,
    /// A table of locks that is full of idle ones stays full: no view is asked for that would drop them, new names are refused for
    /// good, and messages about new names are acknowledged and dropped.
    TableNeverReclaimed,
    /// Work on all holds is done in one step, however many there are.
    OneBigStep,
    /// A client sends each request once and does not repeat it while its connection stays open.
    RequestsSaidOnce,
    /// A client keeps a link to a daemon that never answers its keep-alives.
    SilentLinkKept,
    /// A daemon tells a client without a session that it can rely on its hold for as long as the daemon's own clock allows, without an
    /// allowance for drift.
    LeaseWithoutDrift,
}

impl Flaw {
    /// Every one of them, with its name for people.
    pub const ALL: &[(&str, Self)] = &[
        ("higher-epochs-dropped", Self::HigherEpochsDropped),
        ("lower-epochs-accepted", Self::LowerEpochsAccepted),
        ("report-changes", Self::ReportChanges),
        ("wedge-stops-renewals", Self::WedgeStopsRenewals),
        ("no-wedge", Self::NoWedge),
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
        ("kept-for-ever", Self::KeptForEver),
        ("own-lease-waited-for", Self::OwnLeaseWaitedFor),
        ("own-algorithm", Self::OwnAlgorithm),
        ("founder-does-not-wait", Self::FounderDoesNotWait),
        ("founder-waits-for-own-lease", Self::FounderWaitsForOwnLease),
        ("table-never-reclaimed", Self::TableNeverReclaimed),
        ("one-big-step", Self::OneBigStep),
        ("requests-said-once", Self::RequestsSaidOnce),
        ("silent-link-kept", Self::SilentLinkKept),
        ("lease-without-drift", Self::LeaseWithoutDrift),
    ];
}

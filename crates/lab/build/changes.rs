//! The wrong-on-purpose variants: each is the real file of an algorithm with one guard changed.
//!
//! The build script makes the variants from this list.

/// One changed guard.
pub struct Change {
    /// The variant's name.
    pub name: &'static str,
    /// The algorithm it spoils, by the name of its file.
    pub module: &'static str,
    /// The type of that algorithm.
    pub protocol: &'static str,
    /// The text that is changed; it stands exactly once in the file.
    pub from: &'static str,
    /// What it becomes.
    pub to: &'static str,
    /// The property that breaks, as the type of that name in `property`.
    pub breaks: &'static str,
    /// What the change means.
    pub story: &'static str,
}

pub const CHANGES: &[Change] = &[
    Change {
        name: "centralized-last-come-first-served",
        module: "centralized",
        protocol: "Centralized",
        from: "self.holder = self.queue.pop_front();",
        to: "self.holder = self.queue.pop_back();",
        breaks: "NoStarvation",
        story: "the coordinator serves the last comer first",
    },
    Change {
        name: "centralized-forgets-the-holder",
        module: "centralized",
        protocol: "Centralized",
        from: "if self.holder.is_none() {",
        to: "if self.queue.is_empty() {",
        breaks: "MutualExclusion",
        story: "the coordinator looks at its queue only, not at who is inside",
    },
    Change {
        name: "centralized-forgets-the-queue",
        module: "centralized",
        protocol: "Centralized",
        from: "self.queue.push_back(from);",
        to: "",
        breaks: "NoDeadlock",
        story: "the coordinator denies without queueing",
    },
    Change {
        name: "lamport-without-l1",
        module: "lamport",
        protocol: "Lamport",
        from: " && self.unheard.is_empty()",
        to: "",
        breaks: "MutualExclusion",
        story: "a site enters without having heard from everybody",
    },
    Change {
        name: "lamport-without-l2",
        module: "lamport",
        protocol: "Lamport",
        from: "self.queue.front() == Some(&self.own_request())",
        to: "self.queue.contains(&self.own_request())",
        breaks: "MutualExclusion",
        story: "a site enters although its request is not first in its queue",
    },
    Change {
        name: "lamport-any-message-counts",
        module: "lamport",
        protocol: "Lamport",
        from: "sent > self.own_request() && ",
        to: "",
        breaks: "MutualExclusion",
        story: "a message older than the site's own request counts as having heard from its sender",
    },
    Change {
        name: "ricart-agrawala-ties-unbroken",
        module: "ricart_agrawala",
        protocol: "RicartAgrawala",
        from: "self.own_request() < request,",
        to: "self.requested < request.time,",
        breaks: "MutualExclusion",
        story: "two requests of the same time each give way to the other",
    },
    Change {
        name: "ricart-agrawala-ties-both-win",
        module: "ricart_agrawala",
        protocol: "RicartAgrawala",
        from: "self.own_request() < request,",
        to: "self.requested <= request.time,",
        breaks: "NoDeadlock",
        story: "two requests of the same time each defer the other",
    },
    Change {
        name: "ricart-agrawala-clock-not-updated",
        module: "ricart_agrawala",
        protocol: "RicartAgrawala",
        from: "self.clock.observe(request.time);",
        to: "",
        breaks: "MutualExclusion",
        story: "a site that replied asks later with a smaller timestamp",
    },
    Change {
        name: "ricart-agrawala-replies-inside",
        module: "ricart_agrawala",
        protocol: "RicartAgrawala",
        from: "Phase::Inside => true,",
        to: "Phase::Inside => false,",
        breaks: "MutualExclusion",
        story: "a site inside gives its permission away",
    },
    Change {
        name: "token-ring-idle-first-holder",
        module: "token_ring",
        protocol: "TokenRing",
        from: "if site.has_token && site.phase != Phase::Inside {",
        to: "if site.has_token && site.phase == Phase::Waiting {",
        breaks: "NoDeadlock",
        story: "the first holder of the token keeps it until it wants in itself",
    },
    Change {
        name: "token-ring-keeps-a-copy",
        module: "token_ring",
        protocol: "TokenRing",
        from: "self.has_token = false;",
        to: "",
        breaks: "MutualExclusion",
        story: "a site that passed the token on believes that it still has it",
    },
    Change {
        name: "token-ring-parked-forgets-who-waits",
        module: "token_ring_parked",
        protocol: "TokenRingParked",
        from: "wanted.remove(&self.me);",
        to: "wanted.clear();",
        breaks: "NoDeadlock",
        story: "the token's list of those who want it is emptied at each site",
    },
    Change {
        name: "token-ring-parked-passes-while-inside",
        module: "token_ring_parked",
        protocol: "TokenRingParked",
        from: "if self.phase == Phase::Inside {",
        to: "if self.phase == Phase::Waiting {",
        breaks: "MutualExclusion",
        story: "a site inside passes the token on",
    },
];

//! Lamport clocks and vector clocks of all processes of a run.

use lockkeeper_core::SiteId;

/// The clocks of all processes.
#[derive(Clone, Debug)]
pub struct Clocks {
    lamport: Vec<u64>,
    vector: Vec<Vec<u32>>,
    update: ClockUpdate,
}

/// How a process updates its clocks when it receives a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockUpdate {
    /// It takes the maximum of its own clock and that of the message, then adds one for the event.
    #[default]
    Maximum,
    /// Mutant: it takes over the clock of the message without the maximum.
    TakesOver,
    /// Mutant: it ignores the clock of the message.
    Ignores,
}

impl Clocks {
    /// The clocks before the first event.
    pub fn new(processes: usize, update: ClockUpdate) -> Self {
        Self { lamport: vec![0; processes], vector: vec![vec![0; processes]; processes], update }
    }

    /// The Lamport clock of a process.
    pub fn lamport(&self, site: SiteId) -> u64 {
        self.lamport[site.index()]
    }

    /// The vector clock of a process.
    pub fn vector(&self, site: SiteId) -> &[u32] {
        &self.vector[site.index()]
    }

    /// An event of a process begins.
    pub fn tick(&mut self, site: SiteId) {
        self.lamport[site.index()] += 1;
        self.vector[site.index()][site.index()] += 1;
    }

    /// The receipt of a message that was sent with these clocks.
    pub fn receive(&mut self, site: SiteId, lamport: u64, vector: &[u32]) {
        let own_lamport = &mut self.lamport[site.index()];
        let own_vector = &mut self.vector[site.index()];
        match self.update {
            ClockUpdate::Maximum => {
                *own_lamport = lamport.max(*own_lamport);
                for (mine, theirs) in own_vector.iter_mut().zip(vector) {
                    *mine = (*theirs).max(*mine);
                }
            }
            ClockUpdate::TakesOver => {
                *own_lamport = lamport;
                // A process always counts its own events.
                let events = own_vector[site.index()];
                own_vector.copy_from_slice(vector);
                own_vector[site.index()] = events;
            }
            ClockUpdate::Ignores => {}
        }
        self.tick(site);
    }
}

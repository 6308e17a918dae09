//! Strongly connected components (Tarjan 1972), without recursion, since state graphs are deep.

/// Calls `found` with each component, as the list of its nodes. Only nodes that are `inside` count.
/// `next(node, n)` is the nth neighbour of a node.
///
/// Example: 0 → 1 → 2 → 0 and 2 → 3 yields the components {3} and {0, 1, 2}, in this order.
pub fn components(
    nodes: usize,
    inside: impl Fn(u32) -> bool,
    next: impl Fn(u32, usize) -> Option<Neighbour>,
    mut found: impl FnMut(Vec<u32>),
) {
    let mut tarjan = Tarjan { low: vec![UNSEEN; nodes], stack: Vec::new(), path: Vec::new(), seen: 0 };
    for root in (0..nodes as u32).filter(|&node| inside(node)) {
        if tarjan.low[root as usize] == UNSEEN {
            tarjan.visit(root);
        }
        while let Some(&Visit { node, followed, .. }) = tarjan.path.last() {
            match next(node, followed) {
                Some(neighbour) => tarjan.follow(neighbour),
                None => {
                    if let Some(component) = tarjan.leave() {
                        found(component);
                    }
                }
            }
        }
    }
}

/// The target of an edge; an edge may be excluded.
pub enum Neighbour {
    /// A node.
    Node(u32),
    /// An edge that is excluded.
    LeftOut,
}

const UNSEEN: u32 = u32::MAX;
/// The node belongs to a component that has been found.
const DONE: u32 = u32::MAX - 1;

struct Tarjan {
    /// For each node, the smallest number of a node on the stack that it is known to reach.
    low: Vec<u32>,
    stack: Vec<u32>,
    path: Vec<Visit>,
    seen: u32,
}

#[derive(Clone, Copy)]
struct Visit {
    node: u32,
    /// The node's number in the order of discovery.
    number: u32,
    /// Number of its edges that have been followed.
    followed: usize,
}

impl Tarjan {
    fn visit(&mut self, node: u32) {
        self.low[node as usize] = self.seen;
        self.path.push(Visit { node, number: self.seen, followed: 0 });
        self.stack.push(node);
        self.seen += 1;
    }

    fn follow(&mut self, neighbour: Neighbour) {
        let Some(visit) = self.path.last_mut() else { return };
        visit.followed += 1;
        let node = visit.node as usize;
        if let Neighbour::Node(to) = neighbour {
            match self.low[to as usize] {
                UNSEEN => self.visit(to),
                DONE => {}
                low => self.low[node] = self.low[node].min(low),
            }
        }
    }

    /// Removes the last node from the path after all its edges were followed. If the node is the root of a
    /// component, returns the component.
    fn leave(&mut self) -> Option<Vec<u32>> {
        let Visit { node, number, .. } = self.path.pop()?;
        let low = self.low[node as usize];
        if low < number {
            let parent = self.path.last()?.node as usize;
            self.low[parent] = self.low[parent].min(low);
            return None;
        }
        let first = self.stack.iter().rposition(|&other| other == node)?;
        let component = self.stack.split_off(first);
        component.iter().for_each(|&done| self.low[done as usize] = DONE);
        Some(component)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cycles_joined_by_an_edge_are_two_components() {
        let edges: [&[u32]; 6] = [&[1], &[2], &[0, 3], &[4], &[3], &[5, 0]];
        let next = |node: u32, n: usize| edges[node as usize].get(n).map(|&to| Neighbour::Node(to));
        let mut all = Vec::new();
        components(
            6,
            |_| true,
            next,
            |mut component| {
                component.sort_unstable();
                all.push(component);
            },
        );
        assert_eq!(all, [vec![3, 4], vec![0, 1, 2], vec![5]]);
    }
}

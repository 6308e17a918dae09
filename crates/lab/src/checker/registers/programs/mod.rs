//! The algorithms as programs over registers: the same lines as in `crates/shared-memory`, one access per
//! step. Processes of a program never give up.

mod bakery;
mod black_white;
mod clh;
mod dijkstra;
mod eisenberg_mcguire;
mod filter;
mod mcs;
mod peterson;
mod szymanski;
mod ticket;

pub(super) use bakery::Bakery;
pub(super) use black_white::BlackWhite;
pub(super) use clh::Clh;
pub(super) use dijkstra::Dijkstra;
pub(super) use eisenberg_mcguire::EisenbergMcGuire;
pub(super) use filter::Filter;
pub(super) use mcs::Mcs;
pub(super) use peterson::Peterson;
pub(super) use szymanski::Szymanski;
pub(super) use ticket::Ticket;

use super::machine::Register;

/// One register for each process, such as `number[1]` to `number[3]`.
fn array(name: &str, processes: usize, most: u8, initial: u8) -> impl Iterator<Item = Register> {
    (1..=processes).map(move |process| Register::new(format!("{name}[{process}]"), most, initial))
}

/// The first process that is not `me`.
fn first(me: usize) -> u8 {
    u8::from(me == 0)
}

/// The next process after `j` that is not `me`.
fn next(j: u8, me: usize, processes: usize) -> Option<u8> {
    (j as usize + 1..processes).find(|&other| other != me).map(|other| other as u8)
}

fn truth(value: u8) -> String {
    (value != 0).to_string()
}

//! End-to-end tests of the lab.

mod by_hand;
mod causality;
mod check;
mod compare;
mod election;
mod flp;
mod proof;
mod sim;
mod threads;

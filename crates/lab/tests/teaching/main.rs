//! What the lab teaches with: pseudo-code beside runs, and exercises.

mod causality;
mod flp;
mod pseudocode;
mod quiz;

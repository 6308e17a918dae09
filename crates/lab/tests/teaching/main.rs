//! What the lab teaches with: pseudo-code beside runs, and exercises.

mod flp;
mod pseudocode;
mod quiz;

//! What the lab teaches with: pseudo-code beside runs, and exercises.

mod pseudocode;
mod quiz;

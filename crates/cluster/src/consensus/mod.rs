//! Consensus, which decides the views.

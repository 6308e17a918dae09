//! The page as a person uses it: a real server, a real browser.

mod gallery;

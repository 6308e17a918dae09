//! One page that needs nothing else.

use crate::report::Report;

/// The page.
pub fn page(report: &Report) -> String {
    let _ = report;
    String::new()
}

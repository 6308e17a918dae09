//! The steps of a recorded run as text: the state of a site, and the lines of pseudo-code that a step executed.

use super::explain::hanging;
use crate::print_line;
use lockkeeper_core::{Phase, SiteId};
use lockkeeper_lab::trace::SiteState;
use lockkeeper_lab::trace::recording::Recording;

/// The state of a site in one line: `  S1 waiting  clock: 1 · queue: (1, S1)`.
pub fn state_line(recording: &Recording, site: SiteId, state: &SiteState) -> String {
    // An election shows its own state; in mutual exclusion the phase shows it.
    let shown = |name: &str| recording.election || name != "state";
    let fields = state.fields.iter().filter(|field| shown(field.name));
    let values: Vec<String> = fields.map(|field| format!("{}: {}", field.name, field.value)).collect();
    let stands = match (state.up, recording.election) {
        (false, _) => "crashed".into(),
        (true, false) => state.phase.to_string(),
        (true, true) if state.phase == Phase::Inside => "leads".into(),
        (true, true) => String::new(),
    };
    let line = format!("{:>4} {stands:<8} {}", recording.names[site.index()], values.join(" · "));
    line.trim_end().into()
}

/// Prints the states that a step has changed.
pub fn print_changed_states(recording: &Recording, step: usize, indent: &str) {
    for (site, states) in SiteId::all(recording.states.len()).zip(&recording.states) {
        let Ok(place) = states.binary_search_by_key(&step, |(since, _)| *since) else { continue };
        let line = |place: usize| state_line(recording, site, &states[place].1);
        // A change that is not shown, such as that of a timer, leaves the line as it was.
        if place == 0 || line(place) != line(place - 1) {
            hanging(indent, &line(place));
        }
    }
}

/// Prints the whole pseudo-code with numbers; the lines that a step executed are marked.
pub fn print_code(code: &[&str], fires: &[usize]) {
    for (number, line) in code.iter().enumerate() {
        let mark = if fires.contains(&number) { '▶' } else { ' ' };
        print_line!("  {mark}{:>3}  {line}", number + 1);
    }
}

/// The numbers of the lines that a step executed: ` [2, 3]`; empty if it executed none.
pub fn line_numbers(fires: &[usize]) -> String {
    let mut lines: Vec<usize> = fires.iter().map(|line| line + 1).collect();
    lines.sort_unstable();
    lines.dedup();
    if lines.is_empty() { String::new() } else { format!(" {lines:?}") }
}

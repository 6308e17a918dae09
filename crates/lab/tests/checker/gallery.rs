//! Everything that is wrong on purpose is caught, by the property it breaks and in the fewest steps; its twin passes the
//! same systems.

use lockkeeper_lab::check::gallery::all;
use rayon::prelude::*;

/// Name, the property that breaks, steps of the shortest run, and in which of the ladder's systems.
const PINNED: &[(&str, &str, usize, usize)] = &[];

#[test]
fn each_is_caught_as_pinned_and_its_twin_is_not() {
    let found: Vec<_> = all()
        .par_iter()
        .map(|exhibit| {
            let caught =
                exhibit.catch(|_| true).unwrap().unwrap_or_else(|| panic!("{} escaped", exhibit.name));
            let (property, steps) = caught.how().unwrap();
            if let Some(answer) = exhibit.twin_fails(caught.rung).unwrap() {
                panic!("{}, the twin of {}: {:#?}", exhibit.twin, exhibit.name, answer.counterexample);
            }
            (exhibit.name, format!("{property:?}"), steps, caught.rung)
        })
        .collect();
    let rows: Vec<String> = found
        .iter()
        .map(|(name, property, steps, rung)| format!("    ({name:?}, {property:?}, {steps}, {rung}),"))
        .collect();
    let pinned: Vec<_> = PINNED
        .iter()
        .map(|&(name, property, steps, rung)| (name, property.to_string(), steps, rung))
        .collect();
    assert_eq!(found, pinned, "if this was meant, pin these:\n{}", rows.join("\n"));
}

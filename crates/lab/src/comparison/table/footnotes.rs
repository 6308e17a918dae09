//! Footnotes on textbook figures that are wrong or imprecise: the measured value, and the reason.

use super::{Row, number};
use serde::Serialize;

/// A remark on some of the rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Footnote {
    /// Its number, from 1.
    pub number: usize,
    /// The algorithms it is about.
    pub algorithms: Vec<String>,
    /// The text.
    pub text: String,
}

/// The remarks on these rows, with the values measured in them.
pub fn footnotes(rows: &[Row]) -> Vec<Footnote> {
    let notes = [
        sync_delay_of_broadcasts(rows),
        exit_of_ricart_agrawala(rows),
        ring_that_never_starts(rows),
        messages_of_the_ring(rows),
        square_roots(rows),
        sync_delay_of_quorums(rows),
        majorities(rows),
        replies_of_permits(rows),
    ];
    let notes = notes.into_iter().flatten().enumerate();
    notes.map(|(index, note)| Footnote { number: index + 1, ..note }).collect()
}

fn note(algorithms: &[&str], text: String) -> Option<Footnote> {
    let algorithms = algorithms.iter().map(ToString::to_string).collect();
    Some(Footnote { number: 0, algorithms, text })
}

/// The rows of an algorithm that have values, ordered by the number of sites.
fn of<'a>(rows: &'a [Row], algorithm: &str) -> Vec<&'a Row> {
    let mut rows: Vec<&Row> =
        rows.iter().filter(|row| row.algorithm == algorithm && row.trouble.is_none()).collect();
    rows.sort_by_key(|row| row.sites);
    rows
}

/// The row with the largest number of sites in which a value was measured.
fn largest<'a>(
    rows: &'a [Row],
    algorithm: &str,
    of_it: impl Fn(&Row) -> Option<f64>,
) -> Option<(&'a Row, f64)> {
    of(rows, algorithm).into_iter().rev().find_map(|row| of_it(row).map(|value| (row, value)))
}

fn sync_delay_of_broadcasts(rows: &[Row]) -> Option<Footnote> {
    let of_it = |slug| largest(rows, slug, |row| row.sync_delay);
    let ((row, delay), slug) = of_it("lamport")
        .map(|found| (found, "lamport"))
        .or_else(|| of_it("ricart-agrawala").map(|found| (found, "ricart-agrawala")))?;
    note(
        &["lamport", "ricart-agrawala"],
        format!(
            "Some tables give N−1 as the synchronization delay of Lamport and of Ricart and Agrawala. That is how many \
             messages leave at an exit, not how long they take: they are sent in parallel, so the next site enters one \
             message delay after the exit, for every N. Measured: {} T with {slug} and {} sites.",
            number(Some(delay), 3),
            row.sites
        ),
    )
}

fn exit_of_ricart_agrawala(rows: &[Row]) -> Option<Footnote> {
    let (row, messages) = largest(rows, "ricart-agrawala", |row| row.messages_per_entry)?;
    note(
        &["ricart-agrawala"],
        format!(
            "Some lectures count 2(N−1) messages for an entry and another N−1 for an exit. A REPLY sent at an exit was \
             deferred: it is one of the N−1 replies that another site's entry needs anyway and is counted there. Each \
             entry costs 2(N−1) in all: measured {} with {} sites, {} of them only to announce an exit.",
            number(Some(messages), 3),
            row.sites,
            number(row.on_exit, 3)
        ),
    )
}

fn ring_that_never_starts(rows: &[Row]) -> Option<Footnote> {
    let rows = of(rows, "token-ring");
    rows.first()?;
    let mut text = String::from(
        "Textbook code for the ring often passes the token on only after receiving it or on leaving. If the first \
         holder does not request, neither happens, and all other sites wait for ever: our tests keep that \
         variant and find the deadlock. Here the first holder sends the token off at once.",
    );
    if let Some(row) = rows.iter().rev().find(|row| row.idle_messages > 0.0) {
        let idle = number(Some(row.idle_messages), 2);
        text += &format!(
            " While no site requests, that costs {idle} messages per T, measured with {} sites.",
            row.sites
        );
    }
    note(&["token-ring"], text)
}

fn messages_of_the_ring(rows: &[Row]) -> Option<Footnote> {
    let rows = of(rows, "token-ring");
    let low = rows.iter().rev().find(|row| row.load == "low" || row.load == "pairs")?;
    note(
        &["token-ring"],
        format!(
            "The token that leaves at an exit is the same message that lets the next site enter; tables that count one \
             message for an exit count it there, this one counts it as a message to enter. \
             \"0 to N−1 messages per entry\" holds for one requester and a token that set off just in time. A \
             perpetual token also costs messages while no site requests, so there is no bound: the {} \
             measured at {} load with {} sites follow from how long the pauses were, up to one turn.",
            number(low.messages_per_entry, 1),
            low.load,
            low.sites
        ),
    )
}

fn square_roots(rows: &[Row]) -> Option<Footnote> {
    let low = |row: &Row| row.messages_per_entry.filter(|_| row.load != "high");
    let (row, messages) = largest(rows, "maekawa", low).or_else(|| largest(rows, "maekawa-basic", low))?;
    note(
        &["maekawa", "maekawa-basic"],
        format!(
            "3√N is a round figure. A site's own vote costs no message, and a plane of N = K(K−1)+1 sites has \
             quorums of K, a little more than √N: 3(K−1), measured {} with {} sites, where 3√N is {}. Where there \
             is no plane, a grid costs about twice that.",
            number(Some(messages), 2),
            row.sites,
            number(Some(3.0 * libm::sqrt(row.sites as f64)), 2)
        ),
    )
}

fn sync_delay_of_quorums(rows: &[Row]) -> Option<Footnote> {
    let at = |load: &'static str| {
        let of_load = move |row: &Row| row.sync_delay.filter(|_| row.load == load);
        largest(rows, "maekawa", of_load)
    };
    let mut text = String::from(
        "The synchronization delay of quorums is given as 2T: RELEASED to the shared arbiter, LOCKED from it. It is T \
         when one of the two sites is that arbiter itself.",
    );
    let together = at("high");
    if let Some((row, delay)) = together {
        text += &format!(
            " Where all sites start together, the cyclic order of a plane's quorums makes it so nearly always: \
             measured {} T with {} sites at high load.",
            number(Some(delay), 3),
            row.sites
        );
    }
    let staggered = at("staggered");
    match staggered {
        Some((row, delay)) => {
            text += &format!(
                " Where they start one after another: {} T with {} sites at staggered load.",
                number(Some(delay), 3),
                row.sites
            );
        }
        None => text += " --load staggered measures starts one after another.",
    }
    together.or(staggered)?;
    note(&["maekawa"], text)
}

fn majorities(rows: &[Row]) -> Option<Footnote> {
    let low = |row: &Row| row.messages_per_entry.filter(|_| row.load != "high");
    let (row, messages) =
        largest(rows, "majority", low).or_else(|| largest(rows, "majority", |row| row.messages_per_entry))?;
    note(
        &["majority"],
        format!(
            "Majority quorums are often described as cheap. They need half of all sites instead of all, but three \
             messages for each instead of two: measured {} with {} sites at {} load, beside {} for Ricart and \
             Agrawala. Their advantage is that another majority can be used when some sites are down, not fewer \
             messages.",
            number(Some(messages), 1),
            row.sites,
            row.load,
            2 * (row.sites - 1)
        ),
    )
}

fn replies_of_permits(rows: &[Row]) -> Option<Footnote> {
    let high = |row: &Row| row.messages_per_entry.filter(|_| row.load == "high");
    let (row, messages) = largest(rows, "k-mutual-exclusion", high)?;
    let k = row.sharing.capacity();
    note(
        &["k-mutual-exclusion"],
        format!(
            "2N−k−1, given for k permits at high load, is a lower bound, met while k−1 sites stay inside: what \
             each of them owes another travels as one REPLY. Where all take turns, every site leaves between two \
             requests of each other and every reply is sent: measured {} with {} sites and k = {k}, where 2N−k−1 \
             is {}.",
            number(Some(messages), 3),
            row.sites,
            (2 * row.sites).saturating_sub(k + 1)
        ),
    )
}

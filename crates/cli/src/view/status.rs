//! One stack on each agent.

use brokkr_api::SequenceId;
use brokkr_api::status::StackStatus;
use jiff::Timestamp;

use super::conditions::{summary, wrong};
use super::table::{Table, style_of};
use super::text::{age_or_dash, short};

const MESSAGE: usize = 60;

pub fn per_agent(rows: &[StackStatus], now: Timestamp) -> String {
    let mut table = Table::new(&["AGENT", "STATE", "HAS/WANTS", "READY", "AGE", "MESSAGE"]);
    for row in rows {
        table.row([
            row.agent_name.clone(),
            row.state.to_string(),
            format!("{}/{}", sequence(row.sequence_id), sequence(row.wanted_sequence_id)),
            ready(row),
            age_or_dash(last_hop(row), now),
            short(&message(row), MESSAGE),
        ]);
    }
    table.paint(1, rows.iter().map(|row| style_of(row.state)).collect());
    table.print()
}

pub fn sequence(sequence: Option<SequenceId>) -> String {
    sequence.map_or_else(|| "-".to_owned(), |sequence| sequence.to_string())
}

pub fn ready(row: &StackStatus) -> String {
    if row.total == 0 { "-".to_owned() } else { format!("{}/{}", row.ready, row.total) }
}

/// What was reported; or, if nothing was, what is wrong all the same.
pub(super) fn message(row: &StackStatus) -> String {
    let reported = reported(row);
    match wrong(row).first() {
        Some(condition) if reported.is_empty() => summary(condition),
        _ => reported,
    }
}

/// The reason for programs and the sentence for people, as one.
pub fn reported(row: &StackStatus) -> String {
    match (row.reason.is_empty(), row.message.is_empty()) {
        (false, false) => format!("{}: {}", row.reason, row.message),
        (false, true) => row.reason.clone(),
        _ => row.message.clone(),
    }
}

/// Since when it stands where it stands.
fn last_hop(row: &StackStatus) -> Option<Timestamp> {
    row.hops.chain().into_iter().filter(|(name, _)| *name != "reported").filter_map(|(_, at)| at).max()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{contested_row, failed_row, now, row};
    use super::*;
    use brokkr_api::status::State;

    #[test]
    fn status() {
        let rows = [
            row("eu-1", 42, 42, State::Healthy),
            contested_row("eu-2"),
            failed_row("store-0412"),
            row("us-1", 42, 41, State::Pending),
        ];
        insta::assert_snapshot!(anstream::adapter::strip_str(&per_agent(&rows, now())).to_string());
        assert!(
            per_agent(&rows, now()).contains("\u{1b}[1m\u{1b}[31mfailed"),
            "{:?}",
            per_agent(&rows, now())
        );
    }
}

//! The status of a stack on each agent.

use brokkr_api::status::{StackStatus, State};
use jiff::Timestamp;

use super::Listed;
use super::conditions::{summary, wrong};
use super::table::{Table, painted, style_of};
use super::text::{age_or_dash, explained, or_dash};

impl Listed for StackStatus {
    const NONE: &'static str = "no agents are targeted; use `brokkr stack retarget STACK --to SELECTOR`";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .plain("AGENT", |row| &row.agent_name)
            .plain("STATE", |row| painted(row.state, style_of(row.state)))
            .plain("HAS/WANTS", |row| {
                format!("{}/{}", or_dash(row.sequence_id), or_dash(row.wanted_sequence_id))
            })
            .plain("READY", ready)
            .plain("AGE", |row| age_or_dash(last_hop(row), now))
            .sentence("MESSAGE", message)
            .wide("AGENT-ID", |row| row.agent_id)
    }

    fn name(&self) -> String {
        format!("agent/{}", self.agent_name)
    }
}

pub fn ready(row: &StackStatus) -> String {
    if row.total == 0 || row.state == State::Removed {
        "-".to_owned()
    } else {
        format!("{}/{}", row.ready, row.total)
    }
}

/// Returns the reported message, or else the first condition that is not as it should be.
pub(super) fn message(row: &StackStatus) -> String {
    let reported = reported(row);
    match wrong(row).first() {
        Some(condition) if reported.is_empty() => summary(condition),
        _ => reported,
    }
}

/// Returns the reason and the message.
pub fn reported(row: &StackStatus) -> String {
    explained(&row.reason, &row.message)
}

/// Returns the time of the last step.
fn last_hop(row: &StackStatus) -> Option<Timestamp> {
    row.hops.chain().into_iter().filter(|(name, _)| *name != "reported").filter_map(|(_, at)| at).max()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{contested_row, failed_row, options, rendered, row};
    use super::super::{Show as _, whole};
    use brokkr_api::status::State;

    #[test]
    fn status() {
        let page = whole(vec![
            row("eu-1", 42, 42, State::Healthy),
            contested_row("eu-2"),
            failed_row("store-0412"),
            row("us-1", 42, 41, State::Pending),
        ]);
        insta::assert_snapshot!(rendered(&page));
        let painted = page.text(&options());
        assert!(painted.contains("\u{1b}[1m\u{1b}[31mfailed"), "{painted:?}");
    }
}

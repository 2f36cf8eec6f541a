//! The status of a stack on each agent.

use brokkr_api::SequenceId;
use brokkr_api::status::{StackStatus, State};
use jiff::Timestamp;

use super::conditions::{summary, wrong};
use super::table::{Table, painted, plain, sentence, style_of, wide};
use super::text::{age_or_dash, explained};
use super::{Listed, RenderOptions};

impl Listed for StackStatus {
    const NONE: &'static str = "no agents are targeted; use `brokkr stack retarget STACK --to SELECTOR`";

    fn table<'a>(rows: &[Self], options: &'a RenderOptions) -> Table<'a> {
        let columns = [
            plain("AGENT"),
            plain("STATE"),
            plain("HAS/WANTS"),
            plain("READY"),
            plain("AGE"),
            sentence("MESSAGE"),
            wide("AGENT-ID"),
        ];
        let mut table = Table::new(options, &columns);
        for row in rows {
            table.row([
                row.agent_name.clone().into(),
                painted(row.state.to_string(), style_of(row.state)),
                format!("{}/{}", sequence(row.sequence_id), sequence(row.wanted_sequence_id)).into(),
                ready(row).into(),
                age_or_dash(last_hop(row), options.now).into(),
                message(row).into(),
                row.agent_id.to_string().into(),
            ]);
        }
        table
    }

    fn name(&self) -> String {
        format!("agent/{}", self.agent_name)
    }
}

pub fn sequence(sequence: Option<SequenceId>) -> String {
    sequence.map_or_else(|| "-".to_owned(), |sequence| sequence.to_string())
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

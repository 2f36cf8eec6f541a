//! What is left of a deleted stack, agent by agent: seen gone and when, or still owed.

use brokkr_api::report::ObjectNote;
use brokkr_api::status::{StackStatus, State};
use jiff::Timestamp;
use serde::Serialize;

use super::status::message;
use super::table::{CAREFUL, GOOD, Table, painted, plain, sentence, wide};
use super::{Listed, Look};

/// What one agent said last.
#[derive(Clone, Debug, Serialize)]
pub struct Receipt {
    pub agent: String,
    pub state: State,
    /// When everything was seen to be gone; none while it is owed.
    pub gone_at: Option<Timestamp>,
    /// What was not deleted, and why.
    pub left: Vec<ObjectNote>,
    pub message: String,
}

/// Of the agents that had something of it, or still have.
pub fn receipts(rows: &[StackStatus]) -> Vec<Receipt> {
    let receipt = |row: &StackStatus| {
        let is_gone = row.state == State::Removed;
        Receipt {
            agent: row.agent_name.clone(),
            state: row.state,
            gone_at: row.hops.pruned.or(row.hops.reported).filter(|_| is_gone),
            left: row.objects.iter().filter(|_| is_gone).cloned().collect(),
            message: message(row),
        }
    };
    rows.iter().map(receipt).collect()
}

impl Listed for Receipt {
    const NONE: &'static str = "no agent had anything of it";

    fn table<'a>(receipts: &[Self], look: &'a Look) -> Table<'a> {
        let columns =
            [plain("AGENT"), plain("STATE"), plain("SEEN GONE"), sentence("LEFT"), wide("STATE-OF-AGENT")];
        let mut table = Table::new(look, &columns);
        for receipt in receipts {
            let state = match receipt.state {
                State::Removed => painted("gone", GOOD),
                _ => painted("owed", CAREFUL),
            };
            let left = match receipt.left.as_slice() {
                [] if receipt.state == State::Removed => "nothing".to_owned(),
                [] if receipt.message.is_empty() => "everything, until the agent says otherwise".to_owned(),
                [] => receipt.message.clone(),
                notes => {
                    let named: Vec<String> =
                        notes.iter().map(|note| format!("{}: {}", note.object, note.message)).collect();
                    named.join("; ")
                }
            };
            let gone_at = receipt.gone_at.map_or_else(|| "-".to_owned(), |at| format!("{at:.0}"));
            table.row([
                receipt.agent.clone().into(),
                state,
                gone_at.into(),
                left.into(),
                receipt.state.to_string().into(),
            ]);
        }
        table
    }

    fn name(&self) -> String {
        format!("agent/{}", self.agent)
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{ago, failed_row, looks, row};
    use super::super::whole;
    use super::*;

    #[test]
    fn receipts() {
        let mut gone = row("eu-1", 50, 50, State::Removed);
        gone.hops.pruned = Some(ago(3));
        let mut left = gone.clone();
        left.agent_name = "eu-2".into();
        left.objects = failed_row("x").objects;
        left.objects[0].message = "it belongs to somebody else by now".into();
        let mut stuck = row("us-1", 50, 50, State::Blocked);
        stuck.reason = "Finalizers".into();
        stuck.message = "ConfigMap shop/web waits for the finalizer example.com/keep".into();
        let away = row("store-0412", 50, 42, State::Removing);
        insta::assert_snapshot!(looks(&whole(super::receipts(&[gone, left, stuck, away]))));
    }
}

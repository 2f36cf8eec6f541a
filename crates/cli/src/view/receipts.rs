//! What is left of a deleted stack, agent by agent: seen gone and when, or still owed.

use brokkr_api::report::{GONE, ObjectNote};
use brokkr_api::status::{StackStatus, State};
use jiff::Timestamp;
use serde::Serialize;

use super::status::message;
use super::table::{CAREFUL, GOOD, Table, painted, plain, sentence, wide};
use super::{Listed, RenderOptions};

/// What one agent said last.
#[derive(Clone, Debug, Serialize)]
pub struct Receipt {
    pub agent: String,
    pub state: State,
    /// When everything was seen to be gone; none while it is owed.
    pub gone_at: Option<Timestamp>,
    /// How many objects went.
    pub objects: u32,
    /// Which they were, as far as the agent named them.
    pub gone: Vec<Gone>,
    /// What was not deleted, and why.
    pub left: Vec<ObjectNote>,
    pub message: String,
}

/// An object that was seen to be gone, with the uid that it had.
#[derive(Clone, Debug, Serialize)]
pub struct Gone {
    pub object: String,
    pub uid: String,
}

/// Of the agents that had something of it, or still have.
pub fn receipts(rows: &[StackStatus]) -> Vec<Receipt> {
    let receipt = |row: &StackStatus| {
        let is_gone = row.state == State::Removed;
        Receipt {
            agent: row.agent_name.clone(),
            state: row.state,
            gone_at: row.hops.pruned.or(row.hops.reported).filter(|_| is_gone),
            objects: if is_gone { row.total } else { 0 },
            gone: row
                .objects
                .iter()
                .filter(|note| is_gone && note.reason == GONE)
                .map(|note| Gone { object: note.object.clone(), uid: note.message.clone() })
                .collect(),
            left: row.objects.iter().filter(|note| is_gone && note.reason != GONE).cloned().collect(),
            message: message(row),
        }
    };
    rows.iter().map(receipt).collect()
}

impl Listed for Receipt {
    const NONE: &'static str = "no agent had anything of it";

    fn table<'a>(receipts: &[Self], options: &'a RenderOptions) -> Table<'a> {
        let columns = [
            plain("AGENT"),
            plain("STATE"),
            plain("OBJECTS"),
            plain("SEEN GONE"),
            sentence("LEFT"),
            wide("LAST UIDS"),
            wide("STATE-OF-AGENT"),
        ];
        let mut table = Table::new(options, &columns);
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
            let objects = receipt.gone_at.map_or_else(|| "-".to_owned(), |_| receipt.objects.to_string());
            let uids: Vec<String> =
                receipt.gone.iter().map(|gone| format!("{} {}", gone.object, gone.uid)).collect();
            table.row([
                receipt.agent.clone().into(),
                state,
                objects.into(),
                gone_at.into(),
                left.into(),
                uids.join(", ").into(),
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
    use super::super::samples::{ago, failed_row, rendered, row};
    use super::super::whole;
    use super::*;

    #[test]
    fn receipts() {
        let mut gone = row("eu-1", 50, 50, State::Removed);
        gone.hops.pruned = Some(ago(3));
        gone.total = 2;
        gone.objects = ["Deployment shop/web", "Namespace shop"]
            .map(|object| ObjectNote {
                object: object.into(),
                reason: GONE.into(),
                message: "0190c0de-0000-7000-8000-000000000001".into(),
            })
            .into();
        let mut left = gone.clone();
        left.agent_name = "eu-2".into();
        left.objects = failed_row("x").objects;
        left.objects[0].message = "it belongs to somebody else by now".into();
        let mut stuck = row("us-1", 50, 50, State::Blocked);
        stuck.reason = "Finalizers".into();
        stuck.message = "ConfigMap shop/web waits for the finalizer example.com/keep".into();
        let away = row("store-0412", 50, 42, State::Removing);
        insta::assert_snapshot!(rendered(&whole(super::receipts(&[gone, left, stuck, away]))));
    }
}

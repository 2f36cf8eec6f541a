//! Receipts of a deletion: for each agent, removed or pending.

use brokkr_api::reason::{ObjectRef, Reason};
use brokkr_api::report::ObjectNote;
use brokkr_api::status::{StackStatus, State};
use jiff::Timestamp;
use serde::Serialize;

use super::Listed;
use super::status::message;
use super::table::{CAREFUL, GOOD, Table, painted};
use super::text::{joined, or_dash};

/// The last report of one agent.
#[derive(Clone, Debug, Serialize)]
pub struct Receipt {
    pub agent: String,
    pub state: State,
    /// When the removal was observed; none while it is pending.
    pub gone_at: Option<Timestamp>,
    /// Number of removed objects.
    pub objects: u32,
    /// The removed objects that the agent named.
    pub gone: Vec<RemovedObject>,
    /// Objects that were not deleted, and why.
    pub left: Vec<ObjectNote>,
    pub message: String,
}

/// A removed object with its last uid.
#[derive(Clone, Debug, Serialize)]
pub struct RemovedObject {
    pub object: ObjectRef,
    pub uid: String,
}

/// Returns the receipts of all agents that had the stack.
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
                .filter(|_| is_gone)
                .filter_map(|note| match &note.reason {
                    Reason::Gone { uid } => {
                        Some(RemovedObject { object: note.object.clone(), uid: uid.clone() })
                    }
                    _ => None,
                })
                .collect(),
            left: row
                .objects
                .iter()
                .filter(|note| is_gone && !matches!(note.reason, Reason::Gone { .. }))
                .cloned()
                .collect(),
            message: message(row),
        }
    };
    rows.iter().map(receipt).collect()
}

impl Listed for Receipt {
    const NONE: &'static str = "the stack was on no agent";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        table
            .plain("AGENT", |receipt| &receipt.agent)
            .plain("STATE", |receipt| match receipt.state {
                State::Removed => painted("removed", GOOD),
                _ => painted("pending", CAREFUL),
            })
            .plain("OBJECTS", |receipt| or_dash(receipt.gone_at.map(|_| receipt.objects)))
            .plain("REMOVED AT", |receipt| or_dash(receipt.gone_at.map(|at| format!("{at:.0}"))))
            .sentence("LEFT", left)
            .wide("LAST UIDS", |receipt| {
                joined(&receipt.gone, ", ", |gone| format!("{} {}", gone.object, gone.uid))
            })
            .wide("REPORTED STATE", |receipt| receipt.state)
    }

    fn name(&self) -> String {
        format!("agent/{}", self.agent)
    }
}

/// Returns the objects that stay, or why there is no removal yet.
fn left(receipt: &Receipt) -> String {
    match receipt.left.as_slice() {
        [] if receipt.state == State::Removed => "nothing".to_owned(),
        [] if receipt.message.is_empty() => "not reported yet".to_owned(),
        [] => receipt.message.clone(),
        notes => joined(notes, "; ", |note| format!("{}: {}", note.object, note.message)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{ago, failed_row, object_ref, rendered, row};
    use super::super::whole;
    use super::*;

    #[test]
    fn receipts() {
        let mut gone = row("eu-1", 50, 50, State::Removed);
        gone.hops.pruned = Some(ago(3));
        gone.total = 2;
        gone.objects = [object_ref("Deployment", "web"), object_ref("Service", "web")]
            .map(|object| ObjectNote {
                object,
                reason: Reason::Gone { uid: "0190c0de-0000-7000-8000-000000000001".into() },
                message: "".into(),
            })
            .into();
        let mut left = gone.clone();
        left.agent_name = "eu-2".into();
        left.objects = failed_row("x").objects;
        left.objects[0].message = "it belongs to another owner".into();
        let mut stuck = row("us-1", 50, 50, State::Blocked);
        stuck.reason = Reason::Finalizer { finalizers: vec!["example.com/keep".into()] };
        stuck.message = "ConfigMap shop/web waits for the finalizer example.com/keep".into();
        let away = row("store-0412", 50, 42, State::Removing);
        insta::assert_snapshot!(rendered(&whole(super::receipts(&[gone, left, stuck, away]))));
    }
}

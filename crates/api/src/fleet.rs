//! Views of a fleet: which agents have what they should have, by stack and by label.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::agents::Why;
use crate::ids::{AgentId, Checksum, SequenceId, StackId};
use crate::names::Name;
use crate::position::Position;
use crate::status::{ErrorGroup, StackStatus};

/// The maximum number of rows, and of columns, of a matrix.
pub const MATRIX_SIDE: usize = 60;
/// The maximum number of values that are listed for each key, unless a request names one key.
pub const TOP_VALUES: usize = 20;
/// The maximum number of results of each kind.
pub const SEARCH_RESULTS: usize = 20;

/// How much of what agents have reported a view reflects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ViewFreshness {
    /// False while the replica, after its start, still loads what agents have reported. Until then, agents are counted as pending of
    /// which the report is not loaded.
    pub complete: bool,
    /// The view contains everything that was stored by then; absent until it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Timestamp>,
    /// The same, to compare the views of two replicas.
    #[serde(with = "position_text")]
    #[schema(value_type = String)]
    pub position: Position,
}

/// A position as everywhere else on the wire: `epoch.horizon`.
mod position_text {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::position::{Position, PositionToken};

    pub fn serialize<S: Serializer>(position: &Position, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(position)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Position, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse::<PositionToken>().map(|token| token.position).map_err(serde::de::Error::custom)
    }
}

/// The agents of the stacks of a project, each counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetAgents {
    /// Active agents that at least one stack reaches.
    pub agents: u64,
    /// Have what they should have of every stack.
    pub on_intent: u64,
    /// Have not reported yet that they have what they should have.
    pub pending: u64,
    /// At least one stack failed or is degraded.
    pub failing: u64,
    /// A removal or a prune is blocked, and no stack is failing.
    pub blocked: u64,
    /// Report a state that this broker does not know.
    pub unknown: u64,
    /// No longer poll, so that what they last reported may no longer be true.
    pub silent: u64,
}

/// Whether a fleet is well, and what needs attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetSummary {
    #[serde(flatten)]
    pub freshness: ViewFreshness,
    /// Stacks with a version that are not deleted.
    pub stacks: u64,
    #[serde(flatten)]
    pub counts: FleetAgents,
    /// The errors that occur most often, largest group first.
    pub needs_attention: Vec<ErrorGroup>,
}

/// The agents of one stack with one value of a label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetCell {
    /// Active agents that the stack reaches. The next five numbers add up to this one.
    pub agents: u64,
    /// Have what they should have: it is ready or, if the stack is being deleted, removed.
    pub on_intent: u64,
    /// Have not reported yet that they have what they should have.
    pub pending: u64,
    /// Failed or degraded.
    pub failing: u64,
    /// A removal or a prune is blocked.
    pub blocked: u64,
    /// Report a state that this broker does not know.
    pub unknown: u64,
    /// No longer poll; they are also counted above, by their last report.
    pub silent: u64,
    /// Have last reported about the newest version.
    pub current: u64,
    /// Have last reported about an older version.
    pub older: u64,
}

impl FleetCell {
    /// Adds the agents of another cell.
    pub fn add(&mut self, other: &Self) {
        self.agents += other.agents;
        self.on_intent += other.on_intent;
        self.pending += other.pending;
        self.failing += other.failing;
        self.blocked += other.blocked;
        self.unknown += other.unknown;
        self.silent += other.silent;
        self.current += other.current;
        self.older += other.older;
    }
}

/// Which agents a column of a matrix contains.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FleetColumn {
    /// All agents: the request names no label.
    All,
    /// Agents with this value.
    Value { value: String },
    /// Agents without the label.
    Unset,
    /// Agents with any other value: there are more values than columns.
    Other,
}

/// One stack of a matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetRow {
    /// Absent in the last row, if it adds up the stacks that have no row of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_id: Option<StackId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_name: Option<String>,
    /// The newest version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_id: Option<SequenceId>,
    /// The number of stacks in this row.
    pub stacks: u64,
    /// One for each column.
    pub cells: Vec<FleetCell>,
}

/// Stacks by the values of a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetMatrix {
    #[serde(flatten)]
    pub freshness: ViewFreshness,
    /// The most frequent values in alphabetical order, then agents without the label, then those with any other value.
    pub columns: Vec<FleetColumn>,
    /// The stacks with the most agents, by name; then all others together.
    pub rows: Vec<FleetRow>,
}

impl FleetMatrix {
    /// Returns whether both have the same rows and columns, whatever is in the cells and which versions are the newest.
    #[must_use]
    pub fn has_axes_of(&self, other: &Self) -> bool {
        let row = |row: &FleetRow| (row.stack_id, row.stacks);
        self.columns == other.columns
            && self.rows.iter().map(row).eq(other.rows.iter().map(row))
            && self.rows.iter().map(|row| &row.stack_name).eq(other.rows.iter().map(|row| &row.stack_name))
    }

    /// Returns what is not the same in a matrix with the same rows and columns.
    #[must_use]
    pub fn changed_since(&self, before: &Self) -> FleetChanges {
        let mut changes = FleetChanges { freshness: self.freshness, cells: Vec::new(), versions: Vec::new() };
        for (row, (now, before)) in self.rows.iter().zip(&before.rows).enumerate() {
            if now.sequence_id != before.sequence_id {
                changes.versions.push(ChangedVersion { row, sequence_id: now.sequence_id });
            }
            for (column, (cell, before)) in now.cells.iter().zip(&before.cells).enumerate() {
                if cell != before {
                    changes.cells.push(ChangedCell { row, column, cell: *cell });
                }
            }
        }
        changes
    }
}

/// A cell of the last matrix that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangedCell {
    /// Counted from zero.
    pub row: usize,
    /// Counted from zero.
    pub column: usize,
    #[serde(flatten)]
    pub cell: FleetCell,
}

/// The newest version of a row of the last matrix that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangedVersion {
    /// Counted from zero.
    pub row: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_id: Option<SequenceId>,
}

/// What has changed since the message before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetChanges {
    #[serde(flatten)]
    pub freshness: ViewFreshness,
    pub cells: Vec<ChangedCell>,
    pub versions: Vec<ChangedVersion>,
}

impl FleetChanges {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.versions.is_empty()
    }
}

/// A key of labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LabelKey {
    pub key: String,
    /// Agents with this key.
    pub agents: u64,
    /// The number of different values.
    pub values: u64,
    /// The most frequent values, of which the agents are counted.
    pub top: Vec<LabelValue>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LabelValue {
    pub value: String,
    pub agents: u64,
}

/// What a search has found, the best matches of each kind first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SearchResults {
    pub agents: Vec<FoundAgent>,
    pub stacks: Vec<FoundStack>,
    /// Versions that agents may have now, by the first digits of their checksums.
    pub versions: Vec<FoundVersion>,
    /// Whether more was found than these lists have room for.
    pub more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FoundAgent {
    pub id: AgentId,
    pub name: Name,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FoundStack {
    pub id: StackId,
    pub name: Name,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FoundVersion {
    pub stack_id: StackId,
    pub stack_name: Name,
    pub sequence_id: SequenceId,
    pub checksum: Checksum,
}

/// A stack that reaches an agent, or that the agent still holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentStack {
    /// The version that the agent should have, and its last report.
    pub status: StackStatus,
    /// Why the stack reaches the agent; empty if it does not.
    pub because: Vec<Why>,
    /// Whether the agent holds resources of the stack.
    pub holds: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(agents: [u64; 2]) -> FleetMatrix {
        let cells = agents.map(|agents| FleetCell { agents, ..FleetCell::default() });
        FleetMatrix {
            freshness: ViewFreshness::default(),
            columns: vec![FleetColumn::Value { value: "eu".into() }, FleetColumn::Unset],
            rows: vec![FleetRow {
                stack_id: None,
                stack_name: None,
                sequence_id: None,
                stacks: 1,
                cells: cells.to_vec(),
            }],
        }
    }

    #[test]
    fn a_position_is_one_text() {
        let position = Position { epoch: 1, horizon: 7350 };
        let freshness = ViewFreshness { complete: true, as_of: None, position };
        let text = serde_json::to_string(&freshness).unwrap();
        assert_eq!(text, r#"{"complete":true,"position":"1.7350"}"#);
        assert_eq!(serde_json::from_str::<ViewFreshness>(&text).unwrap(), freshness);
    }

    #[test]
    fn only_changed_cells_are_named() {
        let (before, after) = (matrix([1, 2]), matrix([1, 3]));
        assert!(after.has_axes_of(&before));
        let changed = after.changed_since(&before).cells;
        assert_eq!(changed.len(), 1);
        assert_eq!((changed[0].row, changed[0].column, changed[0].cell.agents), (0, 1, 3));
        assert!(after.changed_since(&after).is_empty());
        let mut other = after.clone();
        other.rows[0].sequence_id = Some(SequenceId(7));
        assert!(other.has_axes_of(&after), "another version is no other row");
        let text = serde_json::to_string(&other.changed_since(&after)).unwrap();
        assert!(text.ends_with(r#""cells":[],"versions":[{"row":0,"sequence_id":7}]}"#), "{text}");
    }
}

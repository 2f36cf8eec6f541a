//! What the reconciler says of itself when it is asked: numbers, from what it knows anyway.

use std::collections::BTreeMap;

use brokkr_api::report::{ConditionKind, ConditionStatus};
use strum::IntoEnumIterator as _;

use super::Reconciler;

/// Where a stack is, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum State {
    /// Nothing was said of it since this run began.
    Idle,
    Delivering,
    /// It stopped, or something of it fails and is tried again.
    Failing,
    /// Written, and something is not ready.
    Unready,
    Healthy,
    Removing,
}

/// How things are at one moment.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub stacks: BTreeMap<State, i64>,
    pub conditions: BTreeMap<(ConditionKind, ConditionStatus), i64>,
    pub objects: usize,
    pub watches: usize,
    pub unsynced: usize,
    pub active: bool,
    /// The target state was heard, or it goes on without.
    pub aimed: bool,
    /// Why nothing is written, if it had to stop.
    pub stood_down: Option<&'static str>,
}

impl Figures {
    /// Every series, each at nothing: what comes and goes cannot be watched.
    #[must_use]
    pub fn none() -> Self {
        let mut none = Self { stacks: State::iter().map(|state| (state, 0)).collect(), ..Self::default() };
        for kind in ConditionKind::iter() {
            none.conditions.extend(ConditionStatus::iter().map(|status| ((kind, status), 0)));
        }
        none
    }
}

impl Reconciler {
    pub(super) fn figures(&self) -> Figures {
        let mut figures = Figures {
            watches: self.watches.count(),
            unsynced: self.watches.kept().saturating_sub(self.board.index.complete_parts()),
            active: self.active,
            aimed: self.aimed,
            stood_down: self.stood_down,
            ..Figures::none()
        };
        for stack in self.board.stacks.values() {
            *figures.stacks.entry(stack.state()).or_default() += 1;
            let Some(record) = &stack.record else { continue };
            figures.objects += record.inventory.len();
            for condition in &record.conditions {
                *figures.conditions.entry((condition.kind, condition.status)).or_default() += 1;
            }
        }
        figures
    }
}

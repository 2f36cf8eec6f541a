//! What the reconciler says of itself when it is asked: numbers, from what it knows anyway.

use std::collections::BTreeMap;

use brokkr_api::report::{ConditionKind, ConditionStatus};
use strum::IntoEnumIterator as _;

/// Where a stack is, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum StackPhase {
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
pub struct Counts {
    pub stacks: BTreeMap<StackPhase, i64>,
    pub conditions: BTreeMap<(ConditionKind, ConditionStatus), i64>,
    pub objects: usize,
    pub watches: usize,
    pub unsynced: usize,
    pub active: bool,
    /// The target state was heard, or it goes on without.
    pub has_target_state: bool,
    /// Why nothing is written, if it had to stop.
    pub writes_suspended: Option<&'static str>,
}

impl Counts {
    /// Every series, each at nothing: what comes and goes cannot be watched.
    #[must_use]
    pub fn none() -> Self {
        let mut none =
            Self { stacks: StackPhase::iter().map(|state| (state, 0)).collect(), ..Self::default() };
        for kind in ConditionKind::KNOWN {
            none.conditions.extend(ConditionStatus::iter().map(|status| ((kind.clone(), status), 0)));
        }
        none
    }
}

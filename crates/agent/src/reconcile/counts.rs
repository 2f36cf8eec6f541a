//! The state of the reconciler in numbers, for metrics and health checks.

use std::collections::BTreeMap;

use brokkr_api::report::{ConditionKind, ConditionStatus};
use strum::IntoEnumIterator as _;

/// The phase of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum StackPhase {
    /// Without a target from the broker since the agent started.
    Idle,
    Delivering,
    /// Stopped, or retrying a failed request.
    Failing,
    /// Applied, but not everything is ready.
    Unready,
    Healthy,
    Removing,
}

/// A snapshot of the counts.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub stacks: BTreeMap<StackPhase, i64>,
    pub conditions: BTreeMap<(ConditionKind, ConditionStatus), i64>,
    pub objects: usize,
    pub watches: usize,
    /// Watches without a complete list.
    pub unsynced: usize,
    pub active: bool,
    /// A target state was received, or the agent continues without one.
    pub has_target_state: bool,
    /// Why writes are suspended, if they are.
    pub writes_suspended: Option<&'static str>,
    /// Stacks with a target whose objects were not compared with it since the start.
    pub uncompared: usize,
    /// Reports that the broker has not acknowledged yet.
    pub unacknowledged: usize,
}

impl Counts {
    /// Returns whether everything was compared with the target state once, and the broker knows the result.
    #[must_use]
    pub fn has_compared_everything(&self) -> bool {
        self.has_target_state
            && self.writes_suspended.is_none()
            && self.unsynced + self.uncompared + self.unacknowledged == 0
    }

    /// Returns every series with the value zero, so that series do not appear and disappear.
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

//! Duration and outcome of reconciliations, for metrics only.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use brokkr_api::StackId;

use crate::model::Stage;

/// The outcome of a reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// Everything is applied and pruned.
    Applied,
    /// Stopped; tried again later.
    Failed,
    /// The stack is removed.
    Removed,
}

/// The running reconciliations, with their start.
#[derive(Debug, Default)]
pub struct Passes {
    begun: BTreeMap<StackId, Instant>,
}

impl Passes {
    /// Notes the stage of a stack. Returns the outcome, if the reconciliation ended.
    pub fn note(&mut self, stack: StackId, stage: Stage, now: Instant) -> Option<(Outcome, Duration)> {
        match stage {
            Stage::Steady => self.end(stack, Outcome::Applied, now),
            Stage::Stopped => self.end(stack, Outcome::Failed, now),
            _ => {
                self.begun.entry(stack).or_insert(now);
                None
            }
        }
    }

    /// Ends the reconciliation of a stack, and returns its outcome; none if no reconciliation is running.
    pub fn end(&mut self, stack: StackId, outcome: Outcome, now: Instant) -> Option<(Outcome, Duration)> {
        let begun = self.begun.remove(&stack)?;
        Some((outcome, now.duration_since(begun)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reconciliation_ends_once_even_if_the_stack_is_planned_again() {
        let (mut passes, stack, begin) = (Passes::default(), StackId(uuid::Uuid::nil()), Instant::now());
        let second = |number| begin + Duration::from_secs(number);
        assert_eq!(passes.note(stack, Stage::Fetch, begin), None);
        assert_eq!(passes.note(stack, Stage::Apply, second(1)), None);
        let ended = passes.note(stack, Stage::Steady, second(3));
        assert_eq!(ended, Some((Outcome::Applied, Duration::from_secs(3))));
        assert_eq!(passes.note(stack, Stage::Steady, second(4)), None, "a repair is not a reconciliation");
        assert_eq!(passes.note(stack, Stage::Inspect, second(5)), None);
        let ended = passes.note(stack, Stage::Stopped, second(6));
        assert_eq!(ended, Some((Outcome::Failed, Duration::from_secs(1))));
        assert_eq!(passes.end(stack, Outcome::Removed, second(7)), None);
    }
}

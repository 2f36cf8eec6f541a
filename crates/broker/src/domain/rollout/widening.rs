//! When agents that a stack gains by other targets get its version in waves.

/// How many agents a stack gains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gain {
    /// Agents that the new targets reach.
    pub members: u64,
    /// Those that the targets so far do not reach.
    pub new: u64,
    /// Those that were not reached before the stack was widened, if a widening has not completed; otherwise the new ones.
    pub waiting: u64,
}

/// The rollout of the stack that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderWay {
    Version,
    Widening,
    /// A widening that is paused or stopped.
    HeldWidening,
}

/// What agents that the stack gains get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The version that every agent gets, at once.
    AtOnce,
    /// That version in waves: begin a widening.
    InWaves,
    /// Nothing before the version that is being rolled out.
    NextVersion,
    /// What the widening that there is gives them.
    Unchanged,
    /// The targets may not change: a user has to decide about the widening first.
    Refused,
}

impl Gain {
    /// Decides what the gained agents get. At most `limit` may get the version at the same time without proof that it works there.
    /// `is_widened` says whether a widening of the version has not completed.
    #[must_use]
    pub fn delivery(self, limit: u64, is_widened: bool, under_way: Option<UnderWay>) -> Delivery {
        if self.waiting == 0 || !is_widened && self.new <= limit {
            return Delivery::AtOnce;
        }
        match under_way {
            // A stack has one rollout at a time, and all targets are members of that of a version.
            Some(UnderWay::Version) if is_widened => Delivery::Unchanged,
            Some(UnderWay::Version) => Delivery::NextVersion,
            // A few more agents join it. Many would not all be behind its mark.
            Some(UnderWay::Widening | UnderWay::HeldWidening) if self.new <= limit => Delivery::Unchanged,
            // To begin it again would release the version without a `resume`.
            Some(UnderWay::HeldWidening) => Delivery::Refused,
            Some(UnderWay::Widening) | None => Delivery::InWaves,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gain(new: u64, waiting: u64) -> Gain {
        Gain { members: 100, new, waiting }
    }

    #[test]
    fn h7_many_gained_agents_get_the_version_in_waves_and_few_at_once() {
        for (new, expected) in [(0, Delivery::AtOnce), (10, Delivery::AtOnce), (11, Delivery::InWaves)] {
            assert_eq!(gain(new, new).delivery(10, false, None), expected, "{new} agents");
        }
        let during_rollout = |new| gain(new, new).delivery(10, false, Some(UnderWay::Version));
        assert_eq!((during_rollout(10), during_rollout(11)), (Delivery::AtOnce, Delivery::NextVersion));
    }

    #[test]
    fn h7_the_same_targets_change_nothing_and_more_agents_begin_a_widening_again() {
        let widening = Some(UnderWay::Widening);
        for (new, expected) in [(0, Delivery::Unchanged), (10, Delivery::Unchanged), (11, Delivery::InWaves)]
        {
            assert_eq!(gain(new, 50).delivery(10, true, widening), expected, "{new} agents");
        }
        let held = |new| gain(new, 50).delivery(10, true, Some(UnderWay::HeldWidening));
        assert_eq!((held(10), held(11)), (Delivery::Unchanged, Delivery::Refused));
        assert_eq!(gain(50, 90).delivery(10, true, Some(UnderWay::Version)), Delivery::Unchanged);
        assert_eq!(gain(0, 50).delivery(10, true, None), Delivery::InWaves, "it was aborted or superseded");
        assert_eq!(gain(0, 0).delivery(10, true, widening), Delivery::AtOnce, "the targets are as before");
    }
}

//! Bugs that can be put in on purpose, to see that tests find them. Only an agent that was built with the feature
//! `seeded-bugs`, and told by `BROKKR_SEEDED_BUG` which one to have, has any.

/// A bug that somebody could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Bug {
    /// Whatever has the name is deleted.
    DeleteWithoutUid,
    /// What the broker does not mention is removed.
    PruneOnEmptyList,
    /// Applied is told when it is intended.
    ReportBeforeApply,
    OlderSequenceAccepted,
    /// Whose an object is, is read from what the watch told, not from the object.
    OwnerCheckOnCachedCopy,
    InventoryAfterApply,
}

/// Whether this agent is to have it.
#[cfg(feature = "seeded-bugs")]
#[must_use]
pub fn has(bug: Bug) -> bool {
    std::env::var("BROKKR_SEEDED_BUG").is_ok_and(|name| name == bug.to_string())
}

#[cfg(not(feature = "seeded-bugs"))]
#[must_use]
pub const fn has(_: Bug) -> bool {
    false
}

//! Bugs that can be put in on purpose, to see that tests find them. Only a broker that was built with the feature
//! `seeded-bugs`, and told by `BROKKR_SEEDED_BUG` which one to have, has any.

/// A bug that somebody could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The outbox is read up to the highest transaction instead of the lowest open one.
    GlobalCursor,
    /// A report that is sent again does not meet its twin: it is stored under the time of its arrival.
    EventWithoutUniqueKey,
    /// A repeated request is a new one.
    RetryWithoutIdempotencyKey,
    /// Who once had a lease goes on as if it had it still.
    LockWithoutFence,
    /// Messages to webhooks are stored by themselves, whatever becomes of what they tell.
    WebhookOutsideTransaction,
}

impl Bug {
    /// As `BROKKR_SEEDED_BUG` names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::GlobalCursor => "global-cursor",
            Self::EventWithoutUniqueKey => "event-without-unique-key",
            Self::RetryWithoutIdempotencyKey => "retry-without-idempotency-key",
            Self::LockWithoutFence => "lock-without-fence",
            Self::WebhookOutsideTransaction => "webhook-outside-transaction",
        }
    }
}

/// Whether this broker is to have it.
#[cfg(feature = "seeded-bugs")]
#[must_use]
pub fn has(bug: Bug) -> bool {
    std::env::var("BROKKR_SEEDED_BUG").is_ok_and(|name| name == bug.name())
}

#[cfg(not(feature = "seeded-bugs"))]
#[must_use]
pub const fn has(_: Bug) -> bool {
    false
}

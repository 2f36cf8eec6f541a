//! Intervals and time limits.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::backoff::Backoff;

const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// How long a finalizer may block a deletion before it is reported.
pub const BLOCKED_AFTER: SignedDuration = SignedDuration::from_secs(3);
/// The same for waits that usually just take time: the deletion of a namespace, the start of a watch.
pub const SLOW_AFTER: SignedDuration = SignedDuration::from_secs(20);
/// How often to check a deletion that is blocked for long.
pub const SLOW_CHECKS: SignedDuration = SignedDuration::from_secs(10);
/// How often to check whether an object is gone, or whether another stack keeps it, if no event reports that.
pub const RELEASE_CHECKS: SignedDuration = SignedDuration::from_secs(1);
/// How long a Namespace or definition may take to become ready.
pub const PREREQUISITE_TIMEOUT: SignedDuration = SignedDuration::from_secs(60);
/// After this time, a stopped stack is retried from the start.
pub const NEXT_CYCLE: SignedDuration = SignedDuration::from_secs(300);
/// The same if rights are missing or the fence refused a write. Shorter, because an API server that has just started
/// refuses all requests for some seconds.
pub const RIGHTS_CYCLE: SignedDuration = SignedDuration::from_secs(30);
/// How long transient errors are retried before they are reported.
pub const TRANSIENT_PATIENCE: SignedDuration = SignedDuration::from_secs(300);
/// How long a prerequisite (a namespace or a kind) may be missing before that is reported.
pub const MISSING_PATIENCE: SignedDuration = SignedDuration::from_secs(3);
/// A step that waits for a prerequisite is retried after this, even without an event.
pub const PARKED: SignedDuration = SignedDuration::from_secs(600);
/// Repairs are reported together, at most this often.
pub const REPAIR_REPORTS: SignedDuration = SignedDuration::from_secs(30);
/// How long a healthy stack may be unready before it counts as degraded.
pub const DEGRADED_AFTER: SignedDuration = SignedDuration::from_secs(5);

/// How long applied workloads may take to become ready before a report says what they wait for.
pub const SLOW_ROLLOUT: SignedDuration = SignedDuration::from_secs(8);
/// How long a probe may fail, an init container may run, or a Pod may wait for a node, before that counts as
/// a failure.
pub const ORDINARY_START: SignedDuration = SignedDuration::from_secs(15);
/// A changed reason of the same state is reported at most this often.
pub const REASON_REPORTS: SignedDuration = SignedDuration::from_secs(10);
/// After a crash, workloads must be ready for this long before the stack counts as healthy again.
pub const STABLE_AFTER_CRASH: SignedDuration = SignedDuration::from_secs(120);

/// The longest Retry-After that is obeyed.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(300);

/// D2: returns the delay after failed attempts: 1 s first, doubled, 60 s at most, unless the Retry-After is
/// longer.
#[must_use]
pub fn backoff(attempts: u32, retry_after: Option<Duration>) -> SignedDuration {
    let delay = BACKOFF.delay(attempts.max(1)).max(retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER));
    SignedDuration::try_from(delay).unwrap_or(SignedDuration::from_secs(60))
}

/// Returns whether a time has come.
#[must_use]
pub fn due(at: Timestamp, now: Timestamp) -> bool {
    at <= now
}

//! Deletes expired rows. Every replica does it; repeating it does nothing.
//!
//! An outbox row expires an hour after it became readable. That may be long after it was written: as long as
//! a transaction is open anywhere on the server, rows that committed after its start stay above the horizon.
//! So each round records the horizon, and only rows below a horizon that was recorded an hour ago are
//! deleted.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::store::StoreError;
use crate::store::api_tokens::api_token_delete_expired;
use crate::store::history_marks::history_mark_delete_old;
use crate::store::idempotency_keys::idempotency_key_delete_old;
use crate::store::join_tokens::join_token_delete_expired;
use crate::store::outbox::{outbox_delete_below, outbox_snapshot};
use crate::store::sessions::session_delete_ended;

const EVERY: Duration = Duration::from_secs(60);
/// How long outbox rows stay readable. A tail that is further behind reloads everything.
const READABLE: Duration = Duration::from_secs(3600);
const IDEMPOTENCY_KEY_SECONDS: f64 = 24.0 * 3600.0;
/// How long expired and revoked tokens are still listed.
const EXPIRED_TOKEN_SECONDS: f64 = 30.0 * 24.0 * 3600.0;

pub async fn run(pool: PgPool, stop: CancellationToken) {
    let mut horizons = Horizons::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        if let Err(error) = clean_up(&pool, &mut horizons).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, "failed to delete expired rows; will retry");
        }
    }
}

async fn clean_up(pool: &PgPool, horizons: &mut Horizons) -> Result<(), StoreError> {
    let snapshot = outbox_snapshot(pool).await?;
    // Taken after the query, so that it is not earlier than the moment when rows below the horizon became
    // readable.
    let now = Instant::now();
    horizons.record(now, snapshot.epoch, snapshot.horizon);
    let outbox_rows = match horizons.readable_long_enough(now) {
        Some(horizon) => outbox_delete_below(pool, horizon).await?,
        None => 0,
    };
    let idempotency_keys = idempotency_key_delete_old(pool, IDEMPOTENCY_KEY_SECONDS).await?;
    let tokens = api_token_delete_expired(pool, EXPIRED_TOKEN_SECONDS).await?
        + join_token_delete_expired(pool, EXPIRED_TOKEN_SECONDS).await?;
    let sessions = session_delete_ended(pool).await?;
    let marks = history_mark_delete_old(pool).await?;
    if outbox_rows + idempotency_keys + tokens + sessions + marks > 0 {
        tracing::debug!(outbox_rows, idempotency_keys, tokens, sessions, marks, "deleted expired rows");
    }
    Ok(())
}

/// Samples of the horizon, oldest first.
#[derive(Debug, Default)]
struct Horizons {
    epoch: i64,
    samples: VecDeque<(Instant, u64)>,
}

impl Horizons {
    /// Adds a sample. Samples of another history, before a restore, are dropped.
    fn record(&mut self, at: Instant, epoch: i64, horizon: u64) {
        let went_back = self.samples.back().is_some_and(|(_, last)| horizon < *last);
        if went_back || epoch != self.epoch {
            self.samples.clear();
        }
        self.epoch = epoch;
        self.samples.push_back((at, horizon));
    }

    /// Returns the highest horizon below which everything has been readable for long enough. Drops older samples.
    fn readable_long_enough(&mut self, now: Instant) -> Option<u64> {
        let old = |at: Instant| now.saturating_duration_since(at) >= READABLE;
        while self.samples.get(1).is_some_and(|(at, _)| old(*at)) {
            self.samples.pop_front();
        }
        self.samples.front().filter(|(at, _)| old(*at)).map(|(_, horizon)| *horizon)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn rows_are_deleted_an_hour_after_they_became_readable() {
        let (start, mut horizons) = (Instant::now(), Horizons::default());
        // A transaction is open for two hours from the start: the horizon stays at 100, and rows accumulate above it.
        for minute in 0..120 {
            let now = start + MINUTE * minute;
            horizons.record(now, 1, 100);
            let expected = (minute >= 60).then_some(100);
            assert_eq!(horizons.readable_long_enough(now), expected, "minute {minute}");
        }
        assert!(horizons.samples.len() <= 61, "samples are dropped: {}", horizons.samples.len());
        for minute in 120..240 {
            let now = start + MINUTE * minute;
            horizons.record(now, 1, 5000);
            let expected = if minute < 180 { 100 } else { 5000 };
            assert_eq!(horizons.readable_long_enough(now), Some(expected), "minute {minute}");
        }
    }

    #[test]
    fn samples_from_before_a_restore_are_dropped() {
        let (start, mut horizons) = (Instant::now(), Horizons::default());
        for (epoch, horizon) in [(1, 900), (1, 400), (2, 950)] {
            horizons.record(start, epoch, horizon);
            assert_eq!(horizons.samples.len(), 1);
        }
        assert_eq!(horizons.readable_long_enough(start + READABLE), Some(950));
    }
}

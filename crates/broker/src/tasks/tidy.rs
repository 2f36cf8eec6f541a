//! Deletes what has had its time. Every replica does it; doing it twice does nothing.
//!
//! A row of the outbox has its time from when it can be read, which is not when it was written: as long as
//! a transaction is open anywhere on the server, what committed after it is above the horizon. So the
//! horizon is noted at each round, and only what is below an old one goes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::store::StoreError;
use crate::store::api_tokens::api_token_delete_dead;
use crate::store::idempotency_keys::idempotency_key_delete_old;
use crate::store::join_tokens::join_token_delete_dead;
use crate::store::outbox::{outbox_delete_below, outbox_snapshot};

const EVERY: Duration = Duration::from_secs(60);
/// How long rows can be read. A tail that is further behind loads anew.
const READABLE: Duration = Duration::from_secs(3600);
const KEY_SECONDS: f64 = 24.0 * 3600.0;
/// Tokens that are no longer valid can be looked at for this long.
const DEAD_TOKEN_SECONDS: f64 = 30.0 * 24.0 * 3600.0;

pub async fn run(pool: PgPool, stop: CancellationToken) {
    let mut horizons = Horizons::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        if let Err(error) = tidy(&pool, &mut horizons).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, "tidying waits for the next time");
        }
    }
}

async fn tidy(pool: &PgPool, horizons: &mut Horizons) -> Result<(), StoreError> {
    let snapshot = outbox_snapshot(pool).await?;
    // After the look: what is below the horizon was readable by then at the latest.
    let now = Instant::now();
    horizons.note(now, snapshot.epoch, snapshot.horizon);
    let rows = match horizons.readable_long_enough(now) {
        Some(horizon) => outbox_delete_below(pool, horizon).await?,
        None => 0,
    };
    let keys = idempotency_key_delete_old(pool, KEY_SECONDS).await?;
    let tokens = api_token_delete_dead(pool, DEAD_TOKEN_SECONDS).await?
        + join_token_delete_dead(pool, DEAD_TOKEN_SECONDS).await?;
    if rows + keys + tokens > 0 {
        tracing::debug!(rows, keys, tokens, "tidied");
    }
    Ok(())
}

/// Where the horizon was, and when; oldest first.
#[derive(Debug, Default)]
struct Horizons {
    epoch: i64,
    samples: VecDeque<(Instant, u64)>,
}

impl Horizons {
    /// What was noted of another history, before a restore, says nothing about this one.
    fn note(&mut self, at: Instant, epoch: i64, horizon: u64) {
        let back = self.samples.back().is_some_and(|(_, last)| horizon < *last);
        if back || epoch != self.epoch {
            self.samples.clear();
        }
        self.epoch = epoch;
        self.samples.push_back((at, horizon));
    }

    /// The highest horizon below which everything has been readable for long enough. Drops older samples.
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
    fn rows_go_an_hour_after_they_became_readable_however_long_they_had_to_wait_for_that() {
        let (start, mut horizons) = (Instant::now(), Horizons::default());
        // A transaction is open for two hours from the start: the horizon stands at 100, rows pile up above.
        for minute in 0..120 {
            let now = start + MINUTE * minute;
            horizons.note(now, 1, 100);
            let expected = (minute >= 60).then_some(100);
            assert_eq!(horizons.readable_long_enough(now), expected, "minute {minute}");
        }
        assert!(horizons.samples.len() <= 61, "samples are dropped: {}", horizons.samples.len());
        for minute in 120..240 {
            let now = start + MINUTE * minute;
            horizons.note(now, 1, 5000);
            let expected = if minute < 180 { 100 } else { 5000 };
            assert_eq!(horizons.readable_long_enough(now), Some(expected), "minute {minute}");
        }
    }

    #[test]
    fn horizons_of_before_a_restore_are_forgotten() {
        let (start, mut horizons) = (Instant::now(), Horizons::default());
        for (epoch, horizon) in [(1, 900), (1, 400), (2, 950)] {
            horizons.note(start, epoch, horizon);
            assert_eq!(horizons.samples.len(), 1);
        }
        assert_eq!(horizons.readable_long_enough(start + READABLE), Some(950));
    }
}

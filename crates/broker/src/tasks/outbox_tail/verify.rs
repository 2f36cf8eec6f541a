//! Every minute the whole index is compared with the database: a slice at a time, by digest.
//!
//! Both digests describe the same database snapshot. The tail first applies everything below the horizon;
//! then index and database can differ only in objects that have notifications above the horizon, and these
//! are left out on both sides. Any other difference is a bug or a manual change of the database: it is logged
//! as an error, and everything is reloaded.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use sqlx::Connection as _;
use uuid::Uuid;

use super::{Cursor, OutboxTail};
use crate::store::fingerprints::fingerprints_on_conn;
use crate::store::grants::facts_of_rules_on_conn;
use crate::store::outbox::{OutboxNotification, READ_ONLY_SNAPSHOT, outbox_above_on_conn};
use crate::store::{Doing as _, StoreError};

/// The time in which everything is compared once.
const ROUND: Duration = Duration::from_secs(60);
/// The approximate number of agents in one comparison. The tail applies nothing while it compares.
const BATCH: usize = 4096;
const SLICES: usize = 256;
/// The shortest time between two reloads: if a reload does not help, the next one will not help either.
const RELOAD_EVERY: Duration = Duration::from_secs(600);

/// The slices that are due. A small fleet is compared at once, once per round.
#[derive(Debug)]
pub struct Rounds {
    next: usize,
    due: Instant,
}

impl Rounds {
    pub fn new(now: Instant) -> Self {
        Self { next: 0, due: now + ROUND }
    }

    pub fn due(&mut self, now: Instant, agents: usize) -> Option<RangeInclusive<u8>> {
        if now < self.due {
            return None;
        }
        let many = (SLICES * BATCH / agents.max(1)).clamp(1, SLICES);
        let first = self.next;
        let last = (first + many).min(SLICES) - 1;
        self.next = (last + 1) % SLICES;
        // After a delay, comparisons do not run faster to make up for it: the database may be slow for a
        // reason.
        let share = u32::try_from(last + 1 - first).unwrap_or(1);
        self.due = now + ROUND * share / 256;
        let byte = |slice: usize| u8::try_from(slice).unwrap_or(u8::MAX);
        Some(byte(first)..=byte(last))
    }
}

impl OutboxTail {
    /// Makes a step, then compares these slices with the database; reloads everything if they differ.
    pub async fn check(&self, cursor: Cursor, slices: RangeInclusive<u8>) -> Result<Cursor, StoreError> {
        let mut conn = self.pool.acquire().await.doing("begin to compare the index")?;
        let mut transaction =
            conn.begin_with(READ_ONLY_SNAPSHOT).await.doing("begin to compare the index")?;
        let Some(reading) = self.read_changes_on_conn(&mut transaction, cursor).await? else {
            transaction.rollback().await.doing("end comparing the index")?;
            return self.load().await;
        };
        let horizon = reading.snapshot.horizon;
        let above = outbox_above_on_conn(&mut transaction, horizon).await?;
        let without: Vec<Uuid> = above.iter().map(|notification| notification.key()).collect();
        let there = fingerprints_on_conn(&mut transaction, &slices, &without).await?;
        let is_rule = |notification: &OutboxNotification| {
            !matches!(notification, OutboxNotification::Agent(_) | OutboxNotification::Stack(_))
        };
        let rules = if above.iter().any(is_rule) {
            None
        } else {
            Some(facts_of_rules_on_conn(&mut transaction).await?)
        };
        transaction.commit().await.doing("end comparing the index")?;
        let next = self.show(&mut conn, cursor, reading).await?;
        if next.snapshot.horizon != horizon {
            return Ok(next);
        }
        let (here, same_rules) = {
            let snapshot = self.index.snapshot();
            let without: HashSet<Uuid> = without.into_iter().collect();
            let same = rules.is_none_or(|rules| snapshot.has_rules(rules));
            (snapshot.fingerprints(&slices, &without), same)
        };
        if here == there && same_rules {
            return Ok(next);
        }
        tracing::error!(
            ?slices,
            index = ?here,
            database = ?there,
            same_rules,
            "the index differs from the database; this is a bug, or the database was changed manually"
        );
        if self.index.record_mismatch(RELOAD_EVERY) { self.load().await } else { Ok(next) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_compared_once_per_round_at_any_size() {
        for agents in [0, 10, 4096, 5000, 100_000, 1_000_000, 50_000_000] {
            let start = Instant::now();
            let mut rounds = Rounds::new(start);
            let mut now = start + ROUND;
            let mut compared = Vec::new();
            while compared.len() < SLICES {
                let slices = rounds.due(now, agents).expect("it is due");
                assert!(rounds.due(now, agents).is_none(), "not twice");
                compared.extend(slices);
                now = rounds.due;
            }
            assert_eq!(compared, (0..=255).collect::<Vec<u8>>(), "{agents} agents");
            let took = now.duration_since(start + ROUND);
            assert!(took <= ROUND && took > ROUND - Duration::from_secs(1), "{agents} agents: {took:?}");
        }
    }
}

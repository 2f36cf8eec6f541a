//! Reads events once for all watch streams of this replica.
//!
//! Waits for: a timer (250 ms). It reads up to the horizon that the index has reached: every transaction below it has
//! ended, so an event that commits late is not skipped.

use std::sync::Arc;
use std::time::Duration;

use brokkr_api::Position;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::index::Index;
use crate::state::streams::Streams;
use crate::store::StoreError;
use crate::store::events::{EventCursor, event_follow};

const TICK: Duration = Duration::from_millis(250);
/// Events of one statement.
const BATCH: usize = 1000;

/// Publishes new events until stopped.
pub async fn run(streams: Streams, pool: PgPool, index: Arc<Index>, stop: CancellationToken) {
    streams.advance(index.position());
    let mut failing = false;
    loop {
        match step(&streams, &pool, index.position()).await {
            Ok(()) => failing = false,
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "failed to read events for watch streams; retrying");
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(TICK) => {}
        }
    }
}

/// Publishes the events between the last position and this one.
async fn step(streams: &Streams, pool: &PgPool, now: Position) -> Result<(), StoreError> {
    let before = streams.position();
    if before.epoch != now.epoch || now.horizon < before.horizon {
        // The database was restored: streams end, and reconnecting readers get a reset message.
        streams.advance(now);
        return Ok(());
    }
    if now.horizon == before.horizon {
        return Ok(());
    }
    // Most replicas have no open stream most of the time.
    if streams.skip_to(now) {
        return Ok(());
    }
    let mut after = EventCursor::before(before.horizon);
    loop {
        let batch = event_follow(pool, None, after, now.horizon, BATCH).await?;
        let more = batch.len() == BATCH;
        if let Some(last) = batch.last() {
            after = last.place;
        }
        for recorded in batch {
            streams.publish(recorded);
        }
        if !more {
            break;
        }
    }
    streams.advance(now);
    Ok(())
}

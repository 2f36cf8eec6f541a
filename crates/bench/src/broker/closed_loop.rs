//! Requests in a closed loop: each connection sends the next when the last was answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use brokkr_swarm::wire::Dialer;
use brokkr_swarm::{Broker, Transport};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use tokio::task::JoinSet;

pub type NextRequest = Request<Full<Bytes>>;

/// The result of a loop.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub answers: u64,
    pub seconds: f64,
}

impl Done {
    pub fn rate(&self) -> f64 {
        self.answers as f64 / self.seconds
    }
}

/// Sends requests in a closed loop. `next` makes the next request from the number of the connection and the
/// number of the request on it; every response must have the expected status.
pub async fn closed_loop(
    broker: &Broker,
    authorities: &[u8],
    connections: usize,
    turn: Duration,
    expected: StatusCode,
    next: impl Fn(usize, u64) -> NextRequest + Send + Sync + 'static,
) -> Result<Done> {
    let dialer = Dialer::new(authorities, Transport::Own, connections, connections)?;
    let mut wires = Vec::new();
    for number in 0..connections {
        wires.push(dialer.connect(broker, number).await?);
    }
    let (next, answers) = (Arc::new(next), Arc::new(AtomicU64::new(0)));
    let begun = Instant::now();
    let mut loops = JoinSet::new();
    for (number, mut wire) in wires.into_iter().enumerate() {
        let (next, answers) = (Arc::clone(&next), Arc::clone(&answers));
        loops.spawn(async move {
            let mut count = 0;
            while begun.elapsed() < turn {
                let answer = wire.exchange(next(number, count)).await?;
                if answer.status != expected {
                    bail!("the response was {}: {}", answer.status, String::from_utf8_lossy(&answer.body));
                }
                count += 1;
                answers.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    while let Some(ended) = loops.join_next().await {
        ended??;
    }
    Ok(Done { answers: answers.load(Ordering::Relaxed), seconds: begun.elapsed().as_secs_f64() })
}

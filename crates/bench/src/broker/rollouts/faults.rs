//! Two replicas, of which the one that takes the steps of rollouts is killed or paused.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brokkr_testkit::Broker;
use uuid::Uuid;

use super::observer::Observer;

/// Longer than the lease for rollouts, which is ten seconds.
const PAUSE: Duration = Duration::from_secs(15);

/// Returns the seconds since 1970. PostgreSQL runs on the same machine, so its clock is the same.
pub fn seconds_now() -> f64 {
    jiff::Timestamp::now().as_microsecond() as f64 / 1e6
}

/// Both replicas, and when the process of each was started.
pub struct Replicas<'a> {
    brokers: [&'a Broker; 2],
    started: [f64; 2],
}

impl<'a> Replicas<'a> {
    /// `second_started` is a time between the start of the first and of the second.
    pub fn new(brokers: [&'a Broker; 2], second_started: f64) -> Self {
        Self { brokers, started: [0.0, second_started] }
    }

    /// Kills the leader, and starts it again at once. Returns the seconds until another process took over; none if the rollout
    /// ended first.
    pub async fn kill_leader(&mut self, observer: &Observer) -> Result<Option<f64>> {
        let (leader, holder) = self.leader(observer)?;
        let (broker, since) = (self.brokers[leader], seconds_now());
        broker.kill9();
        self.started[leader] = seconds_now();
        let (seconds, ()) = tokio::try_join!(observer.taken_over(holder, since), broker.start_again())?;
        Ok(seconds)
    }

    /// Pauses the leader until another process took over, and beyond its lease. Returns as for a kill.
    pub async fn pause_leader(&self, observer: &Observer) -> Result<Option<f64>> {
        let (leader, holder) = self.leader(observer)?;
        let (broker, since, begun) = (self.brokers[leader], seconds_now(), Instant::now());
        broker.pause()?;
        let seconds = observer.taken_over(holder, since).await?;
        tokio::time::sleep(PAUSE.saturating_sub(begun.elapsed())).await;
        broker.resume()?;
        Ok(seconds)
    }

    /// Returns the replica that holds the lease, and as whom. A process makes up the id of its holder when it starts, and the id
    /// contains the time: so it belongs to the replica that was started last before.
    fn leader(&self, observer: &Observer) -> Result<(usize, Uuid)> {
        let holder = observer.latest().holder.context("no replica has looked at the rollout")?;
        let (seconds, nanos) = holder.get_timestamp().context("the id of the holder has no time")?.to_unix();
        let made = seconds as f64 + f64::from(nanos) / 1e9;
        let before = (0..self.brokers.len()).filter(|replica| self.started[*replica] <= made);
        let last = before.max_by(|one, other| self.started[*one].total_cmp(&self.started[*other]));
        Ok((last.context("the holder is older than both replicas")?, holder))
    }
}

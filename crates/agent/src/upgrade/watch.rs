//! How the former version watches its successor, and restores its own image.
//!
//! The image is restored before the session count is raised: while the new Pod exists, the two processes could otherwise raise it in
//! turns.

use std::time::{Duration, Instant};

use brokkr_api::upgrades::UpgradeReason;

use super::decide::{Cause, NextStep, next_step};
use super::home::{Found, Home};
use super::pods::not_started;
use super::reporter::shortened;
use super::role::End;
use crate::clock;
use crate::own_objects::RequestError;
use crate::version::VERSION;

/// How often the former version looks at its successor.
pub const TICK: Duration = Duration::from_secs(2);
/// After this time, the former version no longer waits for the end of the new Pod, which may be on a lost node.
const POD_ENDS: Duration = Duration::from_secs(15);

pub struct Watch {
    home: Home,
    timeout: Duration,
    watched: Watched,
}

/// Since when an upgrade to which image is under way, by the clock of this process.
#[derive(Default)]
struct Watched(Option<(String, Instant)>);

impl Watched {
    /// Returns for how long the upgrade to this image has been watched. Another image is another upgrade, which has all of its time,
    /// also if nobody looked between the two.
    fn elapsed(&mut self, image: &str, now: Instant) -> Duration {
        match &self.0 {
            Some((watched, since)) if watched == image => now.duration_since(*since),
            _ => {
                self.0 = Some((image.to_owned(), now));
                Duration::ZERO
            }
        }
    }
}

impl Watch {
    #[must_use]
    pub fn new(home: Home, timeout: Duration) -> Self {
        Self { home, timeout, watched: Watched::default() }
    }

    /// Returns what to do about what was found.
    pub fn next(&mut self, found: &Found) -> NextStep {
        if !found.deployed.is_under_way() {
            self.watched = Watched::default();
            return next_step(VERSION, &found.deployed, &found.stored, false);
        }
        let elapsed = self.watched.elapsed(&found.deployed.image, Instant::now());
        next_step(VERSION, &found.deployed, &found.stored, elapsed >= self.timeout)
    }

    /// Restores the former image, and waits until the new Pod has ended.
    pub async fn restore(&self, found: &Found, cause: Cause) -> Result<(), RequestError> {
        let Some(restored) = found.deployed.restored() else { return Ok(()) };
        let image = &found.deployed.image;
        let reason = self.reason(image, cause).await?;
        // Before the Deployment, so that the reason is not lost in a crash.
        let end = End { image: image.clone(), reason, at: clock::now(), is_reported: false };
        self.home.store_end(&end).await?;
        self.home.change(&found.deployment, &restored).await?;
        tracing::warn!(image = restored.image, "restored the former image of the agent: {}", end.reason);
        let started = Instant::now();
        while started.elapsed() < POD_ENDS {
            match self.home.pods_with(image).await {
                Ok(pods) if pods.is_empty() => break,
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "failed to list the Pods of the agent; retrying"),
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    }

    async fn reason(&self, image: &str, cause: Cause) -> Result<UpgradeReason, RequestError> {
        let seconds = u32::try_from(self.timeout.as_secs()).unwrap_or(u32::MAX);
        Ok(match cause {
            Cause::Refused(reason) => reason,
            Cause::Overdue { has_taken_over: true } => UpgradeReason::NotConfirmed { seconds },
            Cause::Overdue { has_taken_over: false } => match not_started(&self.home.pods_with(image).await?)
            {
                Some(message) => UpgradeReason::NotStarted { message: shortened(message) },
                None => UpgradeReason::NotConfirmed { seconds },
            },
        })
    }
}

/// Waits, without serving, until the upgrade to this image has ended without it, and restores the former image if it has to.
pub async fn stand_by(home: &Home, image: &str, timeout: Duration, return_after: Duration) {
    let mut watch = Watch::new(home.clone(), timeout);
    loop {
        match home.find().await {
            Ok(None) => return,
            Ok(Some(found)) => match watch.next(&found) {
                NextStep::Watch => {}
                NextStep::Restore(cause) => match watch.restore(&found, cause).await {
                    Ok(()) => return,
                    Err(error) => log_failure(error, "restore the former image"),
                },
                // Confirmed: Kubernetes ends this process, unless the new one fails before it is ready.
                NextStep::Idle | NextStep::ReportEnd(_) if found.deployed.image == image => {
                    return tokio::time::sleep(return_after).await;
                }
                NextStep::Idle | NextStep::ReportEnd(_) => return,
            },
            Err(error) => log_failure(error, "read the Deployment of the agent"),
        }
        tokio::time::sleep(TICK).await;
    }
}

fn log_failure(error: RequestError, what: &str) {
    tracing::warn!("failed to {what}: {:#}; retrying in {TICK:?}", anyhow::Error::new(error));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_upgrade_has_all_of_its_time() {
        let (mut watched, start) = (Watched::default(), Instant::now());
        let minutes = |count: u64| start + Duration::from_mins(count);
        assert_eq!(watched.elapsed("one", start), Duration::ZERO);
        assert_eq!(watched.elapsed("one", minutes(9)), Duration::from_mins(9));
        assert_eq!(watched.elapsed("another", minutes(9)), Duration::ZERO);
        assert_eq!(watched.elapsed("another", minutes(10)), Duration::from_mins(1));
    }
}

//! A control for measurements: something harmless that is repeated meanwhile. On a machine that also runs other tests, a
//! measurement may take long for reasons that have nothing to do with it; then the control takes long as well.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

/// The pause between two repetitions, so that the control itself causes no load.
const PAUSE: Duration = Duration::from_millis(20);
/// What is measured consists of several steps, each of which may be delayed like the control.
const STEPS: u32 = 10;

#[derive(Debug, Default)]
struct Times {
    slowest: Duration,
    /// The beginning of the repetition that has not ended.
    begun: Option<Instant>,
}

/// Repeats a control until it is dropped.
#[derive(Debug)]
pub struct Bystander {
    times: Arc<Mutex<Times>>,
    repeating: JoinHandle<()>,
}

impl Bystander {
    /// Repeats `control`. Its result does not matter, only its time.
    pub fn start<F>(mut control: impl FnMut() -> F + Send + 'static) -> Self
    where
        F: Future + Send,
    {
        let times = Arc::new(Mutex::new(Times::default()));
        let shared = Arc::clone(&times);
        let repeating = tokio::spawn(async move {
            loop {
                let begun = Instant::now();
                lock(&shared).begun = Some(begun);
                drop(control().await);
                // The pause is measured, too: it ends late if the machine stalls.
                tokio::time::sleep(PAUSE).await;
                let took = begun.elapsed().saturating_sub(PAUSE);
                let mut times = lock(&shared);
                *times = Times { slowest: times.slowest.max(took), begun: None };
            }
        });
        Self { times, repeating }
    }

    /// Returns the time of the slowest repetition, including the one that has not ended.
    pub fn slowest(&self) -> Duration {
        let times = lock(&self.times);
        let open = times.begun.map_or(Duration::ZERO, |begun| begun.elapsed().saturating_sub(PAUSE));
        times.slowest.max(open)
    }

    /// Returns the longest time that is allowed for something that takes `quiet` at most on a quiet machine.
    pub fn allows(&self, quiet: Duration) -> Duration {
        quiet + self.slowest() * STEPS
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.repeating.abort();
    }
}

fn lock(times: &Mutex<Times>) -> MutexGuard<'_, Times> {
    times.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Bystander;
    use crate::eventually::eventually;

    const TIMEOUT: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_slow_control_allows_more_time_also_before_it_ends() -> anyhow::Result<()> {
        let slow = Bystander::start(|| tokio::time::sleep(Duration::from_millis(200)));
        eventually(TIMEOUT, "the control to take its time", async || {
            slow.slowest() >= Duration::from_millis(200)
        })
        .await?;
        assert!(slow.allows(Duration::from_secs(1)) >= Duration::from_secs(3));
        let never = Bystander::start(std::future::pending::<()>);
        eventually(TIMEOUT, "the open repetition to count", async || {
            never.slowest() >= Duration::from_millis(100)
        })
        .await
    }

    #[tokio::test]
    async fn a_quick_control_allows_little_more_than_the_measurement_needs() -> anyhow::Result<()> {
        let quick = Bystander::start(|| std::future::ready(()));
        // The clock of the test may stall, too; then the control has to show it.
        let begun = std::time::Instant::now();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let stalled = begun.elapsed().saturating_sub(Duration::from_millis(200));
        let quiet = Duration::from_secs(1);
        assert!(quick.allows(quiet) <= quiet + (stalled + Duration::from_millis(100)) * 10);
        Ok(())
    }
}

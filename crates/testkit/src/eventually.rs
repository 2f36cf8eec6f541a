//! Waits for a condition, with a deadline and an error that shows what was seen last.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The pause between two attempts: short enough not to slow tests down, long enough not to cause load.
const PAUSE: Duration = Duration::from_millis(25);

/// The result of one attempt.
#[derive(Debug)]
pub enum Attempt<T> {
    Done(T),
    /// The text describes what was seen instead.
    NotYet(String),
}

impl<T> From<Option<T>> for Attempt<T> {
    fn from(found: Option<T>) -> Self {
        found.map_or_else(|| Attempt::NotYet("nothing".into()), Attempt::Done)
    }
}

impl<T, E: Debug> From<Result<T, E>> for Attempt<T> {
    fn from(result: Result<T, E>) -> Self {
        result.map_or_else(|error| Attempt::NotYet(format!("{error:?}")), Attempt::Done)
    }
}

impl From<bool> for Attempt<()> {
    fn from(yes: bool) -> Self {
        if yes { Attempt::Done(()) } else { Attempt::NotYet("false".into()) }
    }
}

/// Repeats `attempt` until it is done, and returns its result. After the deadline it fails with an error that names `what`
/// and what was seen last. An attempt returns an `Option`, a `Result`, a `bool`, or an [`Attempt`] with its own description.
pub async fn eventually<T, A: Into<Attempt<T>>>(
    deadline: Duration,
    what: &str,
    mut attempt: impl AsyncFnMut() -> A,
) -> Result<T> {
    let started = Instant::now();
    let mut last = String::from("no attempt finished");
    loop {
        // An attempt that hangs must not outlive the deadline either.
        let left = deadline.saturating_sub(started.elapsed());
        match tokio::time::timeout(left, attempt()).await.map(Into::into) {
            Ok(Attempt::Done(found)) => return Ok(found),
            Ok(Attempt::NotYet(seen)) => last = seen,
            Err(_) => last = format!("an attempt that did not return; before it: {last}"),
        }
        if started.elapsed() >= deadline {
            bail!("timed out after {deadline:?} waiting for: {what}\nlast seen: {last}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

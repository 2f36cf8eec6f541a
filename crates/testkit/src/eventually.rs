//! Waiting for something to become true, with a deadline and a failure that tells what was seen last.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long to pause between two looks: short enough not to be felt, long enough not to be load.
const PAUSE: Duration = Duration::from_millis(25);

/// What one look found.
#[derive(Debug)]
pub enum Look<T> {
    /// It is so.
    Yes(T),
    /// Not yet; the text describes what is there instead.
    NotYet(String),
}

impl<T> From<Option<T>> for Look<T> {
    fn from(found: Option<T>) -> Self {
        found.map_or_else(|| Look::NotYet("nothing".into()), Look::Yes)
    }
}

impl<T, E: Debug> From<Result<T, E>> for Look<T> {
    fn from(result: Result<T, E>) -> Self {
        result.map_or_else(|error| Look::NotYet(format!("{error:?}")), Look::Yes)
    }
}

impl From<bool> for Look<()> {
    fn from(yes: bool) -> Self {
        if yes { Look::Yes(()) } else { Look::NotYet("false".into()) }
    }
}

/// Looks again and again until the answer is yes, and gives it back; fails after the deadline with `what`
/// was waited for and what was seen last. A look may answer an `Option`, a `Result`, a `bool`, or a
/// [`Look`] with its own words.
pub async fn eventually<T, L: Into<Look<T>>>(
    deadline: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> L,
) -> Result<T> {
    let started = Instant::now();
    let mut last = String::from("no look was finished");
    loop {
        // A look that hangs must not outlive the deadline either.
        let left = deadline.saturating_sub(started.elapsed());
        match tokio::time::timeout(left, look()).await.map(Into::into) {
            Ok(Look::Yes(found)) => return Ok(found),
            Ok(Look::NotYet(seen)) => last = seen,
            Err(_) => last = format!("a look that did not return; before it: {last}"),
        }
        if started.elapsed() >= deadline {
            bail!("waited {deadline:?} in vain for: {what}\nseen last: {last}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

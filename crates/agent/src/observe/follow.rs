//! One task that lists and watches one kind, and recovers from every error.
//!
//! ```text
//! List ──(complete)─────────► Watch ──(ended, failed)──► Watch from the last version
//!   ▲                           │
//!   └──(410, failed too often, relist requested)─────────┘
//! ```
//!
//! A list counts only when it is complete: an interrupted list is started again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OnceCell, Semaphore, mpsc};
use tokio::time::Instant;

use super::change::{Change, LastState, Part};
use super::request::{Lines, Refusal, Source};
use super::served;
use super::tracked::Line;
use crate::model::{Prerequisite, SeenObject};
use brokkr_manifest::Key;

/// A watch that cannot be resumed after this many attempts starts over with a list.
const RESUMES: u32 = 3;
/// A watch that the server ends sooner than this counts as failed.
const TOO_SHORT: Duration = Duration::from_secs(1);

/// What all watches share.
pub struct Shared {
    /// Limits the number of concurrent lists.
    pub lists: Semaphore,
    /// A definition changed: kinds that were not served may be now.
    pub definition_changed: Notify,
    /// Whether the API server supports streaming lists.
    pub streaming: OnceCell<bool>,
}

/// The consumer of a watch.
#[derive(Clone)]
pub enum Consumer {
    Index(Arc<Part>),
    /// Stacks that wait for a definition or namespace of any owner.
    Prerequisites(Prerequisite),
}

#[derive(Clone)]
pub struct Follower {
    pub source: Source,
    pub consumer: Consumer,
    pub changes: mpsc::Sender<Change>,
    pub shared: Arc<Shared>,
    pub relist: Arc<Notify>,
    pub history: WatchHistory,
}

/// What a watch remembers between its phases.
#[derive(Clone, Default)]
pub struct WatchHistory {
    /// False once a streaming list of this kind was refused. None before: then `Shared::streaming` applies.
    streaming: Option<bool>,
    /// Failures in a row.
    failures: u32,
    /// When the first of them happened; none once something arrived.
    failing_since: Option<Instant>,
    /// Whether it was reported that they last for too long.
    is_reported_blind: bool,
    /// The last logged problem.
    trouble: Option<String>,
}

enum Phase {
    List,
    Watch { version: String, lines: Option<Lines> },
}

/// Why a phase failed, and the phase to continue with.
struct Broken(Refusal, Phase);

impl Follower {
    /// Follows until the receiver is closed.
    pub async fn follow(&mut self) {
        let mut phase = Phase::List;
        while !self.changes.is_closed() {
            let relist = self.relist.clone();
            let stepped = tokio::select! {
                stepped = self.step(phase) => stepped,
                () = relist.notified() => Ok(Phase::List),
            };
            phase = match stepped {
                Ok(next) => next,
                Err(Broken(why, resume)) => self.recover(why, resume).await,
            };
        }
    }

    async fn step(&mut self, phase: Phase) -> Result<Phase, Broken> {
        match phase {
            Phase::List => self.list().await.map_err(|why| Broken(why, Phase::List)),
            Phase::Watch { mut version, lines } => match self.watch(&mut version, lines).await {
                Ok(()) => Ok(Phase::Watch { version, lines: None }),
                Err(why) => Err(Broken(why, Phase::Watch { version, lines: None })),
            },
        }
    }

    async fn list(&mut self) -> Result<Phase, Refusal> {
        let shared = self.shared.clone();
        let _permit = shared.lists.acquire().await;
        let streaming = match self.history.streaming {
            Some(known) => known,
            // If the version of the server is unknown, list in pages, which every server supports.
            None => {
                let ask = || served::streams_lists(&self.source);
                *shared.streaming.get_or_try_init(ask).await.unwrap_or(&false)
            }
        };
        self.send_change(Change::Listing).await;
        if streaming {
            return match self.list_by_stream().await {
                Err(Refusal::Unfit(why) | Refusal::Denied(why)) => {
                    tracing::debug!(kind = %self.source.kind, why, "streaming lists were refused; listing in pages");
                    self.history.streaming = Some(false);
                    Ok(Phase::List)
                }
                other => other,
            };
        }
        let mut next = String::new();
        loop {
            let page = self.source.page(&next).await?;
            for (key, seen) in page.objects {
                self.send_present(key, seen).await;
            }
            next = page.next;
            if next.is_empty() {
                if page.version.is_empty() {
                    return Err(Refusal::Failed("the list has no resourceVersion".into(), None));
                }
                return Ok(self.listed(page.version, None).await);
            }
        }
    }

    async fn list_by_stream(&mut self) -> Result<Phase, Refusal> {
        let mut lines = self.source.stream().await?;
        loop {
            match lines.next().await? {
                Some((Line::Bookmark { initial_end: true }, version)) => {
                    return Ok(self.listed(version, Some(lines)).await);
                }
                Some((line, _)) => self.send_line(line).await,
                // A server without streaming lists never marks the end of the initial events.
                None => return Err(Refusal::Unfit("the stream ended before the list was complete".into())),
            }
        }
    }

    async fn listed(&mut self, version: String, lines: Option<Lines>) -> Phase {
        self.send_change(Change::Listed).await;
        (self.history.failing_since, self.history.is_reported_blind) = (None, false);
        if self.history.trouble.take().is_some() {
            tracing::info!(kind = %self.source.kind, "watch is working again");
        }
        Phase::Watch { version, lines }
    }

    async fn watch(&mut self, version: &mut String, lines: Option<Lines>) -> Result<(), Refusal> {
        let mut lines = match lines {
            Some(lines) => lines,
            None => self.source.watch(version).await?,
        };
        let opened = Instant::now();
        loop {
            let next = lines.next().await;
            if next.is_err() && opened.elapsed() >= TOO_SHORT {
                // It worked, although nothing happened.
                self.history.failing_since = None;
            }
            let Some((line, at)) = next? else { break };
            (self.history.failures, self.history.failing_since) = (0, None);
            if !at.is_empty() {
                *version = at;
            }
            self.send_line(line).await;
        }
        if opened.elapsed() < TOO_SHORT.min(self.source.timing.watch_least) {
            return Err(Refusal::Failed("the API server ended the watch immediately".into(), None));
        }
        (self.history.failures, self.history.failing_since) = (0, None);
        Ok(())
    }

    /// Decides how to continue after an error, and waits.
    async fn recover(&mut self, why: Refusal, resume: Phase) -> Phase {
        self.history.failures += 1;
        let failures = self.history.failures;
        let timing = self.source.timing;
        let kind = self.source.kind.clone();
        // J4: for example because a webhook that converts these objects does not answer.
        let since = *self.history.failing_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= timing.blind_after
            && !matches!(why, Refusal::Denied(_))
            && !std::mem::replace(&mut self.history.is_reported_blind, true)
        {
            self.send_change(|part| Change::Unwatchable(part, why.to_string())).await;
        }
        match why {
            // The first time without a delay.
            Refusal::Expired => {
                tracing::debug!(%kind, "watch expired; listing again");
                self.pause(timing.backoff(failures - 1)).await;
                Phase::List
            }
            Refusal::NotServed => {
                match served::find(&self.source.client, &kind, timing.answer).await {
                    Ok(None) => self.wait_until_served().await,
                    Ok(Some(found)) if found != kind => {
                        tracing::info!(%kind, now = %found, "kind is served in another version; watching that one");
                        self.source.kind = found;
                        self.pause(timing.backoff(failures - 1)).await;
                    }
                    // The kind was just removed or added, or discovery failed: not decided yet.
                    Ok(Some(_)) | Err(_) => {
                        self.pause(timing.backoff(failures)).await;
                    }
                }
                Phase::List
            }
            Refusal::Denied(why) => {
                if self.history.trouble.as_ref() != Some(&why) {
                    tracing::warn!(%kind, why, "failed to watch: forbidden; retrying");
                    self.history.trouble = Some(why.clone());
                    self.send_change(|part| Change::Unwatchable(part, why)).await;
                }
                self.pause(timing.slow(failures)).await;
                Phase::List
            }
            Refusal::Unfit(why) | Refusal::Failed(why, None) => {
                self.resume_after(timing.backoff(failures), &why, resume).await
            }
            Refusal::Failed(why, Some(asked)) => {
                let pause = timing.backoff(failures).max(asked.min(timing.blind_after));
                self.resume_after(pause, &why, resume).await
            }
        }
    }

    async fn resume_after(&mut self, pause: Duration, why: &str, resume: Phase) -> Phase {
        tracing::warn!(kind = %self.source.kind, why, "failed to watch; retrying in {pause:?}");
        let asked = self.pause(pause).await;
        // Only a complete list shows the objects again.
        if asked || self.history.is_reported_blind || self.history.failures >= RESUMES {
            Phase::List
        } else {
            resume
        }
    }

    /// Reports that the kind is not served, which discovery has confirmed, and waits before the next attempt.
    async fn wait_until_served(&mut self) {
        const UNSERVED: &str = "not served";
        self.history.failing_since = None;
        let is_blind = std::mem::take(&mut self.history.is_reported_blind);
        if is_blind || self.history.trouble.as_deref() != Some(UNSERVED) {
            tracing::info!(kind = %self.source.kind, "kind is not served; retrying");
            self.history.trouble = Some(UNSERVED.into());
            self.send_change(Change::Unserved).await;
        }
        let pause = self.source.timing.slow(self.history.failures);
        tokio::select! {
            _ = self.pause(pause) => {}
            () = self.shared.definition_changed.notified() => {
                self.history.failures = 1;
                self.pause(self.source.timing.backoff(1)).await;
            }
        }
    }

    /// Waits; returns true if a new list is requested meanwhile.
    async fn pause(&self, pause: Duration) -> bool {
        tokio::time::timeout(pause, self.relist.notified()).await.is_ok()
    }

    async fn send_line(&self, line: Line) {
        match line {
            Line::Present(key, seen) => self.send_present(key, seen).await,
            Line::Gone(key, seen) => {
                let last = if seen.completed { LastState::Completed } else { LastState::Other };
                let change = match &self.consumer {
                    Consumer::Index(_) => Change::Gone(key, seen.uid, last),
                    Consumer::Prerequisites(prerequisite) => {
                        Change::PrerequisiteChanged(*prerequisite, key.name)
                    }
                };
                self.send(change).await;
            }
            Line::Bookmark { .. } | Line::Error { .. } => {}
        }
    }

    async fn send_present(&self, key: Key, seen: SeenObject) {
        if self.source.kind.name().is_definition() {
            self.shared.definition_changed.notify_waiters();
        }
        let change = match &self.consumer {
            Consumer::Index(_) => Change::Present(key, Box::new(seen)),
            Consumer::Prerequisites(prerequisite) => Change::PrerequisiteChanged(*prerequisite, key.name),
        };
        self.send(change).await;
    }

    /// Sends a change of the kind as a whole; consumers of prerequisites only get changes of objects.
    pub async fn send_change(&self, change: impl FnOnce(Arc<Part>) -> Change) {
        if let Consumer::Index(part) = &self.consumer {
            self.send(change(part.clone())).await;
        }
    }

    async fn send(&self, change: Change) {
        // A closed channel means that the agent stops.
        let _ = self.changes.send(change).await;
    }
}

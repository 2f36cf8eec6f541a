//! One reader of a stream.
//!
//! Waits for: an event that the tail tells, a look at the caller's right every few seconds, or this replica's end. It
//! ends when the right is gone, the reader is too slow, or the database was restored; whoever comes back with the
//! id of the last event goes on where it was.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event as Message, KeepAlive, Sse};
use brokkr_api::{AgentId, ErrorCode, Position, StackId};
use futures::Stream;
use http::HeaderMap;
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::access::Caller;
use crate::access::origin::Origin;
use crate::error::ApiError;
use crate::http::guard::authenticate;
use crate::state::streams::{StreamPermit, StreamedEvent};
use crate::state::{Broker, Progress};
use crate::store::events::{EventPlace, event_follow};

/// How long a right that was looked at counts.
const RIGHT_COUNTS: Duration = Duration::from_secs(3);
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Events of one statement while catching up.
const BATCH: usize = 200;

/// Which events are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    pub stack: Option<StackId>,
    pub agent: Option<AgentId>,
}

impl Filter {
    fn takes(&self, project: &str, told: &StreamedEvent) -> bool {
        told.event.project == project
            && self.stack.is_none_or(|stack| stack == told.event.stack_id)
            && self.agent.is_none_or(|agent| agent == told.event.agent_id)
    }
}

/// Where a reader was: `epoch.transaction.place`, the id of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resume {
    epoch: i64,
    place: EventPlace,
}

fn resume(headers: &HeaderMap) -> Result<Option<Resume>, ApiError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let read = value.to_str().ok().and_then(|text| {
        let (epoch, place) = text.split_once('.')?;
        Some(Resume { epoch: epoch.parse().ok()?, place: place.parse().ok()? })
    });
    read.map(Some).ok_or_else(|| ApiError::unreadable("cannot read `Last-Event-ID`"))
}

/// Everything about one open stream.
#[derive(Debug)]
pub struct Follow {
    broker: Arc<Broker>,
    caller: Caller,
    headers: HeaderMap,
    origin: Arc<Origin>,
    filter: Filter,
    epoch: i64,
    receiver: broadcast::Receiver<Arc<StreamedEvent>>,
    /// Read from the database up to here; the rest is told.
    told_from: u64,
    after: EventPlace,
    catching_up: bool,
    waiting: VecDeque<Arc<StreamedEvent>>,
    looked_at: Instant,
    /// The reader's place is of another history: that is said first.
    is_reset: bool,
    _permit: StreamPermit,
}

impl Follow {
    pub async fn begin(
        broker: Arc<Broker>,
        caller: Caller,
        headers: HeaderMap,
        origin: Arc<Origin>,
        filter: Filter,
    ) -> Result<Self, ApiError> {
        let resume = resume(&headers)?;
        // It may have been told by a replica that is ahead of this one.
        let known = match resume {
            None => None,
            Some(resume) => {
                let wanted = Position { epoch: resume.epoch, horizon: resume.place.xid.saturating_add(1) };
                let is_ours = resume.epoch == broker.index.position().epoch;
                match broker.progress(wanted).await {
                    Progress::Behind if is_ours => return Err(broker.behind(wanted)),
                    Progress::Reached if is_ours => Some(resume),
                    _ => None,
                }
            }
        };
        let ticket = broker.streams.open(caller.principal()).ok_or_else(|| {
            ApiError::new(ErrorCode::BRK2020, "this replica has as many open streams as it allows")
                .retry_after(5)
        })?;
        let (receiver, from) = broker.streams.subscribe();
        let known = known.filter(|known| known.epoch == from.epoch);
        Ok(Self {
            broker,
            caller,
            headers,
            origin,
            filter,
            epoch: from.epoch,
            receiver,
            told_from: from.horizon,
            after: known.map_or_else(|| EventPlace::before(from.horizon), |resume| resume.place),
            catching_up: known.is_some(),
            waiting: VecDeque::new(),
            looked_at: Instant::now(),
            is_reset: resume.is_some() && known.is_none(),
            _permit: ticket,
        })
    }

    fn project(&self) -> &str {
        self.caller.project()
    }

    /// The next event that the caller still may see; none when the stream is over.
    async fn next(&mut self) -> Option<Arc<StreamedEvent>> {
        loop {
            if let Some(told) = self.waiting.pop_front() {
                if !self.may_still().await {
                    return None;
                }
                return Some(told);
            }
            if self.catching_up {
                self.catch_up().await.ok()?;
                continue;
            }
            let received = tokio::select! {
                () = self.broker.shutdown.draining.cancelled() => return None,
                () = self.broker.streams.history_changed(self.epoch) => return None,
                received = self.receiver.recv() => Some(received.ok()?),
                () = tokio::time::sleep_until(self.looked_at + RIGHT_COUNTS) => None,
            };
            match received {
                Some(told) if self.is_new(told.place) && self.filter.takes(self.project(), &told) => {
                    self.waiting.push_back(told);
                }
                Some(_) => {}
                None if self.may_still().await => {}
                None => return None,
            }
        }
    }

    /// Neither read from the database already, nor had before.
    fn is_new(&self, place: EventPlace) -> bool {
        place.xid >= self.told_from && place > self.after
    }

    async fn catch_up(&mut self) -> Result<(), ApiError> {
        let (pool, project) = (&self.broker.pool, self.caller.project());
        let batch = event_follow(pool, Some(project), self.after, self.told_from, BATCH).await?;
        self.catching_up = batch.len() == BATCH;
        for recorded in batch {
            self.after = recorded.place;
            let told = StreamedEvent::new(recorded);
            if self.filter.takes(project, &told) {
                self.waiting.push_back(Arc::new(told));
            }
        }
        Ok(())
    }

    /// Looks again whether the credential is what it was, unless that was done a moment ago.
    async fn may_still(&mut self) -> bool {
        if self.looked_at.elapsed() < RIGHT_COUNTS {
            return true;
        }
        self.looked_at = Instant::now();
        match (authenticate(&self.broker, &self.headers, &self.origin).await, &self.caller) {
            (Ok(Caller::Token(now)), Caller::Token(before)) => {
                now.token_id == before.token_id && now.role == before.role
            }
            _ => false,
        }
    }
}

/// The stream as it travels. `told` makes a message of an event; none is passed over.
pub fn answer<F, R>(follow: Follow, told: F) -> Sse<impl Stream<Item = Result<Message, axum::Error>>>
where
    F: Fn(Arc<Broker>, Arc<StreamedEvent>) -> R + Send + 'static,
    R: Future<Output = Option<Result<Message, axum::Error>>> + Send,
{
    let state = (follow, told);
    let stream = futures::stream::unfold(state, async |(mut follow, told)| {
        if std::mem::take(&mut follow.is_reset) {
            let text =
                "the place to go on from is of another history; list what happened, then go on from here";
            let id = format!("{}.{}", follow.epoch, EventPlace::before(follow.told_from));
            return Some((Ok(Message::default().event("reset").id(id).data(text)), (follow, told)));
        }
        loop {
            let next = follow.next().await?;
            let id = format!("{}.{}", follow.epoch, next.place);
            if let Some(message) = told(Arc::clone(&follow.broker), next).await {
                return Some((message.map(|message| message.id(id)), (follow, told)));
            }
        }
    });
    Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

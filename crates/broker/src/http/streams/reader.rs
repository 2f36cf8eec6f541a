//! One client of a stream.
//!
//! Waits for: an event from the tail, the loss of the caller's permission, or the shutdown of this replica.
//! Ends when the permission is gone, the client is too slow, or the database was restored. A client that sends the id
//! of its last event continues after it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event as Message, KeepAlive, Sse};
use brokkr_api::{AgentId, ErrorCode, Position, StackId};
use futures::Stream;
use http::HeaderMap;
use tokio::sync::broadcast;

use super::permission::PermissionWatch;
use crate::access::Caller;
use crate::access::origin::Origin;
use crate::error::{ApiError, ApiResult};
use crate::state::streams::{StreamPermit, StreamedEvent};
use crate::state::{Broker, Progress};
use crate::store::events::{EventCursor, event_follow};

pub const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The number of events that one statement reads while catching up.
const BATCH: usize = 200;

/// Which events the client gets.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamFilter {
    pub stack: Option<StackId>,
    pub agent: Option<AgentId>,
}

impl StreamFilter {
    fn matches(&self, project: &str, event: &StreamedEvent) -> bool {
        event.event.project == project
            && self.stack.is_none_or(|stack| stack == event.event.stack_id)
            && self.agent.is_none_or(|agent| agent == event.event.agent_id)
    }
}

/// The position of a client: `epoch.transaction.number`, the id of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resume {
    epoch: i64,
    cursor: EventCursor,
}

fn resume(headers: &HeaderMap) -> ApiResult<Option<Resume>> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let read = value.to_str().ok().and_then(|text| {
        let (epoch, cursor) = text.split_once('.')?;
        Some(Resume { epoch: epoch.parse().ok()?, cursor: cursor.parse().ok()? })
    });
    read.map(Some).ok_or_else(|| ApiError::invalid_request("invalid `Last-Event-ID`"))
}

/// An open stream.
#[derive(Debug)]
pub struct StreamReader {
    broker: Arc<Broker>,
    permission: PermissionWatch,
    filter: StreamFilter,
    epoch: i64,
    receiver: broadcast::Receiver<Arc<StreamedEvent>>,
    /// Events below this transaction are read from the database; later events come from the tail.
    tailed_from: u64,
    after: EventCursor,
    catching_up: bool,
    waiting: VecDeque<Arc<StreamedEvent>>,
    /// The client's position is from before a restore: a reset is sent first.
    is_reset: bool,
    _permit: StreamPermit,
}

impl StreamReader {
    pub async fn begin(
        broker: Arc<Broker>,
        caller: Caller,
        headers: HeaderMap,
        origin: Arc<Origin>,
        filter: StreamFilter,
    ) -> ApiResult<Self> {
        let resume = resume(&headers)?;
        // The id may come from a replica that is ahead of this one.
        let known = match resume {
            None => None,
            Some(resume) => {
                let wanted = Position { epoch: resume.epoch, horizon: resume.cursor.xid.saturating_add(1) };
                let is_ours = resume.epoch == broker.index.position().epoch;
                match broker.progress(wanted).await {
                    Progress::Behind if is_ours => return Err(broker.behind(wanted)),
                    Progress::Reached if is_ours => Some(resume),
                    _ => None,
                }
            }
        };
        let permit = take_permit(&broker, &caller)?;
        let (receiver, from) = broker.streams.subscribe();
        let known = known.filter(|known| known.epoch == from.epoch);
        Ok(Self {
            permission: PermissionWatch::begin(Arc::clone(&broker), caller, headers, origin),
            broker,
            filter,
            epoch: from.epoch,
            receiver,
            tailed_from: from.horizon,
            after: known.map_or_else(|| EventCursor::before(from.horizon), |resume| resume.cursor),
            catching_up: known.is_some(),
            waiting: VecDeque::new(),
            is_reset: resume.is_some() && known.is_none(),
            _permit: permit,
        })
    }

    fn project(&self) -> &str {
        self.permission.caller.project()
    }

    /// Returns the next event that the caller may still see; none when the stream ends.
    async fn next(&mut self) -> Option<Arc<StreamedEvent>> {
        loop {
            if !self.permission.is_still_permitted().await {
                return None;
            }
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.catching_up {
                self.catch_up().await.ok()?;
                continue;
            }
            let received = tokio::select! {
                () = self.broker.shutdown.draining.cancelled() => return None,
                () = self.broker.streams.history_changed(self.epoch) => return None,
                () = self.permission.lost() => return None,
                received = self.receiver.recv() => received.ok()?,
            };
            if self.is_new(received.place) && self.filter.matches(self.project(), &received) {
                self.waiting.push_back(received);
            }
        }
    }

    /// Returns whether the event was neither read from the database nor sent before.
    fn is_new(&self, cursor: EventCursor) -> bool {
        cursor.xid >= self.tailed_from && cursor > self.after
    }

    async fn catch_up(&mut self) -> ApiResult<()> {
        let (pool, project) = (&self.broker.pool, self.permission.caller.project());
        let batch = event_follow(pool, Some(project), self.after, self.tailed_from, BATCH).await?;
        self.catching_up = batch.len() == BATCH;
        for recorded in batch {
            self.after = recorded.place;
            let event = StreamedEvent::new(recorded);
            if self.filter.matches(project, &event) {
                self.waiting.push_back(Arc::new(event));
            }
        }
        Ok(())
    }
}

/// Takes one of the streams that a replica, and a caller, may have open.
pub fn take_permit(broker: &Broker, caller: &Caller) -> ApiResult<StreamPermit> {
    broker.streams.open(caller.principal()).ok_or_else(|| {
        ApiError::new(ErrorCode::BRK2020, "this replica has too many open streams").retry_after(5)
    })
}

/// Responds with the stream. `to_message` makes a message of an event, or none to skip it.
pub fn respond<F, R>(
    reader: StreamReader,
    to_message: F,
) -> Sse<impl Stream<Item = Result<Message, axum::Error>>>
where
    F: Fn(Arc<Broker>, Arc<StreamedEvent>) -> R + Send + 'static,
    R: Future<Output = Option<Result<Message, axum::Error>>> + Send,
{
    let state = (reader, to_message);
    let stream = futures::stream::unfold(state, async |(mut reader, to_message)| {
        if std::mem::take(&mut reader.is_reset) {
            let text = "the last event id is from before a restore; list events, then continue from here";
            let id = format!("{}.{}", reader.epoch, EventCursor::before(reader.tailed_from));
            return Some((Ok(Message::default().event("reset").id(id).data(text)), (reader, to_message)));
        }
        loop {
            let next = reader.next().await?;
            let id = format!("{}.{}", reader.epoch, next.place);
            if let Some(message) = to_message(Arc::clone(&reader.broker), next).await {
                return Some((message.map(|message| message.id(id)), (reader, to_message)));
            }
        }
    });
    Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

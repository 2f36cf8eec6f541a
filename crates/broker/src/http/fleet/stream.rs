//! The stream of a matrix: first the whole matrix, then the cells that have changed.
//!
//! Waits for: the next tick, its turn to compute, the loss of the caller's permission, or the shutdown of this replica. Nothing is kept
//! between two connections: a client that connects again gets the whole matrix again.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use brokkr_api::fleet::{FleetChanges, FleetMatrix, ViewFreshness};
use http::HeaderMap;
use tokio::time::Instant;

use super::MatrixQuery;
use crate::access::Caller;
use crate::access::origin::Origin;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::headers::position;
use crate::http::paging::QueryParams;
use crate::http::streams::permission::PermissionWatch;
use crate::http::streams::reader::{KEEP_ALIVE, take_permit};
use crate::index::MatrixRequest;
use crate::state::Broker;
use crate::state::streams::StreamPermit;

/// A release changes cells all the time, faster than people read.
const TICK: Duration = Duration::from_millis(500);
/// Without changes, a message says how recent the cells are.
const QUIET: Duration = Duration::from_secs(10);

/// Stream the agents of each stack by the values of a label.
///
/// Server-sent events: first `matrix` with the whole matrix, a `FleetMatrix`; then, at most twice a second, `cells` with what has changed
/// since the message before, a `FleetChanges`, or `matrix` again if rows or columns have changed. Without changes, a message with no
/// cells says every ten seconds how recent they are. The id of a message is the position that it reflects. A client that connects again
/// gets the whole matrix again.
#[utoipa::path(get, path = "/api/v1/fleet/stream", tag = "fleet", params(MatrixQuery),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub async fn stream_fleet(
    State(broker): BrokerState,
    caller: Caller,
    QueryParams(query): QueryParams<MatrixQuery>,
    Extension(origin): Extension<Arc<Origin>>,
    headers: HeaderMap,
) -> ApiResult<impl IntoResponse> {
    broker.catch_up(&caller, position(&headers)?).await?;
    let request = query.request(&caller)?;
    let permit = take_permit(&broker, &caller)?;
    let now = Instant::now();
    let principal = caller.principal();
    let permission = PermissionWatch::begin(Arc::clone(&broker), caller, headers, origin);
    let reader =
        MatrixReader { broker, principal, request, sent: None, due: now, sent_at: now, _permit: permit };
    let stream = futures::stream::unfold((reader, permission), async |(mut reader, mut permission)| {
        let draining = reader.broker.shutdown.draining.clone();
        let message = tokio::select! {
            () = draining.cancelled() => return None,
            // Also while the reader waits for the views of others.
            () = permission.lost() => return None,
            message = reader.next() => message,
        };
        // A message discards the check that is under way: without this one, a stream that always has something to say would never be
        // checked while checks are slow.
        if !permission.is_still_permitted().await {
            return None;
        }
        Some((message, (reader, permission)))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// What a client has.
#[derive(Debug)]
struct SentMatrix {
    revision: u64,
    matrix: Arc<FleetMatrix>,
}

/// An open stream.
#[derive(Debug)]
struct MatrixReader {
    broker: Arc<Broker>,
    principal: String,
    request: MatrixRequest,
    sent: Option<SentMatrix>,
    due: Instant,
    sent_at: Instant,
    _permit: StreamPermit,
}

impl MatrixReader {
    /// Returns the next message.
    async fn next(&mut self) -> Result<Message, axum::Error> {
        loop {
            // What could not be computed is computed at the next tick.
            if let Ok(Some(message)) = self.next_tick().await {
                self.sent_at = Instant::now();
                return message;
            }
        }
    }

    /// Waits for the next tick, and returns a message if there is anything to say.
    async fn next_tick(&mut self) -> Result<Option<Result<Message, axum::Error>>, ApiError> {
        tokio::time::sleep_until(self.due).await;
        let message = self.message().await;
        // Not before: after one that took long, the next one would follow at once.
        self.due = Instant::now() + TICK;
        message
    }

    /// Returns a message, if there is anything to say.
    async fn message(&mut self) -> Result<Option<Result<Message, axum::Error>>, ApiError> {
        let revision = self.broker.views.revision();
        let is_quiet = self.sent_at.elapsed() >= QUIET;
        if self.sent.as_ref().is_some_and(|sent| sent.revision == revision) {
            // The same cells, and they are more recent.
            let freshness = self.broker.index.outcomes().freshness();
            return Ok(
                is_quiet.then(|| cells(FleetChanges { freshness, cells: Vec::new(), versions: Vec::new() }))
            );
        }
        let matrix = self.compute().await?;
        let before = self.sent.replace(SentMatrix { revision, matrix: Arc::clone(&matrix) });
        let Some(before) = before.filter(|before| matrix.has_axes_of(&before.matrix)) else {
            return Ok(Some(message("matrix", matrix.freshness, &*matrix)));
        };
        let changed = matrix.changed_since(&before.matrix);
        let became_complete = matrix.freshness.complete != before.matrix.freshness.complete;
        if changed.is_empty() && !became_complete && !is_quiet {
            return Ok(None);
        }
        Ok(Some(cells(changed)))
    }

    /// Returns the matrix of now. All streams together take half a core at most, but a first matrix does not wait.
    async fn compute(&self) -> Result<Arc<FleetMatrix>, ApiError> {
        let (views, request) = (&self.broker.views, self.request.clone());
        match self.sent {
            None => views.matrix(&self.principal, request).await,
            Some(_) => views.matrix_in_turn(&self.principal, request).await,
        }
    }
}

fn cells(changes: FleetChanges) -> Result<Message, axum::Error> {
    message("cells", changes.freshness, &changes)
}

fn message(
    name: &str,
    freshness: ViewFreshness,
    data: &impl serde::Serialize,
) -> Result<Message, axum::Error> {
    Message::default().event(name).id(freshness.position.to_string()).json_data(data)
}

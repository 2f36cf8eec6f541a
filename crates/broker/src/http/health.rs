//! Is the process alive, and should requests come here.
//!
//! A database that is away makes a replica neither dead nor unready: agents are answered from memory, and every
//! other replica has the same database. Starting it again would lose what it remembers, and sending requests
//! elsewhere would gain nothing. It is told as a cause of trouble instead.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use brokkr_api::ErrorCode;
use brokkr_api::health::{Health, Trouble};

use crate::error::ApiError;
use crate::state::Broker;

/// The tail looks several times a second; loading everything anew takes it seconds. So long, and it is stuck.
const STUCK: Duration = Duration::from_secs(120);
/// A tail that has not read for this long is told.
const FRESH: Duration = Duration::from_secs(5);

fn health(broker: &Broker) -> Health {
    let unread = broker.index.seen().at.elapsed();
    let causes: Vec<_> = (unread > FRESH)
        .then(|| Trouble {
            part: "database".to_owned(),
            detail: format!(
                "not read for {} s; agents are answered from memory, changes are refused until it is back",
                unread.as_secs()
            ),
        })
        .into_iter()
        .collect();
    Health { whole: causes.is_empty(), causes }
}

/// Alive: it answers, and what feeds the index is not stuck. If not, it has to be started again.
#[utoipa::path(get, path = "/livez", tag = "health", responses(
    (status = 200, description = "It is alive.", body = Health),
    (status = 503, description = "It is stuck, and has to be started again."),
))]
pub async fn livez(State(broker): State<Arc<Broker>>) -> Result<Response, ApiError> {
    let still = broker.tail.last_heartbeat().elapsed();
    if still > STUCK {
        let detail =
            format!("the outbox tail has not moved for {} s: start this replica again", still.as_secs());
        return Err(ApiError::new(ErrorCode::BRK3003, detail));
    }
    Ok(axum::Json(health(&broker)).into_response())
}

/// Ready: the index is loaded, and nobody told this replica to stop. The answer names what is in trouble.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, description = "Requests may come.", body = Health),
    (status = 503, description = "Requests should go to another replica."),
))]
pub async fn readyz(State(broker): State<Arc<Broker>>) -> Result<Response, ApiError> {
    if broker.shutdown.leaving.is_cancelled() {
        return Err(ApiError::new(ErrorCode::BRK3003, "this replica is stopping").retry_after(1));
    }
    Ok(axum::Json(health(&broker)).into_response())
}

//! Liveness and readiness of a replica.
//!
//! A replica stays alive and ready while the database is unreachable: it serves agents from memory, and every
//! other replica uses the same database. A restart would lose that memory and would not help. The response
//! names the database as a cause instead.

use std::time::Duration;

use axum::extract::State;
use axum::response::IntoResponse as _;
use brokkr_api::ErrorCode;
use brokkr_api::health::{Health, Trouble};

use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::state::Broker;

/// The outbox tail reads several times a second, and a full reload takes seconds: after this time it is stuck.
const STUCK: Duration = Duration::from_secs(120);
/// After this time without a read, the response names the database as a cause.
const FRESH: Duration = Duration::from_secs(5);

fn health(broker: &Broker) -> Health {
    let unread = broker.index.freshness().at.elapsed();
    let causes: Vec<_> = (unread > FRESH)
        .then(|| Trouble {
            part: "database".to_owned(),
            detail: format!(
                "not reachable for {} s; agents are served from memory, and changes are refused until it is available",
                unread.as_secs()
            ),
        })
        .into_iter()
        .collect();
    Health { whole: causes.is_empty(), causes }
}

/// Check liveness: the process responds, and the outbox tail that feeds the index is not stuck.
#[utoipa::path(get, path = "/livez", tag = "health", responses(
    (status = 200, description = "The process is alive.", body = Health),
    (status = 503, description = "The process is stuck and must be restarted."),
))]
pub async fn livez(State(broker): BrokerState) -> ApiResult {
    let since_heartbeat = broker.tail.last_heartbeat().elapsed();
    if since_heartbeat > STUCK {
        let detail =
            format!("the outbox has not been read for {} s; restart this replica", since_heartbeat.as_secs());
        return Err(ApiError::new(ErrorCode::BRK3003, detail));
    }
    Ok(axum::Json(health(&broker)).into_response())
}

/// Check readiness: the index is loaded, and this replica is not shutting down.
///
/// The response names causes of trouble.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, description = "The replica accepts requests.", body = Health),
    (status = 503, description = "Send requests to another replica."),
))]
pub async fn readyz(State(broker): BrokerState) -> ApiResult {
    if broker.shutdown.leaving.is_cancelled() {
        return Err(ApiError::new(ErrorCode::BRK3003, "this replica is shutting down").retry_after(1));
    }
    Ok(axum::Json(health(&broker)).into_response())
}

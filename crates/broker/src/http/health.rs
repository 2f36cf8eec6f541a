//! Is the process alive, and can it serve.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use brokkr_api::ErrorCode;

use super::error::ApiError;
use crate::broker::Broker;
use crate::store::installation::installation_reachable;

/// A tail that has not looked for this long is not fresh.
const FRESH: Duration = Duration::from_secs(5);

/// Alive.
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, description = "The process is alive.")))]
pub async fn livez() -> &'static str {
    "ok\n"
}

/// Ready: the index is loaded and fresh, the database answers, and nobody told this replica to stop.
#[utoipa::path(get, path = "/readyz", tag = "health", responses((status = 200, description = "It can serve.")))]
pub async fn readyz(State(broker): State<Arc<Broker>>) -> Result<&'static str, ApiError> {
    let not_ready = |why: &str| Err(ApiError::new(ErrorCode::BRK3003, why).retry_after(1));
    if broker.leaving.is_cancelled() {
        return not_ready("this replica is stopping");
    }
    if broker.index.seen().at.elapsed() > FRESH {
        return not_ready("the outbox tail is behind");
    }
    match tokio::time::timeout(Duration::from_secs(2), installation_reachable(&broker.pool)).await {
        Ok(reachable) => reachable?,
        Err(_) => return not_ready("the database does not answer"),
    }
    Ok("ok\n")
}

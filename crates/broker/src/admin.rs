//! The admin listener: health checks and metrics.
//!
//! It has its own connection limit, so that a health check succeeds while every connection for agents is in use. A client
//! that leaks connections cannot use all of them: the health check of the orchestrator comes from another address.

mod scrape;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use brokkr_metrics::MEDIA_TYPE;
use http::header::CONTENT_TYPE;

use crate::http::{health, middleware};
use crate::listener::{Connections, Limits};
use crate::state::Broker;
use scrape::scrape;

/// Only orchestrators and metric collectors connect here.
pub const LIMITS: Limits = Limits { connections: 64, per_address: 16, unauthenticated: 64 };

pub fn admin_router(broker: Arc<Broker>, connections: Connections) -> Router {
    let scraped = Arc::clone(&broker);
    let metrics = get(async move || ([(CONTENT_TYPE, MEDIA_TYPE)], scrape(&scraped, &connections).await));
    Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/metrics", metrics)
        .fallback(middleware::unknown_route)
        .with_state(broker)
}

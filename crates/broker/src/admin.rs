//! The listener for whoever runs the broker: health checks and metrics, apart from the crowd.
//!
//! It has places of its own, so that a health check gets in while every connection for agents is taken.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use brokkr_metrics::MEDIA_TYPE;
use http::header::CONTENT_TYPE;

use crate::broker::Broker;
use crate::http::{frame, health};
use crate::listener::{Connections, Limits};
use crate::metrics::scrape;

/// Orchestrators and metric collectors are few.
pub const LIMITS: Limits = Limits { connections: 64, per_address: 64 };

pub fn admin_router(broker: Arc<Broker>, connections: Connections) -> Router {
    let asked = Arc::clone(&broker);
    let metrics = get(async move || ([(CONTENT_TYPE, MEDIA_TYPE)], scrape(&asked, &connections).await));
    Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/metrics", metrics)
        .fallback(frame::unknown_route)
        .with_state(broker)
}

//! A project, its tokens and sessions, and the caller's identity.

use anyhow::Result;
use brokkr_api::protocol::header;
use brokkr_api::sessions::SessionDetails;
use brokkr_api::tokens::NewApiToken;
use reqwest::Method;
use serde_json::{from_value, json};

use super::Tour;
use crate::harness::{Caller, read};

/// Returns the owner of the project.
pub async fn walk(tour: &Tour) -> Result<Caller> {
    let ops = &tour.ops;
    for probe in ["/livez", "/readyz"] {
        tour.get(ops, probe).await?;
    }
    tour.put(ops, "projects/shop", json!({ "allowed": { "stacks": 50, "webhooks": 5 } })).await?;
    tour.get(ops, "projects").await?;
    tour.get(ops, "projects/shop").await?;
    ops.send(Method::PUT, "projects/attic", &json!({})).await?.error_for_status()?;
    tour.delete(ops, "projects/attic").await?;

    let wanted = json!({ "name": "pipeline", "role": "owner", "ttl_seconds": 30 * 24 * 3600 });
    let ask = ops.request(Method::POST, "api-tokens").header(header::PROJECT, "shop").json(&wanted);
    let made: NewApiToken = from_value(tour.recorder.ask(ask).await?)?;
    let owner = Caller::new(tour.harness.server.address, Some(made.token));
    tour.get(&owner, "whoami").await?;
    let ask = owner.request(Method::POST, "sessions").header(header::CONSOLE, "1");
    let open: SessionDetails = from_value(tour.recorder.ask(ask).await?)?;
    tour.get(&owner, "sessions").await?;
    let path = format!("sessions/{}", open.session.id);
    tour.get(&owner, &path).await?;
    tour.delete(&owner, &path).await?;
    let wanted = json!({ "name": "dashboard", "role": "viewer" });
    let spare: NewApiToken = read(owner.send(Method::POST, "api-tokens", &wanted).await?).await?;
    tour.get(&owner, "api-tokens").await?;
    let path = format!("api-tokens/{}", spare.info.id);
    tour.get(&owner, &path).await?;
    tour.delete(&owner, &path).await?;
    Ok(owner)
}

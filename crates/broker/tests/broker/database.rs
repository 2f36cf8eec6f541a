//! The database becomes unavailable and returns.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::ErrorCode;
use brokkr_api::protocol::header;
use brokkr_testkit::postgres::Durability;
use brokkr_testkit::{Postgres, eventually};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::harness::{Harness, YAML, refused};

#[tokio::test(flavor = "multi_thread")]
async fn polls_are_answered_without_the_database_and_writes_are_refused() -> Result<()> {
    let postgres = Arc::new(Postgres::start_with(Durability::Full).await?);
    let harness = Harness::open_on(Arc::clone(&postgres)).await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    harness.stack("web", json!({ "selectors": ["*"] })).await?;
    harness.submit("web", YAML).await?;
    let before = agent.poll().await?;

    let server = postgres.server().context("a separate server")?;
    server.kill9().await?;
    assert_eq!(agent.poll().await?.etag, before.etag, "no SQL on that path");
    assert!(!before.headers.contains_key(header::STALE), "the database was reachable a moment ago");
    let stale = eventually(Duration::from_secs(20), "answers to be marked stale", async || {
        let now = agent.poll().await?;
        let seconds = now.headers.get(header::STALE).context("not yet")?.to_str()?.parse::<u64>()?;
        assert_eq!(now.etag, before.etag, "the envelope is unchanged");
        anyhow::Ok(seconds)
    })
    .await?;
    assert!(stale >= 3, "{stale}");
    let waited = agent.wait(&before.etag, 1).await?;
    assert_eq!(waited.status, StatusCode::NOT_MODIFIED);
    assert!(waited.headers.contains_key(header::STALE), "an unchanged response is marked, too");
    let response = harness.admin.send(Method::PUT, "stacks/other", &json!({})).await?;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(refused(response).await?, ErrorCode::BRK3003);
    assert_eq!(harness.without_credential().get("/livez").await?.status(), StatusCode::OK);
    // Another replica or a restart would not help, so the replica stays ready, but reports the problem.
    let health = async || harness.without_credential().get_json::<serde_json::Value>("/readyz").await;
    eventually(
        Duration::from_secs(20),
        "the broker to report that the database is unreachable",
        async || {
            let health = health().await?;
            anyhow::ensure!(
                health["whole"] == false && health["causes"][0]["part"] == "database",
                "{health}"
            );
            anyhow::Ok(())
        },
    )
    .await?;

    server.start_again().await?;
    eventually(Duration::from_secs(20), "the broker to be ready again", async || {
        health().await.is_ok_and(|health| health["whole"] == true)
    })
    .await?;
    let object = harness.submit("web", YAML).await?;
    let fresh = agent.poll().await?;
    assert!(!fresh.headers.contains_key(header::STALE));
    let envelope = fresh.envelope()?;
    assert_eq!(envelope.stacks[0].sequence_id, object.sequence_id);
    Ok(())
}

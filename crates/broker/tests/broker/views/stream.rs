//! The stream of a matrix: the whole matrix, then what changes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brokkr_api::fleet::{ChangedVersion, FleetChanges, FleetMatrix};
use brokkr_api::report::Transition;
use brokkr_api::tokens::Role;
use serde_json::json;

use super::{deployed, failed, settled};
use crate::harness::{Harness, YAML};
use crate::streams::Reader;

async fn matrix(reader: &mut Reader) -> Result<FleetMatrix> {
    let message = reader.next().await?.context("the stream ended")?;
    assert_eq!(message.name, "matrix", "{}", message.data);
    let matrix: FleetMatrix = serde_json::from_str(&message.data)?;
    assert_eq!(message.id, matrix.freshness.position.to_string());
    Ok(matrix)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_changed_cells_are_sent_at_most_twice_a_second() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agents = Vec::new();
    for name in ["eu-1", "eu-2", "us-1"] {
        agents.push(harness.agent(name, json!({ "region": &name[..2] })).await?);
    }
    let (web, version) = deployed(&harness.admin, "web", json!({ "selectors": ["*"] })).await?;
    settled(&harness.server.broker).await?;
    let mut reader = Reader::open(&harness.admin, "fleet/stream?by=region", None).await?;
    let mut shown = matrix(&mut reader).await?;
    assert_eq!(shown.rows[0].cells.iter().map(|cell| cell.pending).collect::<Vec<_>>(), [2, 1]);

    let report = failed(&agents[2], &web, version, 1_700_000_000);
    agents[2].send_reports(&[report]).await?.error_for_status()?;
    let begun = Instant::now();
    let mut messages = 0;
    for second in 1..20 {
        let transition = if second % 2 == 0 { Transition::Healthy } else { Transition::Degraded };
        let report = agents[0].report(web.id, version, transition, 1_700_000_000 + second);
        agents[0].send_reports(&[report]).await?.error_for_status()?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let last = agents[0].report(web.id, version, Transition::Healthy, 1_700_000_100);
    agents[0].send_reports(&[last]).await?.error_for_status()?;
    loop {
        let message = reader.next().await?.context("the stream ended")?;
        assert_eq!(message.name, "cells", "no row and no column has changed");
        let changes: FleetChanges = serde_json::from_str(&message.data)?;
        messages += 1;
        for changed in changes.cells {
            let cell = &mut shown.rows[changed.row].cells[changed.column];
            assert_ne!(*cell, changed.cell, "it has changed");
            *cell = changed.cell;
        }
        if (shown.rows[0].cells[0].on_intent, shown.rows[0].cells[1].failing) == (1, 1) {
            break;
        }
    }
    let most = 2 + begun.elapsed().as_millis() / 500;
    assert!(messages <= most, "{messages} messages in {:?}", begun.elapsed());

    // A new version is no other row.
    let next = harness.submit("web", &YAML.replace("greeting", "farewell")).await?.sequence_id;
    loop {
        let message = reader.next().await?.context("the stream ended")?;
        assert_eq!(message.name, "cells", "no row and no column has changed");
        let changes: FleetChanges = serde_json::from_str(&message.data)?;
        if let [changed] = changes.versions[..] {
            assert_eq!(changed, ChangedVersion { row: 0, sequence_id: Some(next) });
            break;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_its_token() -> Result<()> {
    let harness = Harness::open().await?;
    let viewer = harness.with_role(Role::Viewer).await?;
    let mut reader = Reader::open(&viewer, "fleet/stream", None).await?;
    matrix(&mut reader).await?;
    let mut connection = harness.database.connect().await?;
    sqlx::query("DELETE FROM api_tokens WHERE role = 'viewer'").execute(&mut connection).await?;
    while let Some(message) = reader.next().await? {
        assert_ne!(message.name, "reset", "nothing was restored");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_while_the_permission_cannot_be_checked() -> Result<()> {
    /// A checked permission is trusted for up to five seconds.
    const TRUSTED: Duration = Duration::from_secs(6);
    const END: Duration = Duration::from_secs(9);
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let (web, version) = deployed(&harness.admin, "web", json!({ "selectors": ["*"] })).await?;
    settled(&harness.server.broker).await?;
    let viewer = harness.with_role(Role::Viewer).await?;
    let mut reader = Reader::open(&viewer, "fleet/stream", None).await?;
    matrix(&mut reader).await?;

    let mut lock = harness.database.connect().await?;
    sqlx::query("BEGIN").execute(&mut lock).await?;
    sqlx::query("LOCK TABLE api_tokens IN ACCESS EXCLUSIVE MODE").execute(&mut lock).await?;
    let locked = Instant::now();
    let changing = async {
        for second in 1.. {
            let transition = if second % 2 == 0 { Transition::Healthy } else { Transition::Degraded };
            let report = agent.report(web.id, version, transition, 1_700_000_000 + second);
            agent.send_reports(&[report]).await?.error_for_status()?;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        anyhow::Ok(())
    };
    let reading = async {
        loop {
            match tokio::time::timeout(END.saturating_sub(locked.elapsed()), reader.next()).await {
                Ok(Ok(Some(_))) => assert!(locked.elapsed() < TRUSTED, "sent without a check"),
                Ok(Ok(None)) | Err(_) => return anyhow::Ok(()),
                Ok(Err(error)) => return Err(error),
            }
        }
    };
    tokio::select! {
        ended = changing => ended,
        ended = reading => ended,
    }
}

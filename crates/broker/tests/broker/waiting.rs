//! The memory that a waiting agent costs in a real broker process; each agent has its own TLS connection.

use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::AgentId;
use brokkr_testkit::eventually;

use crate::fleet::Fleet;

/// Waiting polls per test: enough to make the base memory of the process negligible.
const MANY: usize = 2000;
/// The limit per poll in an unoptimised build, which has larger futures; about 13 KB were measured.
const BYTES_EACH: usize = 16 * 1024;
/// The target in an optimised build.
const TARGET_BYTES_EACH: usize = 20 * 1024;
/// HTTP/2 has buffers that cannot be released. Agents do not use it; other clients may.
const BYTES_EACH_HTTP2: usize = 72 * 1024;

async fn bytes_per_waiter(http2: bool, settings: &[&str]) -> Result<usize> {
    let fleet = Fleet::start(MANY + 200, settings).await?;
    // The first agents warm up caches, threads and the allocator.
    let (first, others) = fleet.members.split_at(200);
    let mut count = 0;
    let warm = wait_all(&fleet, first, http2, &mut count).await?;
    let before = fleet.resident()?;
    let waiting = wait_all(&fleet, others, http2, &mut count).await?;
    let after = fleet.resident()?;
    let each = (after - before) / MANY;
    eprintln!("http2 {http2}, {settings:?}: {each} bytes per waiter, {before} before, {after} after");
    drop((warm, waiting));
    Ok(each)
}

/// Lets each agent open a connection, poll once, and poll again with the received tag, to wait.
async fn wait_all(
    fleet: &Fleet,
    members: &[AgentId],
    http2: bool,
    waiting: &mut usize,
) -> Result<Vec<tokio::task::JoinHandle<()>>> {
    let mut tasks = Vec::with_capacity(members.len());
    for batch in members.chunks(50) {
        let asked = batch.iter().map(|&member| async move {
            let client = fleet.client(http2)?;
            let request = fleet.poll(&client, member)?;
            let response = request.send().await?.error_for_status()?;
            let etag = response.headers().get("etag").context("a tag")?.clone();
            response.bytes().await?;
            let poll = fleet.poll(&client, member)?.header("if-none-match", etag).header("prefer", "wait=60");
            anyhow::Ok(tokio::spawn(async move {
                let _ = poll.send().await;
            }))
        });
        tasks.extend(futures::future::try_join_all(asked).await?);
    }
    *waiting += members.len();
    eventually(Duration::from_secs(60), "all of them to wait", async || {
        let waiters = fleet.figure("brokkr_long_polls_waiting").await?;
        anyhow::ensure!(waiters == *waiting as f64, "{waiters} wait");
        anyhow::Ok(())
    })
    .await?;
    Ok(tasks)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_waits_on_http1_costs_little() -> Result<()> {
    let each = bytes_per_waiter(false, &[]).await?;
    assert!(each <= BYTES_EACH, "{each}");
    Ok(())
}

/// The reason for the own code, see decision 0009. If this fails after an update, it may no longer be needed.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_waits_in_hyper_costs_more_than_the_target() -> Result<()> {
    let each = bytes_per_waiter(false, &["--long-polls-in-hyper"]).await?;
    assert!(each > TARGET_BYTES_EACH, "{each}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_on_http2_costs_no_more_than_its_buffers() -> Result<()> {
    let each = bytes_per_waiter(true, &[]).await?;
    assert!(each <= BYTES_EACH_HTTP2, "{each}");
    Ok(())
}

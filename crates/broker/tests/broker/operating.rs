//! Metrics, health checks, and a shutdown that loses nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brokkr_api::tokens::Role;
use brokkr_testkit::eventually;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::{Client, StatusCode};

use crate::fleet::Fleet;
use crate::harness::{YAML, serve_with, token};

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_documented_and_their_number_does_not_depend_on_the_fleet() -> Result<()> {
    let fleet = Fleet::start(300, &[]).await?;
    let client = fleet.client(false)?;
    let series = async |agents: usize| -> Result<(usize, String)> {
        for agent in &fleet.members[..agents] {
            fleet.poll(&client, *agent)?.send().await?.error_for_status()?;
        }
        let (status, text) = fleet.asked("/metrics").await?;
        assert_eq!(status, StatusCode::OK);
        Ok((text.lines().filter(|line| !line.starts_with('#')).count(), text))
    };
    let (few, _) = series(3).await?;
    let (many, text) = series(300).await?;
    assert_eq!(few, many, "{text}");
    assert!(text.ends_with("# EOF\n"));
    assert!(
        text.contains("brokkr_agents_seen 300\n") && text.contains("brokkr_index_agents 300\n"),
        "{text}"
    );
    let polls = "brokkr_requests_total{route=\"/api/v1/agents/{agent}/target-state\",method=\"GET\",status=\"2xx\"} 303";
    assert!(text.contains(polls), "{text}");

    let mut exported: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    // This metric is absent until a statement has failed.
    exported.insert("brokkr_statements_failed");
    // And this one if no stack is listed.
    exported.insert("brokkr_stack_agents");
    let page = include_str!("../../../../docs/metrics.md");
    let documented: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    // The metrics of agents are compared by a test of the agent.
    let documented = documented.into_iter().filter(|name| !name.starts_with("brokkr_agent_")).collect();
    assert_eq!(exported, documented);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_shuts_down_becomes_unready_completes_all_requests_and_exits() -> Result<()> {
    let fleet = Arc::new(Fleet::start(60, &["--drain-grace", "2s", "--drain", "8s"]).await?);
    let other = serve_with(&fleet.database, None).await?;
    let token = token(&fleet.database, Role::Admin).await?;
    let client = fleet.client(true)?;
    let made = client.put(fleet.url("/api/v1/stacks/web")).bearer_auth(&token).json(&serde_json::json!({}));
    made.send().await?.error_for_status()?;

    // Agents that wait, and submissions without a pause.
    let waiting: Vec<_> =
        fleet.members.iter().map(|agent| wait(Arc::clone(&fleet), *agent)).map(tokio::spawn).collect();
    eventually(Duration::from_secs(30), "all agents to wait", async || {
        fleet.figure("brokkr_long_polls_waiting").await.is_ok_and(|waiters| waiters == 60.0)
    })
    .await?;
    let (done, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let brokers = [fleet.url(""), format!("http://{}", other.address)];
    let submitting: Vec<_> = (0..4)
        .map(|writer| {
            let submissions = Submissions {
                client: client.clone(),
                brokers: brokers.clone(),
                token: token.clone(),
                done: Arc::clone(&done),
                count: Arc::clone(&count),
            };
            tokio::spawn(submissions.run(writer))
        })
        .collect();
    eventually(Duration::from_secs(30), "submissions to flow", async || count.load(Ordering::Relaxed) > 20)
        .await?;

    let pid = Pid::from_raw(i32::try_from(fleet.process.pid().context("it runs")?)?);
    let signalled = Instant::now();
    kill(pid, Signal::SIGTERM)?;
    eventually(Duration::from_secs(2), "the replica to become unready", async || {
        fleet.asked("/readyz").await.is_ok_and(|(status, _)| status == StatusCode::SERVICE_UNAVAILABLE)
    })
    .await?;
    // Clients that still use this replica are served, also on new connections.
    assert_eq!(fleet.client(false)?.get(fleet.url("/livez")).send().await?.status(), StatusCode::OK);
    assert_eq!(fleet.asked("/livez").await?.0, StatusCode::OK);

    let mut ended = Vec::new();
    for poll in waiting {
        let (status, at) = poll.await??;
        assert_eq!(status, StatusCode::NOT_MODIFIED);
        ended.push(at.duration_since(signalled));
    }
    let (first, last) = (ended.iter().min().context("one")?, ended.iter().max().context("one")?);
    assert!(
        *first >= Duration::from_secs(2) && *last - *first > Duration::from_secs(1),
        "{first:?} to {last:?}"
    );
    let status = fleet.process.ended(Duration::from_secs(30)).await?;
    assert!(status.success(), "{status}");
    let before = count.load(Ordering::Relaxed);
    eventually(Duration::from_secs(30), "submissions to flow elsewhere", async || {
        count.load(Ordering::Relaxed) > before + 20
    })
    .await?;
    done.store(true, Ordering::Relaxed);
    let mut acknowledged = 0;
    for writer in submitting {
        acknowledged += writer.await??;
    }
    let mut connection = fleet.database.connect().await?;
    let stored: i64 =
        sqlx::query_scalar("SELECT count(*) FROM deployment_objects").fetch_one(&mut connection).await?;
    assert_eq!(usize::try_from(stored)?, acknowledged, "each once");
    Ok(())
}

async fn wait(fleet: Arc<Fleet>, agent: brokkr_api::AgentId) -> Result<(StatusCode, Instant)> {
    let client = fleet.client(false)?;
    let response = fleet.poll(&client, agent)?.send().await?.error_for_status()?;
    let etag = response.headers().get("etag").context("a tag")?.clone();
    response.bytes().await?;
    let poll = fleet.poll(&client, agent)?.header("if-none-match", etag).header("prefer", "wait=120");
    Ok((poll.send().await?.status(), Instant::now()))
}

/// A client that submits continuously, and uses the other replica if one does not respond.
struct Submissions {
    client: Client,
    brokers: [String; 2],
    token: String,
    done: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
}

impl Submissions {
    async fn run(self, writer: usize) -> Result<usize> {
        let mut acknowledged = 0;
        while !self.done.load(Ordering::Relaxed) {
            let key = format!("{writer}-{acknowledged}");
            self.submit(&key).await?;
            acknowledged += 1;
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(acknowledged)
    }

    /// Submits to the first replica that responds; fails if the response is not a success.
    async fn submit(&self, key: &str) -> Result<()> {
        for broker in &self.brokers {
            let request = self
                .client
                .post(format!("{broker}/api/v1/stacks/web/deployment-objects"))
                .bearer_auth(&self.token)
                .header("idempotency-key", key)
                .body(YAML);
            if let Ok(response) = request.send().await {
                response.error_for_status()?;
                return Ok(());
            }
        }
        anyhow::bail!("no replica answered {key}")
    }
}

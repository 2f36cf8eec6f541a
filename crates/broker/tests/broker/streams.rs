//! Watch streams: no event is skipped, a client resumes where it was disconnected, and a revoked permission ends the stream.

use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::ErrorCode;
use brokkr_api::events::Event;
use brokkr_api::report::Transition;
use brokkr_api::status::{StackStatus, State};
use brokkr_api::tokens::Role;
use reqwest::{Method, Response};
use serde_json::json;

use crate::harness::{Caller, Harness, YAML, refused};

/// A reader of one stream.
pub struct Reader {
    response: Response,
    text: String,
}

#[derive(Debug)]
pub struct Message {
    pub id: String,
    pub name: String,
    pub data: String,
}

impl Reader {
    pub async fn open(caller: &Caller, path: &str, last: Option<&str>) -> Result<Self> {
        let mut request = caller.request(Method::GET, path);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await?.error_for_status()?;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Ok(Self { response, text: String::new() })
    }

    /// Returns the next message; none when the stream ended.
    pub async fn next(&mut self) -> Result<Option<Message>> {
        let read = async {
            loop {
                if let Some((message, rest)) = self.text.split_once("\n\n") {
                    let field = |name: &str| {
                        let line = message.lines().find_map(|line| line.strip_prefix(name));
                        line.map(|value| value.trim_start().to_owned()).unwrap_or_default()
                    };
                    let found = Message { id: field("id:"), name: field("event:"), data: field("data:") };
                    self.text = rest.to_owned();
                    if found.name.is_empty() {
                        continue;
                    }
                    return Ok(Some(found));
                }
                match self.response.chunk().await? {
                    Some(chunk) => self.text.push_str(std::str::from_utf8(&chunk)?),
                    None => return Ok(None),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), read).await.context("no message arrived")?
    }

    async fn event(&mut self) -> Result<(String, Event)> {
        let message = self.next().await?.context("the stream ended")?;
        assert_eq!(message.name, "event");
        Ok((message.id, serde_json::from_str(&message.data)?))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_resumes_and_skips_nothing_that_commits_late() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let report =
        |second: i64| agent.report(stack.id, object.sequence_id, Transition::Healthy, 1_700_000_000 + second);
    let mut reader = Reader::open(&harness.admin, "events/stream", None).await?;
    // Another reader sees only what it asked for.
    let mut other = Reader::open(&harness.admin, "events/stream?agent=shop-1&stack=web", None).await?;
    agent.send_reports(&[report(1)]).await?;
    let (first_id, first) = reader.event().await?;
    assert_eq!(
        (first.id, first.stack_name.as_str(), first.agent_name.as_str()),
        (report(1).id, "web", "shop-1")
    );
    assert_eq!(other.event().await?.1.id, report(1).id);
    drop(reader);

    // One event gets its position first but commits last; another one commits in between.
    let mut late = harness.database.connect().await?;
    sqlx::query("BEGIN").execute(&mut late).await?;
    let insert = "INSERT INTO events (project, id, at, stack_id, agent_id, sequence_id, transition, reason, message, objects, hops)
                  SELECT project, gen_random_uuid(), at, stack_id, agent_id, sequence_id, 'degraded', '', 'late', objects, hops FROM events LIMIT 1";
    sqlx::query(insert).execute(&mut late).await?;
    agent.send_reports(&[report(2)]).await?;
    let mut reader = Reader::open(&harness.admin, "events/stream", Some(&first_id)).await?;
    sqlx::query("COMMIT").execute(&mut late).await?;
    let (_, second) = reader.event().await?;
    let (third_id, third) = reader.event().await?;
    assert_eq!(
        (second.message.to_string(), third.id),
        ("late".to_owned(), report(2).id),
        "in the order of transactions"
    );
    drop(reader);

    // Resumes at another replica, behind by more events than one statement reads.
    let replica = harness.replica().await?;
    let elsewhere = harness.admin.at(replica.address);
    let many: Vec<_> = (100..550).map(report).collect();
    agent.send_reports(&many).await?;
    let mut reader = Reader::open(&elsewhere, "events/stream", Some(&third_id)).await?;
    for expected in &many {
        assert_eq!(reader.event().await?.1.id, expected.id);
    }
    agent.send_reports(&[report(600)]).await?;
    assert_eq!(reader.event().await?.1.id, report(600).id);

    // With an id from before a restore, the stream sends a reset and continues from now.
    let mut reader = Reader::open(&harness.admin, "events/stream", Some("99.5.1")).await?;
    assert_eq!(reader.next().await?.context("a message")?.name, "reset");
    let nonsense =
        harness.admin.request(Method::GET, "events/stream").header("last-event-id", "x").send().await?;
    assert_eq!(refused(nonsense).await?, ErrorCode::BRK2003);
    replica.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_a_stack_is_followed() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let other = harness.stack("other", json!({ "selectors": ["*"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let mut reader = Reader::open(&harness.admin, "stacks/web/status/stream", None).await?;
    let elsewhere = agent.report(other.id, object.sequence_id, Transition::Failed, 1_700_000_000);
    agent.send_reports(&[elsewhere]).await?;
    let healthy = agent.report(stack.id, object.sequence_id, Transition::Healthy, 1_700_000_001);
    agent.send_reports(&[healthy]).await?;
    let message = reader.next().await?.context("a message")?;
    let status: StackStatus = serde_json::from_str(&message.data)?;
    assert_eq!((message.name.as_str(), status.state), ("status", State::Healthy));
    assert_eq!((status.agent_name.as_str(), status.stack_name.as_str()), ("shop-1", "web"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_its_token_is_deleted_and_the_number_of_streams_is_limited() -> Result<()> {
    let harness = Harness::open().await?;
    let viewer = harness.with_role(Role::Viewer).await?;
    let mut reader = Reader::open(&viewer, "events/stream", None).await?;
    let mut connection = harness.database.connect().await?;
    sqlx::query("DELETE FROM api_tokens WHERE role = 'viewer'").execute(&mut connection).await?;
    assert!(reader.next().await?.is_none(), "it ends by itself");

    let mut open = Vec::new();
    let refusal = loop {
        let response = harness.admin.request(Method::GET, "events/stream").send().await?;
        if !response.status().is_success() {
            break response;
        }
        open.push(response);
        assert!(open.len() < 1000, "there is a limit");
    };
    assert_eq!(refused(refusal).await?, ErrorCode::BRK2020);
    // A new stream is accepted once one is closed.
    let before = open.len();
    open.pop();
    let again = async || {
        for _ in 0..600 {
            let response = harness.admin.request(Method::GET, "events/stream").send().await?;
            if response.status().is_success() {
                return Ok(response);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::bail!("no stream was accepted")
    };
    open.push(again().await?);
    assert_eq!(open.len(), before);
    Ok(())
}

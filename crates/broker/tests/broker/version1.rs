//! An agent of protocol version 1, byte for byte: its requests are recorded in files. The broker has to
//! understand them as long as it supports such agents, also through a restore.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use brokkr_api::assertion::BoundRequest;
use brokkr_api::envelope::Envelope;
use brokkr_api::ids::Checksum;
use brokkr_api::protocol::{OLDEST_PROTOCOL_VERSION, holds_digest};
use brokkr_api::report::{ReportReceipt, Transition};
use brokkr_api::{ErrorCode, Problem, StackId};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{Agent, Harness, YAML};
use crate::restore::epoch;

const SESSION: &str = include_str!("version1/session.http");
const POLL: &str = include_str!("version1/poll.http");
const HOLDS: &str = include_str!("version1/holds.http");
const CONTENT: &str = include_str!("version1/content.http");
const REPORTS: &str = include_str!("version1/reports.http");

/// The response.
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Answer {
    fn code(&self) -> Result<ErrorCode> {
        Ok(serde_json::from_slice::<Problem>(&self.body)?.code)
    }
}

/// An agent that sends the recorded requests with their blanks filled in.
struct OldAgent<'a> {
    harness: &'a Harness,
    agent: &'a Agent,
    blanks: BTreeMap<&'static str, String>,
}

impl OldAgent<'_> {
    fn fill(&mut self, blank: &'static str, value: impl ToString) {
        self.blanks.insert(blank, value.to_string());
    }

    async fn send(&mut self, recorded: &str) -> Result<Answer> {
        self.fill("key", uuid::Uuid::new_v4());
        let fill = |text: &str| {
            self.blanks
                .iter()
                .fold(text.to_owned(), |text, (blank, value)| text.replace(&format!("{{{blank}}}"), value))
        };
        let (head, body) = recorded.split_once("\n\n").context("a head and a body")?;
        let body = fill(body.trim_end());
        let head = fill(head).replace("{length}", &body.len().to_string());
        let claims = self.agent.signer().claims(bound(&head, &body));
        let head = head.replace("{assertion}", &self.agent.key.sign(&claims)?).replace('\n', "\r\n");
        let mut stream = TcpStream::connect(self.harness.server.address).await?;
        stream.write_all(format!("{head}\r\nconnection: close\r\n\r\n{body}").as_bytes()).await?;
        let mut raw = Vec::new();
        stream.read_to_end(&mut raw).await?;
        read(&raw)
    }
}

/// Returns what the assertion is bound to; none for a `GET`.
fn bound(head: &str, body: &str) -> Option<BoundRequest> {
    let header = |name: &str| {
        let found = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        found.map(str::to_owned)
    };
    let mut words = head.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (idempotency_key, session) = (header("idempotency-key"), header("brokkr-session"));
    let body = Checksum::of(body.as_bytes());
    (method != "GET").then_some(BoundRequest { method, path, idempotency_key, session, body })
}

fn read(raw: &[u8]) -> Result<Answer> {
    let end = raw.windows(4).position(|four| four == b"\r\n\r\n").context("a whole head")?;
    let head = std::str::from_utf8(&raw[..end])?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).context("a status")?;
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    Ok(Answer { status, headers, body: raw[end + 4..].to_vec() })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_protocol_version_1_keeps_working_through_a_restore() -> Result<()> {
    assert_eq!(OLDEST_PROTOCOL_VERSION, 1, "when version 1 is no longer supported, delete this test");
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let mut old = OldAgent { harness: &harness, agent: &agent, blanks: BTreeMap::new() };
    old.fill("agent", agent.id);
    old.fill("instance", agent.session.instance);
    old.fill("stack", stack.id);
    old.fill("sequence", object.sequence_id);
    old.fill("position", "0.0");
    old.fill("holds", holds_digest([]));
    let report = agent.report(stack.id, object.sequence_id, Transition::Healthy, 1_767_225_600);
    old.fill("report", report.id);

    let opened = old.send(SESSION).await?;
    // It ignores the fields that it does not know.
    assert_eq!((opened.status, &opened.body[..]), (200, &br#"{"verdict":"serves","count":1}"#[..]));
    let polled = old.send(POLL).await?;
    assert_eq!(polled.status, 200);
    assert_eq!(polled.headers["etag"], format!("\"{}\"", Checksum::of(&polled.body)));
    assert_eq!(polled.headers["content-type"], "application/vnd.brokkr.target-state.v1+json");
    let envelope: Envelope = serde_json::from_slice(&polled.body)?;
    assert_eq!((envelope.protocol, envelope.stacks.len()), (1, 1));
    old.fill("position", &polled.headers["brokkr-position"]);

    let held = old.send(HOLDS).await?;
    assert_eq!(held.status, 204);
    old.fill("position", &held.headers["brokkr-position"]);
    assert_eq!(old.send(POLL).await?.code()?, ErrorCode::BRK3001, "it is asked for what it holds");
    let holding: [StackId; 1] = [stack.id];
    old.fill("holds", holds_digest(holding));
    assert_eq!(old.send(POLL).await?.status, 200);
    let content = old.send(CONTENT).await?;
    assert_eq!((content.status, &content.body[..]), (200, YAML.as_bytes()));
    let reported = old.send(REPORTS).await?;
    assert_eq!(reported.status, 200, "{}", String::from_utf8_lossy(&reported.body));
    let receipt: ReportReceipt = serde_json::from_slice(&reported.body)?;
    assert_eq!(receipt.accepted, [report.id]);

    // On hold it gets no target state. After the epoch is raised it is asked for its stacks, reports them, and is served.
    epoch(&harness.database, &["hold"]).await?;
    brokkr_testkit::eventually(std::time::Duration::from_secs(30), "the hold", async || {
        harness.server.broker.restore.hold().is_some()
    })
    .await?;
    assert_eq!(old.send(POLL).await?.code()?, ErrorCode::BRK3001);
    assert_eq!(old.send(HOLDS).await?.status, 204);
    assert_eq!(old.send(POLL).await?.status, 503);
    epoch(&harness.database, &["raise"]).await?;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let polled = old.send(POLL).await?;
        if polled.status == 428 {
            assert_eq!(old.send(HOLDS).await?.status, 204);
        } else if polled.status == 200 {
            let envelope: Envelope = serde_json::from_slice(&polled.body)?;
            assert_eq!(envelope.stacks[0].sequence_id, object.sequence_id);
            return Ok(());
        }
        anyhow::ensure!(std::time::Instant::now() < deadline, "{} {:?}", polled.status, polled.code());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

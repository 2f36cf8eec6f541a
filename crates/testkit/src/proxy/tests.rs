//! The proxy in front of a real server that counts writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::{get, post};
use bytes::Bytes;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{Action, CannedResponse, FaultProxy, Matcher};
use crate::eventually::eventually;
use crate::scratch::Scratch;
use crate::scripted::listener;
use crate::tls::Authority;

const TIMEOUT: Duration = Duration::from_secs(20);

struct TestServer {
    proxy: FaultProxy,
    client: reqwest::Client,
    /// How many writes the real server executed.
    written: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
    _scratch: Scratch,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl TestServer {
    async fn open() -> Result<Self> {
        let (authority, scratch) = (Authority::new("server")?, Scratch::new("server")?);
        let written = Arc::new(AtomicUsize::new(0));
        let write = async |State(written): State<Arc<AtomicUsize>>, body: String| {
            format!("{} {body}", written.fetch_add(1, Ordering::SeqCst) + 1)
        };
        let router = Router::new()
            .route("/api/v1/things/{name}", post(write))
            .route("/api/v1/things", get(things))
            .with_state(written.clone());
        let identity = authority.server(&scratch, "server", &[])?;
        let (address, serving) = listener::serve(&identity, router).await?;
        let proxy =
            FaultProxy::in_front_of(&format!("https://{address}"), &authority.pem(), &authority).await?;
        let client = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(authority.pem().as_bytes())?])
            .no_proxy()
            .timeout(TIMEOUT)
            .build()?;
        Ok(Self { proxy, client, written, serving, _scratch: scratch })
    }

    async fn write(&self, name: &str) -> Result<String> {
        let url = format!("{}/api/v1/things/{name}", self.proxy.url());
        Ok(self.client.post(url).body("x").send().await?.error_for_status()?.text().await?)
    }

    async fn list(&self, query: &str) -> Result<reqwest::Response> {
        Ok(self.client.get(format!("{}/api/v1/things{query}", self.proxy.url())).send().await?)
    }

    fn written(&self) -> usize {
        self.written.load(Ordering::SeqCst)
    }
}

/// Returns the list; for a watch, three events, after which the watch ends.
async fn things(State(written): State<Arc<AtomicUsize>>, request: axum::extract::Request) -> Body {
    if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
        let event = |name: &str| json!({"type": "ADDED", "object": {"metadata": {"name": name}}});
        let lines = ["one", "two", "three"].map(|name| Ok::<_, std::io::Error>(format!("{}\n", event(name))));
        return Body::from_stream(futures::stream::iter(lines));
    }
    Body::from(json!({"items": written.load(Ordering::SeqCst)}).to_string())
}

#[tokio::test]
async fn the_nth_write_is_executed_and_its_response_lost() -> Result<()> {
    let server = TestServer::open().await?;
    let rule = server.proxy.when(Matcher::writes().nth(2), Action::LoseResponse);
    assert_eq!(server.write("a").await?, "1 x");
    server.write("b").await.expect_err("no answer");
    assert_eq!(server.write("c").await?, "3 x", "the second was executed");
    assert_eq!(rule.hits(), 1);
    let trace = server.proxy.trace();
    let seen: Vec<_> =
        trace.iter().map(|exchange| (exchange.server_status, exchange.client_status)).collect();
    assert_eq!(seen, [(Some(200), Some(200)), (Some(200), None), (Some(200), Some(200))]);
    assert_eq!(trace[1].request.resource.as_ref().and_then(|path| path.name.as_deref()), Some("b"));
    assert_eq!(trace[1].request.body, Bytes::from("x"));
    Ok(())
}

#[tokio::test]
async fn a_held_write_lands_after_its_sender_has_gone() -> Result<()> {
    let server = TestServer::open().await?;
    let rule = server.proxy.when(Matcher::writes().named("a"), Action::Hold);
    let given_up = tokio::time::timeout(Duration::from_millis(300), server.write("a")).await;
    assert!(given_up.is_err() && rule.hits() == 1 && server.written() == 0, "held");
    server.write("b").await?;
    rule.release();
    eventually(TIMEOUT, "the held write to land", async || server.written() == 2).await
}

#[tokio::test]
async fn a_halt_holds_all_later_requests_and_discarded_ones_are_never_executed() -> Result<()> {
    let server = TestServer::open().await?;
    let rule = server.proxy.when(Matcher::writes().nth(2), Action::HaltAfter);
    server.write("a").await?;
    let (second, third) = futures::join!(
        tokio::time::timeout(Duration::from_millis(400), server.write("b")),
        tokio::time::timeout(Duration::from_millis(400), server.write("c")),
    );
    assert!(second.is_err() && third.is_err(), "no request is answered");
    assert_eq!(server.written(), 2, "the write that halted was executed, the one after it was not");
    rule.discard();
    assert_eq!(server.write("d").await?, "3 x");
    Ok(())
}

#[tokio::test]
async fn responses_are_replaced_changed_and_cut() -> Result<()> {
    let server = TestServer::open().await?;
    server.proxy.when(Matcher::path("/things").nth(1), Action::Respond(CannedResponse::too_many(7)));
    let busy = server.list("").await?;
    assert_eq!((busy.status().as_u16(), busy.headers()["retry-after"].to_str()?), (429, "7"));
    assert_eq!(busy.json::<Value>().await?["reason"], "TooManyRequests");
    server.proxy.heal();
    let snapshot = server.proxy.snapshot_of_lists();
    server.proxy.when(Matcher::any().nth(1), Action::Truncate);
    server.proxy.when(Matcher::any().nth(1), Action::CutResponse);
    server.proxy.when(Matcher::any().nth(1), Action::Cut);
    serde_json::from_str::<Value>(&server.list("").await?.text().await?)
        .expect_err("half of the body, as if it were complete");
    server.list("").await?.text().await.expect_err("cut in the middle");
    server.list("").await.expect_err("cut at once");
    assert_eq!(server.list("").await?.json::<Value>().await?["items"], 0);
    server.proxy.when(Matcher::lists("things"), Action::StaleLists(snapshot));
    assert_eq!(
        server.list("").await?.json::<Value>().await?["items"],
        0,
        "the snapshot is empty, so the request is forwarded"
    );
    let snapshot = server.proxy.snapshot_of_lists();
    server.proxy.heal();
    server.write("a").await?;
    server.proxy.when(Matcher::lists("things"), Action::StaleLists(snapshot));
    assert_eq!(server.list("").await?.json::<Value>().await?["items"], 0, "as in the snapshot");
    server.proxy.heal();
    assert_eq!(server.list("").await?.json::<Value>().await?["items"], 1);
    Ok(())
}

#[tokio::test]
async fn watches_lose_events_freeze_and_end() -> Result<()> {
    let server = TestServer::open().await?;
    let watch = async || anyhow::Ok(server.list("?watch=true").await?.text().await?);
    assert_eq!(watch().await?.lines().count(), 3);
    let rule = server.proxy.when(Matcher::watches("things"), Action::drop_events_of("two"));
    let received = watch().await?;
    assert!(
        received.contains("one") && !received.contains("two") && received.contains("three"),
        "{received}"
    );
    assert_eq!(rule.hits(), 1);
    server.proxy.heal();
    server.proxy.when(Matcher::watches("things").nth(1), Action::WatchLine(CannedResponse::gone_line()));
    assert!(watch().await?.contains("Expired"));
    let rule = server.proxy.when(Matcher::watches("things").nth(1), Action::Freeze);
    let mut frozen = server.list("?watch=true").await?.bytes_stream();
    let first = tokio::time::timeout(Duration::from_millis(300), frozen.next()).await;
    assert!(first.is_err(), "it sends nothing");
    rule.release();
    frozen.next().await.expect("an end").expect_err("and then it is cut");
    Ok(())
}

#[tokio::test]
async fn open_watches_are_ended_and_rules_stay() -> Result<()> {
    let server = TestServer::open().await?;
    let rule = server.proxy.when(Matcher::watches("things"), Action::Freeze);
    let mut open = server.list("?watch=true").await?.bytes_stream();
    server.proxy.end_watches();
    let end = tokio::time::timeout(TIMEOUT, open.next()).await?;
    assert!(end.is_none(), "a regular end: {end:?}");
    let mut next = server.list("?watch=true").await?.bytes_stream();
    let first = tokio::time::timeout(Duration::from_millis(300), next.next()).await;
    assert!(first.is_err() && rule.hits() == 2, "the next watch is frozen again");
    Ok(())
}

#[tokio::test]
async fn a_stale_list_is_counted_only_if_the_snapshot_contains_it() -> Result<()> {
    let server = TestServer::open().await?;
    let rule =
        server.proxy.when(Matcher::lists("things"), Action::StaleLists(server.proxy.snapshot_of_lists()));
    server.list("").await?;
    assert_eq!(rule.hits(), 0, "the snapshot is empty");
    rule.release();
    let rule =
        server.proxy.when(Matcher::lists("things"), Action::StaleLists(server.proxy.snapshot_of_lists()));
    server.list("").await?;
    assert_eq!(rule.hits(), 1);
    Ok(())
}

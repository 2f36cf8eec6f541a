//! Traces: the spans of a request at a collector, and their parents.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use brokkr_api::tokens::Role;
use brokkr_testkit::eventually;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::json;

use crate::fleet::Fleet;
use crate::harness::{YAML, token};

type Spans = Arc<Mutex<Vec<Span>>>;

/// Starts a collector that stores what it receives.
async fn collector() -> Result<(String, Spans)> {
    let spans = Spans::default();
    let receive = async |State(spans): State<Spans>, body: Bytes| {
        let batch = ExportTraceServiceRequest::decode(body).expect("OTLP");
        let new = batch.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        let mut spans = spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.extend(new.flat_map(|scope| scope.spans));
    };
    let router = Router::new().route("/v1/traces", post(receive)).with_state(Arc::clone(&spans));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    #[expect(clippy::disallowed_methods, reason = "one peer, the broker of this test")]
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok((url, spans))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_a_child_span_of_its_caller_and_a_poll_has_none() -> Result<()> {
    let (url, spans) = collector().await?;
    let fleet = Fleet::start(1, &["--traces", &url]).await?;
    let token = token(&fleet.database, Role::Admin).await?;
    let client = fleet.client(false)?;
    let stack = client.put(fleet.url("/api/v1/stacks/web")).bearer_auth(&token).json(&json!({}));
    stack.send().await?.error_for_status()?;
    fleet.poll(&client, fleet.members[0])?.send().await?.error_for_status()?;
    let (trace, caller) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let submitted = client
        .post(fleet.url("/api/v1/stacks/web/deployment-objects"))
        .bearer_auth(&token)
        .header("traceparent", format!("00-{trace}-{caller}-01"))
        .body(YAML);
    submitted.send().await?.error_for_status()?;

    let submit = "POST /api/v1/stacks/{stack}/deployment-objects";
    let found = || spans.lock().unwrap_or_else(PoisonError::into_inner).clone();
    eventually(Duration::from_secs(30), "the span to arrive", async || {
        found().iter().any(|span| span.name == submit)
    })
    .await?;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let spans = found();
    let request = spans.iter().find(|span| span.name == submit).context("the request")?;
    assert_eq!((hex(&request.trace_id).as_str(), hex(&request.parent_span_id).as_str()), (trace, caller));
    let status = request.attributes.iter().find(|attribute| attribute.key == "http.response.status_code");
    assert!(format!("{status:?}").contains("201"), "{status:?}");
    let commit = spans.iter().find(|span| span.name == "commit" && span.parent_span_id == request.span_id);
    let commit = commit.context("the span of the commit")?;
    assert!(commit.start_time_unix_nano >= request.start_time_unix_nano);
    let polls = spans.iter().filter(|span| span.name.contains("target-state"));
    assert_eq!(polls.count(), 0, "{spans:?}");
    Ok(())
}

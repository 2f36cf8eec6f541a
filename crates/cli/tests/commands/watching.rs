//! `--watch`: rows for people, one JSON document per line for programs. A broken stream continues after the last event.

use brokkr_api::ErrorCode;
use serde_json::{Value, json};

use crate::fake_broker::FakeBroker;
use crate::sample::{STACK_ID, STATUS, TIME, page, row, stack};

const STREAM: &str = "GET /api/v1/stacks/web/status/stream";
const LIST: &str = "GET /api/v1/stacks/web/status";

/// The same change twice, then the stream breaks; an unknown message and another change, then it breaks
/// again; then the token has expired, which ends the watch.
fn broker() -> FakeBroker {
    FakeBroker::start()
        .on(LIST, 200, page(&[row("a", 42, 41, "pending")]))
        .on_stream(
            STREAM,
            &[("status", row("a", 42, 42, "applied")), ("status", row("a", 42, 42, "applied"))],
        )
        .on_stream(STREAM, &[("news", json!({})), ("status", row("a", 42, 42, "healthy"))])
        .refuses(STREAM, ErrorCode::BRK1001, "the token has expired")
}

#[test]
fn each_change_is_a_row_below_the_list() {
    let broker = broker();
    let ran = broker.brokkr(&["status", "web", "-w"]).exits(4).says("the token has expired");
    let rows: Vec<Vec<&str>> =
        ran.stdout.lines().map(|line| line.split_whitespace().take(2).collect()).collect();
    assert_eq!(rows, [["AGENT", "STATE"], ["a", "pending"], ["a", "applied"], ["a", "healthy"]]);
    let asked: Vec<_> = broker.asked().into_iter().filter(|asked| asked.line == STREAM).collect();
    let last_ids: Vec<_> =
        asked.iter().map(|asked| asked.headers.get("last-event-id").map(String::as_str)).collect();
    assert_eq!(last_ids, [None, Some("1.1"), Some("1.1")]);
    assert_eq!(broker.asked()[0].line, STREAM, "the stream is opened before the list is read");
}

#[test]
fn with_json_each_line_is_a_document_and_the_first_has_the_version() {
    let ran = broker().brokkr(&["status", "web", "-w", "-o", "json"]).exits(4);
    let lines: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], json!({"type": "version", "stream": 1}));
    let events: Vec<_> =
        lines[1..].iter().map(|line| (line["type"].as_str(), line["state"].as_str())).collect();
    assert_eq!(
        events,
        [
            (Some("status"), Some("pending")),
            (Some("status"), Some("applied")),
            (Some("status"), Some("healthy"))
        ]
    );
    let ran = broker().brokkr(&["status", "web", "-w", "-o", "yaml"]).exits(4);
    assert!(ran.stdout.starts_with("---\ntype: status\n"), "{ran:?}");
}

pub fn event(id: &str, transition: &str) -> Value {
    json!({"id": id, "project": "default", "stack_id": STACK_ID, "stack_name": "web", "agent_id": STACK_ID,
        "agent_name": "a", "sequence_id": 42, "transition": transition, "at": TIME, "reason": "", "message": "",
        "objects": [], "hops": {}})
}

fn counts(healthy: u64, failed: u64) -> Value {
    json!({"project": "default", "stack_id": STACK_ID, "stack_name": "web", "sequence_id": 42, "targeted": 3, "holding": 3,
        "pending": 3 - healthy - failed, "applied": 0, "healthy": healthy, "degraded": 0, "failed": failed, "blocked": 0,
        "removed": 0, "behind": 0, "sequences": []})
}

/// One report that changes the counts of a stack; then the token has expired, which ends the watch.
pub fn broker_of_all() -> FakeBroker {
    let summary = STATUS.replace("/status", "/status/summary");
    FakeBroker::start()
        .on("GET /api/v1/stacks", 200, page(&[stack(&["env=dev"])]))
        .on(&summary, 200, counts(2, 0))
        .on(&summary, 200, counts(2, 1))
        .on_stream("GET /api/v1/events/stream", &[("event", event(STACK_ID, "failed"))])
        .refuses("GET /api/v1/events/stream", ErrorCode::BRK1001, "the token has expired")
}

#[test]
fn all_stacks_are_watched_and_each_change_is_a_row() {
    let broker = broker_of_all();
    let ran = broker.brokkr(&["status", "--watch"]).exits(4).says("the token has expired");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines[0].starts_with("STACK") && lines.len() == 3, "{ran:?}");
    assert!(lines[1].contains("2/3       1 pending") && lines[2].contains("2/3       1 failed"), "{ran:?}");
    assert!(
        broker.asked()[0].line.ends_with("/events/stream"),
        "the stream is opened before the list is read"
    );

    let ran = broker_of_all().brokkr(&["status", "-w", "-o", "json"]).exits(4);
    let lines: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], json!({"type": "version", "stream": 1}));
    let events: Vec<_> =
        lines[1..].iter().map(|line| (&line["type"], &line["name"], &line["summary"]["failed"])).collect();
    assert_eq!(
        events,
        [(&json!("stack"), &json!("web"), &json!(0)), (&json!("stack"), &json!("web"), &json!(1))]
    );
    broker_of_all().brokkr(&["status", "-w", "-o", "name"]).exits(4).prints_exactly("stack/web\nstack/web\n");
}

#[test]
fn a_stack_that_is_deleted_during_the_watch_is_shown() {
    let mut deleted = stack(&["env=dev"]);
    deleted["deleted_at"] = TIME.into();
    let stream = "GET /api/v1/events/stream";
    let broker = FakeBroker::start()
        .on("GET /api/v1/stacks", 200, page(&[stack(&["env=dev"])]))
        .on("GET /api/v1/stacks", 200, page(&[]))
        .on(&format!("GET /api/v1/stacks/{STACK_ID}"), 200, deleted)
        .on(&STATUS.replace("/status", "/status/summary"), 200, counts(0, 0))
        .on_stream(stream, &[("reset", json!("x"))])
        .refuses(stream, ErrorCode::BRK1001, "the token has expired");
    let ran = broker.brokkr(&["status", "-w", "-o", "json"]).exits(4).says("the broker was restored");
    let last: Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&last["name"], &last["deleted_at"]), (&json!("web"), &json!(TIME)), "{ran:?}");
    assert_eq!(
        ran.stdout.lines().count(),
        3,
        "the version, then the stack before and after its deletion: {ran:?}"
    );
}

#[test]
fn the_stream_does_not_repeat_events_of_the_list() {
    let (one, two) = ("0190b5a4-0000-7000-8000-000000000001", "0190b5a4-0000-7000-8000-000000000002");
    let broker = FakeBroker::start()
        .on("GET /api/v1/events", 200, page(&[event(one, "applied")]))
        .on_stream(
            "GET /api/v1/events/stream",
            &[("event", event(one, "applied")), ("reset", json!("x")), ("event", event(two, "healthy"))],
        )
        .refuses("GET /api/v1/events/stream", ErrorCode::BRK2020, "too many streams are open");
    let ran = broker.brokkr(&["events", "web", "-w", "-o", "name"]).exits(3).says("the broker was restored");
    assert_eq!(ran.stdout, format!("event/{one}\nevent/{two}\n"));
    assert!(broker.asked()[0].line.ends_with("/events/stream?stack=web"));
}

#[test]
fn events_are_filtered_by_version_kind_and_time() {
    let broker = FakeBroker::start().on("GET /api/v1/events", 200, page(&[]));
    broker
        .brokkr(&["events", "--sequence", "42", "--event", "failed", "--since", TIME])
        .exits(0)
        .prints("no events");
    let line = &broker.asked()[0].line;
    assert!(
        line.ends_with("?sequence_id=42&transition=failed&since=2026-03-01T12%3A00%3A00Z&limit=50"),
        "{line}"
    );
    broker.brokkr(&["events", "--watch", "--since", "1h"]).exits(2);
}

#[test]
fn a_watch_ends_when_its_reader_is_gone() {
    let broker = broker();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_brokkr"))
        .args(["status", "web", "-w"])
        .env_clear()
        .env("HOME", broker.home.path())
        .env("BROKKR_SERVER", &broker.url)
        .env("BROKKR_TOKEN", "brk_x")
        .stdout(writer)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(0), "not 4, the status of a refused request");
}

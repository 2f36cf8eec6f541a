//! Sample responses of a broker.

use serde_json::{Value, json};

pub const STACK_ID: &str = "0190b5a4-0000-7000-8000-00000000000a";
pub const STATUS: &str = "GET /api/v1/stacks/0190b5a4-0000-7000-8000-00000000000a/status";
pub const SHA: &str = "9f2c000000000000000000000000000000000000000000000000000000000000";
pub const TIME: &str = "2026-03-01T12:00:00Z";

pub fn whoami() -> Value {
    json!({"token_id": STACK_ID, "name": "ana", "project": "default", "role": "admin", "expires_at": null})
}

pub fn stack(selectors: &[&str]) -> Value {
    json!({"project": "default", "id": STACK_ID, "name": "web", "labels": {}, "annotations": {}, "created_at": TIME,
        "targets": {"agents": [], "selectors": selectors}, "sequence_id": null, "deleted_at": null})
}

pub fn object(sequence: i64) -> Value {
    json!({"project": "default", "stack_id": STACK_ID, "sequence_id": sequence, "checksum": SHA, "parsed_digest": SHA,
        "is_deletion_marker": false, "resources": 1, "submitted_by": "ana", "created_at": TIME})
}

pub fn row(agent: &str, wants: i64, has: i64, state: &str) -> Value {
    json!({"project": "default", "stack_id": STACK_ID, "stack_name": "web", "agent_id": STACK_ID, "agent_name": agent,
        "wanted_sequence_id": wants, "sequence_id": has, "state": state, "ready": 1, "total": 1, "reason": "", "message": "",
        "objects": [], "hops": {"published": TIME}})
}

pub fn noted(mut row: Value, reason: &str, object: &str, message: &str) -> Value {
    row["reason"] = reason.into();
    let (kind, path) = object.split_once(' ').unwrap();
    let (namespace, name) = path.split_once('/').unwrap();
    let object = json!({"kind": kind, "namespace": namespace, "name": name});
    row["objects"] = json!([{"object": object, "reason": "", "message": message}]);
    row
}

/// A rollout to three agents, one of which has the version.
pub fn rollout(sequence: i64, state: &str, wave: u32) -> Value {
    json!({"project": "default", "stack_id": STACK_ID, "stack_name": "web", "sequence_id": sequence, "is_deletion": false,
        "base_sequence_id": 41, "state": state, "wave": wave, "waves": 5, "policy": {"waves": [{"size": "1"}, {"size": "100%"}]},
        "figures": {"members": 3, "released": 1, "healthy": 1, "bad": 0, "excused": 0, "owed": 0, "waiting": 0, "in_flight": 0},
        "allowed_bad": 0, "in_flight_limit": 1, "soaked_seconds": 0, "created_by": "ana", "created_at": TIME,
        "ended_at": null})
}

pub fn page(items: &[Value]) -> Value {
    json!({"items": items, "next": null})
}

pub fn agent(name: &str) -> Value {
    json!({"id": STACK_ID, "name": name, "status": "ACTIVE", "labels": {"env": "dev"}, "annotations": {}, "created_at": TIME,
        "last_seen_at": TIME, "presence": "fresh", "session_count": 1, "session_duplicated": false})
}

pub fn why(agent: &str) -> Value {
    json!({"project": "default", "stack_id": STACK_ID, "stack_name": "web", "agent_id": STACK_ID, "agent_name": agent,
        "state": "failed", "wanted_sequence_id": 42, "sequence_id": 42, "hops": {"published": TIME, "verified": TIME},
        "broken": {"hop": "applied", "cause": "failed", "message": "FieldImmutable: spec.selector", "next": "correct it"},
        "evidence": ["Deployment shop/web: spec.selector: field is immutable"]})
}

pub fn bar(sequence: i64) -> Value {
    json!({"checksum": SHA, "sequence_id": sequence, "barred_by": "ana", "reason": "crash loop", "created_at": TIME})
}

//! Reading Pods, ReplicaSets and events.

use serde_json::Value;

/// How specific a cause is, most specific first: a cause explains those below it, never the reverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Specificity {
    Image,
    Config,
    Memory,
    Crash,
    /// No Pod can be created.
    Refused,
    Unschedulable,
    Mount,
    Probe,
    Initializing,
}

/// Returns the latest event of this object with one of these reasons.
pub(super) fn newest<'a>(events: &'a [Value], about: &str, reasons: &[&str]) -> Option<&'a Value> {
    let matching = events.iter().filter(|event| {
        event.pointer("/involvedObject/name").and_then(Value::as_str) == Some(about)
            && reasons.contains(&text(event, "reason"))
    });
    matching.max_by_key(|event| {
        ["lastTimestamp", "eventTime"].map(|field| text(event, field)).into_iter().max().map(str::to_owned)
    })
}

pub(super) fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status.get("conditions")?.as_array()?.iter().find(|condition| text(condition, "type") == kind)
}

pub(super) fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

//! What an event says. Only reasons and the names of objects, which are typed: messages of the API server may quote what a stack
//! contains, and more people may read events than records.

use brokkr_api::AgentId;
use brokkr_api::report::{Report, Transition};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::inventory::wire::{KIND, VERSION};
use crate::ownership::AGENT_LABEL;
use crate::resource::RECORD_GROUP;

/// Kubernetes accepts events of cluster-scoped objects only there.
pub const NAMESPACE: &str = "default";
/// The longest message that Kubernetes accepts has 1024 bytes.
const LONGEST: usize = 1000;
const COMPONENT: &str = "brokkr-agent";

/// Returns the event of a report, about the record with this name and uid.
pub fn event(agent: AgentId, record: &str, uid: String, report: &Report) -> Event {
    let at = Some(Time(report.at));
    let id = report.id.0.simple().to_string();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{record}.{id}")),
            namespace: Some(NAMESPACE.to_owned()),
            labels: Some([(AGENT_LABEL.to_owned(), agent.to_string())].into()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(format!("{RECORD_GROUP}/{VERSION}")),
            kind: Some(KIND.to_owned()),
            name: Some(record.to_owned()),
            uid: Some(uid),
            ..ObjectReference::default()
        },
        type_: Some(if is_trouble(&report.transition) { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(reason(&report.transition)),
        message: Some(message(report)),
        count: Some(1),
        first_timestamp: at.clone(),
        last_timestamp: at,
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(agent.to_string()),
        ..Event::default()
    }
}

fn is_trouble(transition: &Transition) -> bool {
    matches!(transition, Transition::Failed | Transition::Degraded | Transition::Blocked)
}

/// Returns the transition as Kubernetes writes reasons.
fn reason(transition: &Transition) -> String {
    let word = transition.to_string();
    let mut characters = word.chars();
    characters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(characters).collect()
}

fn message(report: &Report) -> String {
    let named = report.objects.iter().filter(|note| !note.reason.is_none());
    let of_objects: Vec<String> =
        named.map(|note| format!("{}: {}", note.object, sentence_or_code(&note.reason))).collect();
    let what = match of_objects.as_slice() {
        [] if report.reason.is_none() => format!("{} of {} workloads are ready", report.ready, report.total),
        [] => sentence_or_code(&report.reason),
        [first] => first.clone(),
        [first, rest @ ..] => format!("{first} (and {} more)", rest.len()),
    };
    let mut message = format!("version {}: {what}", report.sequence_id);
    message.truncate(message.floor_char_boundary(LONGEST));
    message
}

fn sentence_or_code(reason: &brokkr_api::reason::Reason) -> String {
    let sentence = reason.sentence();
    if sentence.is_empty() { reason.code().to_owned() } else { sentence }
}

#[cfg(test)]
mod tests {
    use brokkr_api::reason::{Message, ObjectRef, Reason};
    use brokkr_api::report::ObjectNote;
    use serde_json::json;

    use super::*;

    fn report(transition: &str) -> Report {
        serde_json::from_value(json!({
            "id": uuid::Uuid::from_u128(9), "stack_id": uuid::Uuid::from_u128(1), "sequence_id": 41,
            "transition": transition, "at": "2026-01-01T00:00:00Z", "ready": 2, "total": 3,
        }))
        .unwrap()
    }

    fn of(report: &Report) -> Event {
        event(AgentId(uuid::Uuid::from_u128(3)), "web-000000000001", "the-uid".to_owned(), report)
    }

    #[test]
    fn f5_an_event_says_what_happened_to_which_object() {
        let mut failed = report("failed");
        let object = |name: &str| ObjectRef {
            kind: "ConfigMap".into(),
            namespace: Some("shop".into()),
            name: name.into(),
            ..Default::default()
        };
        let note = |name: &str| ObjectNote {
            object: object(name),
            reason: Reason::NamespaceNotFound { namespace: Some("shop".into()) },
            message: Message::new("the words of the API server"),
        };
        failed.objects = vec![note("one"), note("two")];
        let event = of(&failed);
        assert_eq!((event.type_.as_deref(), event.reason.as_deref()), (Some("Warning"), Some("Failed")));
        assert_eq!(
            event.message.as_deref(),
            Some("version 41: ConfigMap shop/one: namespace shop does not exist (and 1 more)")
        );
        assert_eq!(event.involved_object.uid.as_deref(), Some("the-uid"));
        let healthy = of(&report("healthy"));
        assert_eq!((healthy.type_.as_deref(), healthy.reason.as_deref()), (Some("Normal"), Some("Healthy")));
        assert_eq!(healthy.message.as_deref(), Some("version 41: 2 of 3 workloads are ready"));
    }

    #[test]
    fn d4_a_report_that_is_made_again_is_the_same_event() {
        assert_eq!(of(&report("failed")).metadata.name, of(&report("failed")).metadata.name);
        let mut other = report("failed");
        other.id = brokkr_api::EventId(uuid::Uuid::from_u128(10));
        assert_ne!(of(&report("failed")).metadata.name, of(&other).metadata.name);
    }

    #[test]
    fn an_event_never_contains_the_words_of_the_api_server() {
        let mut failed = report("failed");
        failed.message = Message::new("Secret shop/a: data[key]: Invalid value: \"hunter2\"");
        failed.reason = Reason::Invalid { fields: vec!["data[key]".into()] };
        let event = serde_json::to_string(&of(&failed)).unwrap();
        assert!(event.contains("invalid: data[key]") && !event.contains("hunter2"), "{event}");
        failed.reason = Reason::Invalid { fields: vec!["ä".repeat(2000)] };
        assert!(of(&failed).message.unwrap().len() <= 1024);
    }
}

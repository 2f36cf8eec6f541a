use serde_json::json;

use super::*;
use crate::report::ObjectNote;

fn note(reason: Reason) -> ObjectNote {
    ObjectNote { object: ObjectRef::default(), message: reason.message(), reason }
}

#[test]
fn a_reason_is_one_word_and_its_details() {
    let approval = serde_json::to_value(note(Reason::PruneNeedsApproval { delete: 60, total: 100 })).unwrap();
    assert_eq!(approval["reason"], "PruneNeedsApproval");
    assert_eq!(approval["details"], json!({"delete": 60, "total": 100}));
    let covered =
        serde_json::to_value(note(Reason::NotCovered(Uncovered::Namespace("shop".into())))).unwrap();
    assert_eq!(covered["details"], json!({"namespace": "shop"}));
    let nothing = serde_json::to_value(note(Reason::None)).unwrap();
    assert_eq!((&nothing["reason"], nothing.get("details")), (&json!(""), None));
}

#[test]
fn a_reason_is_the_same_after_it_was_sent_and_stored() {
    for reason in [
        Reason::None,
        Reason::Fenced,
        Reason::OOMKilled,
        Reason::HttpStatus { code: 404 },
        Reason::Forbidden {
            account: None,
            verbs: vec!["create".into()],
            resource: Some("pods".into()),
            namespace: None,
        },
        Reason::WebhookDenied { webhook: None },
        Reason::WaveNotReady { wave: Wave::Number(-3) },
        Reason::WaitingForWave { wave: Wave::HooksAfter(5) },
        Reason::NotCovered(Uncovered::ClusterScoped),
        Reason::Left(LeftBecause::NeededBy(Box::new(ObjectRef { kind: "Pod".into(), ..Default::default() }))),
        Reason::Left(LeftBecause::Requested),
        Reason::Left(LeftBecause::OwnedByOther("stack 7".into())),
        Reason::Other("FailedMount".into()),
    ] {
        let sent = note(reason);
        let text = serde_json::to_string(&sent).unwrap();
        assert_eq!(serde_json::from_str::<ObjectNote>(&text).unwrap(), sent, "{text}");
        assert_eq!(Reason::from_parts(sent.reason.code(), sent.reason.details()), sent.reason);
    }
}

#[test]
fn an_unknown_reason_of_a_newer_peer_is_accepted_and_its_message_shown() {
    let text = r#"{"object": {"kind": "Pod", "name": "a"}, "reason": "MoonPhase", "details": {"phase": 3}, "message": "full"}"#;
    let received: ObjectNote = serde_json::from_str(text).unwrap();
    assert_eq!(received.reason, Reason::Other("MoonPhase".into()));
    assert_eq!(received.message.to_string(), "full");
    // A known reason with changed details.
    let changed = Reason::from_parts("PruneNeedsApproval", Some(json!({"share": 0.6})));
    assert_eq!(changed, Reason::Other("PruneNeedsApproval".into()));
}

#[test]
fn a_peer_that_does_not_read_details_gets_only_the_word() {
    let reason = Reason::PruneNeedsApproval { delete: 60, total: 100 };
    assert_eq!(
        serde_json::to_value(reason.without_details()).unwrap(),
        json!({"reason": "PruneNeedsApproval"})
    );
    assert_eq!(Reason::Fenced.without_details(), Reason::Fenced);
}

#[test]
fn a_missing_namespace_or_definition_is_waited_for() {
    let missing = Reason::NamespaceNotFound { namespace: Some("shop".into()) };
    assert_eq!(missing.waits_for(), Some(Prerequisite::Namespace));
    assert_eq!(missing.sentence(), "namespace shop does not exist");
    assert_eq!(Reason::UnknownKind { kind: "v1 Widget".into() }.waits_for(), Some(Prerequisite::Definition));
    assert_eq!(Reason::Fenced.waits_for(), None);
}

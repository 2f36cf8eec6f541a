//! Messages in each format, as snapshots, and checked against what the vendors publish as packages.

use std::collections::BTreeSet;

use brokkr_api::reason::{Message, Reason};
use brokkr_api::why::Cause;
use brokkr_api::{SequenceId, StackId};
use jiff::Timestamp;
use slack_morphism::prelude::SlackMessageContent;
use strum::IntoEnumIterator as _;
use uuid::Uuid;

use super::*;
use crate::domain::alerts::group::{Notice, OpenAlert};
use crate::domain::alerts::message::{AlertSubject, Examples};
use crate::domain::webhooks::happening::NamedStack;

const KEY: &str = "0123456789abcdefABCDEF0123456789";
const CARD: &str = include_str!("../../../../tests/published/adaptive-card.json");
const EVENT: &str = include_str!("../../../../tests/published/event_v2.go");

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn message(notice: impl FnOnce(OpenAlert) -> Notice) -> AlertMessage {
    let alert = OpenAlert { id: Uuid::from_u128(7), since: at(0), agents: 3000, calm_since: None };
    let notice = notice(alert);
    let examples = Examples {
        agents: ["shop-1", "shop-2", "shop-3", "shop-4", "shop-5"].map(str::to_owned).to_vec(),
        sequence_id: Some(SequenceId(41)),
        reason: Reason::ImagePullBackOff,
        message: Message::new(
            "Deployment shop/web: *pull* of <https://evil.example|this> `image` failed: [x](y) <!channel>",
        ),
    };
    AlertMessage {
        subject: AlertSubject {
            project: "shop".to_owned(),
            stack: NamedStack { id: StackId(Uuid::from_u128(1)), name: "web".to_owned() },
            cause: Cause::ImageNotPulled,
        },
        notice,
        at: at(60),
        examples: if matches!(notice, Notice::Resolved(_)) { Examples::default() } else { examples },
    }
}

fn all() -> Vec<AlertMessage> {
    let longest = |mut alert: AlertMessage| {
        alert.examples.message = Message::new("`<&*_[]\\".repeat(2000));
        alert.subject.stack.name = "s".repeat(63);
        alert.examples.agents = vec!["a".repeat(63); 5];
        alert
    };
    vec![
        message(Notice::Opened),
        message(|alert| Notice::Updated { alert, before: 100 }),
        message(Notice::Resolved),
        longest(message(Notice::Opened)),
    ]
}

fn body(message: WebhookMessage<'_>, format: WebhookFormat) -> Value {
    serde_json::from_slice(&message.body(format, "shop")).unwrap()
}

fn ping() -> Happening {
    Happening::new(WebhookEvent::Ping, at(0))
}

#[test]
fn g1_alerts_in_each_format() {
    for format in WebhookFormat::iter() {
        let bodies: Vec<String> = all()[..3]
            .iter()
            .map(|alert| serde_json::to_string_pretty(&body(WebhookMessage::Alert(alert), format)).unwrap())
            .collect();
        insta::assert_snapshot!(format!("alerts_for_{format}"), bodies.join("\n"));
    }
}

#[test]
fn g1_messages_for_slack_fit_the_types_of_a_published_client() {
    let (alerts, ping) = (all(), ping());
    let messages = alerts.iter().map(WebhookMessage::Alert).chain([WebhookMessage::Happening(&ping)]);
    for message in messages {
        let sent = body(message, WebhookFormat::Slack);
        let read: SlackMessageContent = serde_json::from_value(sent.clone()).expect("a message of Slack");
        assert_eq!(serde_json::to_value(&read).unwrap(), sent, "the types know every field");
    }
}

#[test]
fn g1_messages_for_teams_are_valid_by_the_published_schema_of_adaptive_cards() {
    let schema: Value = serde_json::from_str(CARD).unwrap();
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    assert!(
        !validator.is_valid(&json!({ "type": "AdaptiveCard" })),
        "the schema refuses a card without a version"
    );
    let types: BTreeSet<&str> =
        schema["definitions"].as_object().unwrap().keys().map(String::as_str).collect();
    let (alerts, ping) = (all(), ping());
    let messages = alerts.iter().map(WebhookMessage::Alert).chain([WebhookMessage::Happening(&ping)]);
    for message in messages {
        let sent = body(message, WebhookFormat::Teams);
        assert_eq!(sent["type"], "message");
        let card = &sent["attachments"][0]["content"];
        let errors: Vec<String> = validator.iter_errors(card).map(|error| error.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new());
        for element in card["body"].as_array().unwrap() {
            assert!(types.contains(element["type"].as_str().unwrap()), "{element}");
        }
    }
}

/// Returns the fields of a Go struct, each with whether it may be absent.
fn fields_of(structure: &str) -> Vec<(&'static str, bool)> {
    let start = EVENT.find(&format!("type {structure} struct")).expect("the struct");
    let tags = EVENT[start..].split("}\n").next().unwrap().split("json:\"").skip(1);
    let tags = tags.map(|rest| rest.split('"').next().unwrap());
    tags.map(|tag| (tag.split(',').next().unwrap(), tag.ends_with(",omitempty"))).collect()
}

fn assert_fields(value: &Value, structure: &str) {
    let known = fields_of(structure);
    for field in value.as_object().unwrap().keys() {
        assert!(known.iter().any(|(name, _)| name == field), "{field} is not in {structure}");
    }
    for (name, _) in known.iter().filter(|(_, may_be_absent)| !may_be_absent) {
        assert!(value[name].is_string(), "{structure} needs {name}: {value}");
    }
}

#[test]
fn g1_messages_for_pagerduty_fit_the_types_of_a_published_client() {
    let (alerts, ping) = (all(), ping());
    let url = format!("https://events.pagerduty.com/v2/enqueue#{KEY}");
    let messages = alerts.iter().map(WebhookMessage::Alert).chain([WebhookMessage::Happening(&ping)]);
    for message in messages {
        let stored = message.body(WebhookFormat::PagerDuty, "shop");
        assert!(!String::from_utf8_lossy(&stored).contains(KEY), "the key is not stored with messages");
        let sent: Value =
            serde_json::from_slice(&addressed(WebhookFormat::PagerDuty, &url, &stored)).unwrap();
        assert_eq!(sent["routing_key"], KEY);
        assert_fields(&sent, "V2Event");
        match sent["event_action"].as_str() {
            Some("resolve") => assert!(sent["dedup_key"].is_string()),
            Some("trigger") => {
                assert_fields(&sent["payload"], "V2Payload");
                assert!(
                    ["critical", "error", "warning", "info"]
                        .map(Value::from)
                        .contains(&sent["payload"]["severity"])
                );
                assert!(sent["payload"]["summary"].as_str().unwrap().chars().count() <= 1024);
            }
            other => panic!("{other:?}"),
        }
    }
    // All messages of an alert are one incident.
    let keys: BTreeSet<String> = all()
        .iter()
        .map(|alert| body(WebhookMessage::Alert(alert), WebhookFormat::PagerDuty)["dedup_key"].to_string())
        .collect();
    assert_eq!(keys.len(), 1);
}

#[test]
fn text_of_agents_neither_mentions_nor_links_nor_ends_its_block() {
    let alert = message(Notice::Opened);
    let slack = body(WebhookMessage::Alert(&alert), WebhookFormat::Slack).to_string();
    assert!(!slack.contains("<!channel>") && !slack.contains("<https"), "{slack}");
    let teams = body(WebhookMessage::Alert(&alert), WebhookFormat::Teams).to_string();
    assert!(!teams.contains("[x](y)") && !teams.contains("*pull*\""), "{teams}");
    for alert in all() {
        for format in WebhookFormat::iter() {
            let bytes = WebhookMessage::Alert(&alert).body(format, "shop").len();
            assert!(bytes < 20_000, "{format}: {bytes} bytes");
        }
    }
}

#[test]
fn a_webhook_for_pagerduty_needs_a_key_and_sends_only_alerts() {
    let with = |url: &str, events: &[WebhookEvent]| {
        let filter = WebhookFilter { events: events.to_vec(), ..WebhookFilter::default() };
        check(WebhookFormat::PagerDuty, url, &filter)
    };
    let url = format!("https://events.pagerduty.com/v2/enqueue#{KEY}");
    assert_eq!(with(&url, &[]), Ok(()));
    assert_eq!(with(&url, &[WebhookEvent::AlertOpened, WebhookEvent::AlertResolved]), Ok(()));
    assert_eq!(with(&url, &[WebhookEvent::Failed]), Err(BadFormat::OnlyAlerts));
    for bad in ["https://events.pagerduty.com/v2/enqueue", "https://events.pagerduty.com/v2/enqueue#short"] {
        assert_eq!(with(bad, &[]), Err(BadFormat::NoIntegrationKey), "{bad}");
    }
    let body = br#"{"text":"x"}"#;
    assert_eq!(addressed(WebhookFormat::Slack, "https://hooks.slack.com/x#y", body), body);
}

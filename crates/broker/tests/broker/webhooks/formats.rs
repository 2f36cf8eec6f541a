//! Webhooks for chats and pagers: the format, and the key of the receiver.

use std::time::Duration;

use anyhow::Result;
use brokkr_api::ErrorCode;
use brokkr_api::webhooks::{self, Webhook};
use reqwest::Method;
use serde_json::json;

use super::receiver::{Answer, Trust};
use super::{deliveries, open};
use crate::harness::{YAML, read, refused};

const KEY: &str = "0123456789abcdefABCDEF0123456789";

#[tokio::test(flavor = "multi_thread")]
async fn g1_a_webhook_sends_the_format_of_its_receiver_and_a_key_only_in_the_request() -> Result<()> {
    let trust = Trust::new()?;
    let (harness, receiver) = (open(&trust).await?, trust.receiver(Answer::Status(202)).await?);
    let owner = &harness.admin;
    let url = format!("{}#{KEY}", receiver.url);
    let without_key = json!({ "name": "pager", "url": receiver.url, "format": "pagerduty" });
    assert_eq!(refused(owner.send(Method::POST, "webhooks", &without_key).await?).await?, ErrorCode::BRK2003);
    let other_events = json!({ "events": ["stack.applied"] });
    let too_much = json!({ "name": "pager", "url": url, "format": "pagerduty", "filter": other_events });
    assert_eq!(refused(owner.send(Method::POST, "webhooks", &too_much).await?).await?, ErrorCode::BRK2003);
    let pager = json!({ "name": "pager", "url": url, "format": "pagerduty" });
    read::<Webhook>(owner.send(Method::POST, "webhooks", &pager).await?).await?;
    // A change must leave a webhook that can be sent.
    for bad in [json!({ "url": receiver.url }), json!({ "filter": other_events })] {
        assert_eq!(
            refused(owner.send(Method::PATCH, "webhooks/pager", &bad).await?).await?,
            ErrorCode::BRK2003
        );
    }
    let tested: webhooks::Attempt =
        read(owner.send(Method::POST, "webhooks/pager/test", &json!({})).await?).await?;
    assert!(tested.delivered, "{tested:?}");
    let sent = receiver.got(1).await?.remove(0).json();
    assert_eq!((&sent["routing_key"], &sent["event_action"]), (&json!(KEY), &json!("resolve")));

    let chat = json!({ "name": "chat", "url": receiver.url, "format": "slack", "filter": { "events": ["deployment_object.submitted"] } });
    read::<Webhook>(owner.send(Method::POST, "webhooks", &chat).await?).await?;
    harness.stack("web", json!({ "agents": [] })).await?;
    harness.submit("web", YAML).await?;
    let sent = receiver.got(2).await?.remove(1).json();
    assert!(
        sent["text"]
            .as_str()
            .is_some_and(|text| text.starts_with("default/web: deployment_object.submitted")),
        "{sent}"
    );
    let changed: Webhook =
        read(owner.send(Method::PATCH, "webhooks/chat", &json!({ "format": "teams" })).await?).await?;
    assert_eq!(changed.format, webhooks::WebhookFormat::Teams);
    harness.submit("web", YAML).await?;
    let sent = receiver.got(3).await?.remove(2).json();
    assert_eq!(sent["attachments"][0]["content"]["type"], "AdaptiveCard");
    assert!(deliveries(&harness, "pager").await?.is_empty(), "neither submissions nor tests page anybody");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_a_page_is_opened_and_resolved_as_one_incident() -> Result<()> {
    use brokkr_api::report::Transition;
    use brokkr_testkit::Postgres;

    use crate::harness::Harness;
    let trust = Trust::new()?;
    let receiver = trust.receiver(Answer::Status(202)).await?;
    let args = trust.alert_args(Duration::ZERO, Duration::ZERO, Duration::from_secs(3600))?;
    let harness = Harness::open_with(Postgres::shared().await?, args).await?;
    let pager = json!({ "name": "pager", "url": format!("{}#{KEY}", receiver.url), "format": "pagerduty" });
    read::<Webhook>(harness.admin.send(Method::POST, "webhooks", &pager).await?).await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "agents": ["shop-1"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let report = |transition, second| agent.report(stack.id, object.sequence_id, transition, second);
    agent.send_reports(&[report(Transition::Failed, 1_760_000_000)]).await?;
    let opened = receiver.got(1).await?.remove(0).json();
    assert_eq!((&opened["event_action"], &opened["routing_key"]), (&json!("trigger"), &json!(KEY)));
    assert_eq!(opened["payload"]["component"], "web");
    agent.send_reports(&[report(Transition::Healthy, 1_760_000_001)]).await?;
    let resolved = receiver.got(2).await?.remove(1).json();
    assert_eq!(
        (&resolved["event_action"], &resolved["dedup_key"]),
        (&json!("resolve"), &opened["dedup_key"])
    );
    let stored = serde_json::to_string(&deliveries(&harness, "pager").await?)?;
    assert!(stored.contains("trigger") && !stored.contains(KEY), "{stored}");
    Ok(())
}

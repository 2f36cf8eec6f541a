//! Webhooks with TLS receivers: messages, signatures and permissions.

mod alerts;
mod faults;
mod formats;
pub mod receiver;

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::ErrorCode;
use brokkr_api::page::Page;
use brokkr_api::reason::Reason;
use brokkr_api::report::Transition;
use brokkr_api::tokens::Role;
use brokkr_api::webhooks::{self, Delivery, DeliveryState, Webhook, WebhookWithSecret};
use brokkr_testkit::{Attempt, Postgres, eventually};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Harness, YAML, read, refused, serve_all};
use receiver::{Answer, Receiver, SOON, Trust};

const GRACE: Duration = Duration::from_secs(300);

async fn open(trust: &Trust) -> Result<Harness> {
    Harness::open_with(Postgres::shared().await?, trust.args(GRACE)?).await
}

async fn create(
    harness: &Harness,
    name: &str,
    receiver: &Receiver,
    filter: Value,
) -> Result<WebhookWithSecret> {
    let wanted = json!({ "name": name, "url": receiver.url, "filter": filter });
    read(harness.admin.send(Method::POST, "webhooks", &wanted).await?).await
}

async fn deliveries(harness: &Harness, webhook: &str) -> Result<Vec<Delivery>> {
    let page: Page<Delivery> =
        harness.admin.get_json(&format!("webhooks/{webhook}/deliveries?limit=500")).await?;
    Ok(page.items)
}

/// Waits until the newest message to a webhook is as wanted.
async fn newest(harness: &Harness, webhook: &str, wanted: impl Fn(&Delivery) -> bool) -> Result<Delivery> {
    eventually(SOON, "a message to the webhook", async || match deliveries(harness, webhook).await {
        Ok(found) => match found.into_iter().next() {
            Some(newest) if wanted(&newest) => Attempt::Done(newest),
            other => Attempt::NotYet(format!("{other:?}")),
        },
        Err(error) => Attempt::NotYet(format!("{error:#}")),
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_events_are_sent_to_webhooks_signed_with_every_valid_secret() -> Result<()> {
    let trust = Trust::new()?;
    let (harness, receiver) = (open(&trust).await?, trust.receiver(Answer::Status(204)).await?);
    let made = create(&harness, "chat", &receiver, json!({ "stacks": ["web"] })).await?;
    harness.stack("web", json!({ "agents": [] })).await?;
    harness.stack("other", json!({ "agents": [] })).await?;
    harness.submit("other", YAML).await?;
    let object = harness.submit("web", YAML).await?;
    let first = receiver.got(1).await?.remove(0);
    assert!(first.is_signed_with(&made.secret), "{first:?}");
    assert!(!first.is_signed_with("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="));
    let body = first.json();
    assert_eq!(body["type"], "deployment_object.submitted");
    assert_eq!(body["data"]["stack"]["name"], "web");
    assert_eq!(body["data"]["sequence_id"], json!(object.sequence_id));
    assert!(!String::from_utf8_lossy(&first.body).contains("greeting"), "never the submitted content");

    // During a rotation, both secrets sign; then only the new one.
    let rotate = async |overlap: u32| -> Result<WebhookWithSecret> {
        let wanted = json!({ "overlap_seconds": overlap });
        read(harness.admin.send(Method::POST, "webhooks/chat/rotate-secret", &wanted).await?).await
    };
    let second = rotate(3600).await?;
    harness.delete("web").await?;
    let deleted = receiver.got(2).await?.remove(1);
    assert_eq!(deleted.kind(), "stack.deleted");
    assert!(deleted.is_signed_with(&made.secret) && deleted.is_signed_with(&second.secret));
    let third = rotate(0).await?;
    let attempt: webhooks::Attempt =
        read(harness.admin.send(Method::POST, "webhooks/chat/test", &json!({})).await?).await?;
    assert_eq!((attempt.delivered, attempt.status), (true, Some(204)), "{attempt:?}");
    let ping = receiver.got(3).await?.remove(2);
    assert_eq!(ping.kind(), "ping");
    assert!(ping.is_signed_with(&third.secret));
    assert!(!ping.is_signed_with(&made.secret) && !ping.is_signed_with(&second.secret));
    let delivered = newest(&harness, "chat", |delivery| delivery.state == DeliveryState::Delivered).await?;
    assert_eq!((delivered.id.to_string().as_str(), delivered.attempts), (deleted.id(), 1));
    assert_eq!(receiver.seen().len(), 3, "nothing of the other stack: {:?}", receiver.kinds());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_every_outcome_is_sent_to_webhooks_once_however_often_it_is_reported() -> Result<()> {
    let trust = Trust::new()?;
    let (harness, receiver) = (open(&trust).await?, trust.receiver(Answer::Status(200)).await?);
    let outcomes: Vec<String> =
        Transition::KNOWN.iter().map(|transition| format!("stack.{transition}")).collect();
    create(&harness, "all", &receiver, json!({ "events": outcomes, "agent_selector": "env=prod" })).await?;
    let agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    let other = harness.agent("shop-2", json!({ "env": "test" })).await?;
    let stack = harness.stack("web", json!({ "agents": ["shop-1", "shop-2"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let reports: Vec<_> = Transition::KNOWN
        .into_iter()
        .zip(1_760_000_000..)
        .map(|(transition, second)| {
            let mut report = agent.report(stack.id, object.sequence_id, transition, second);
            if report.transition != Transition::Applied {
                report.reason = Reason::ImagePullBackOff;
                report.message = "Deployment shop/web: 0/3 replicas ready".into();
            }
            report
        })
        .collect();
    // No message is sent for this report: it only says what an applied version is waiting for.
    let mut waiting = agent.report(stack.id, object.sequence_id, Transition::Applied, 1_760_000_001);
    waiting.reason = Reason::ReadinessProbeFailing;
    agent.send_reports(&[waiting]).await?;
    // None of these adds a message: a report of an agent that the filter does not select, and the same
    // reports once more, at a second replica.
    let second = serve_all(&harness.database, None, trust.args(GRACE)?).await?;
    other
        .send_reports(&[other.report(stack.id, object.sequence_id, Transition::Failed, 1_760_000_000)])
        .await?;
    agent.send_reports(&reports).await?;
    let again = json!({ "reports": reports });
    agent.at(second.address).send(Method::POST, &agent.path("reports"), &again).await?;
    let seen = receiver.got(outcomes.len()).await?;
    let kinds: HashSet<String> = seen.iter().map(receiver::Received::kind).collect();
    assert_eq!(kinds, outcomes.iter().cloned().collect());
    let failed = seen.iter().find(|message| message.kind() == "stack.failed").context("the failure")?.json();
    assert_eq!(failed["data"]["reason"], "ImagePullBackOff");
    assert_eq!(failed["data"]["agent"]["name"], "shop-1");
    assert_eq!(failed["data"]["event_id"], json!(reports[3].id));
    newest(&harness, "all", |delivery| delivery.state == DeliveryState::Delivered).await?;
    let stored = deliveries(&harness, "all").await?;
    assert_eq!((stored.len(), receiver.seen().len()), (outcomes.len(), outcomes.len()));
    second.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_change_webhooks_and_viewers_see_them_without_secrets() -> Result<()> {
    let trust = Trust::new()?;
    let (harness, receiver) = (open(&trust).await?, trust.receiver(Answer::Status(200)).await?);
    let made = create(&harness, "chat", &receiver, json!({})).await?;
    let (owner, viewer) = (harness.with_role(Role::Owner).await?, harness.with_role(Role::Viewer).await?);
    let seen: Webhook = owner.get_json("webhooks/chat").await?;
    assert_eq!((seen.url.as_str(), seen.enabled), (receiver.url.as_str(), true));
    let listed: Page<Value> = viewer.get_json("webhooks").await?;
    assert_eq!(listed.items[0]["url"], format!("https://localhost:{}/…", receiver.port));
    assert!(listed.items[0].get("secret").is_none());
    let secret = &made.secret["whsec_".len()..];
    let mut connection = harness.database.connect().await?;
    let dump: Vec<String> = sqlx::query_scalar(
        "SELECT row(s)::text || encode(s.sealed, 'base64') FROM webhook_secrets s UNION ALL
         SELECT row(k)::text || encode(k.body, 'escape') FROM idempotency_keys k",
    )
    .fetch_all(&mut connection)
    .await?;
    assert!(!dump.is_empty() && dump.iter().all(|row| !row.contains(secret)), "a secret is stored encrypted");

    let taken = json!({ "name": "chat", "url": receiver.url });
    assert_eq!(refused(owner.send(Method::POST, "webhooks", &taken).await?).await?, ErrorCode::BRK2002);
    for url in [
        "http://example.com/",
        "https://10.1.2.3/",
        "https://[::ffff:10.0.0.1]/",
        "https://me:pw@example.com/",
    ] {
        let bad = json!({ "name": "bad", "url": url });
        let code = refused(owner.send(Method::POST, "webhooks", &bad).await?).await?;
        assert_eq!(code, ErrorCode::BRK2016, "{url}");
        let code = refused(owner.send(Method::PATCH, "webhooks/chat", &json!({ "url": url })).await?).await?;
        assert_eq!(code, ErrorCode::BRK2016, "{url}");
    }
    // The webhook is disabled: no message is stored for it.
    let off: Webhook =
        read(owner.send(Method::PATCH, "webhooks/chat", &json!({ "enabled": false })).await?).await?;
    assert!(!off.enabled);
    harness.stack("web", json!({ "agents": [] })).await?;
    harness.submit("web", YAML).await?;
    assert!(deliveries(&harness, "chat").await?.is_empty());
    owner.send(Method::PATCH, "webhooks/chat", &json!({ "enabled": true })).await?;
    harness.submit("web", YAML).await?;
    receiver.got(1).await?;
    let gone = owner.request(Method::DELETE, "webhooks/chat").send().await?;
    assert_eq!(gone.status(), 204);
    assert_eq!(refused(owner.get("webhooks/chat").await?).await?, ErrorCode::BRK2001);

    // Without a key, no secret can be stored.
    let bare = Harness::open().await?;
    let wanted = json!({ "name": "chat", "url": "https://hooks.example.com/" });
    assert_eq!(refused(bare.admin.send(Method::POST, "webhooks", &wanted).await?).await?, ErrorCode::BRK2017);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s13_two_replicas_send_each_message_once() -> Result<()> {
    let trust = Trust::new()?;
    let (harness, receiver) = (open(&trust).await?, trust.receiver(Answer::Status(200)).await?);
    let second = serve_all(&harness.database, None, trust.args(GRACE)?).await?;
    create(&harness, "chat", &receiver, json!({})).await?;
    harness.stack("web", json!({ "agents": [] })).await?;
    let other = crate::harness::Caller::new(
        second.address,
        Some(crate::harness::token(&harness.database, Role::Admin).await?),
    );
    let (mut here, mut there) = (0, 0);
    for _ in 0..20 {
        harness.submit("web", YAML).await?;
        here += 1;
        let request = other.request(Method::POST, "stacks/web/deployment-objects").body(YAML);
        assert!(request.send().await?.status().is_success());
        there += 1;
    }
    receiver.got(here + there).await?;
    eventually(SOON, "all are delivered", async || {
        deliveries(&harness, "chat")
            .await
            .is_ok_and(|all| all.iter().all(|delivery| delivery.state == DeliveryState::Delivered))
    })
    .await?;
    let seen = receiver.seen();
    let ids: HashSet<&str> = seen.iter().map(receiver::Received::id).collect();
    assert_eq!((seen.len(), ids.len()), (here + there, here + there));
    assert!(deliveries(&harness, "chat").await?.iter().all(|delivery| delivery.attempts == 1));
    second.stop().await;
    Ok(())
}

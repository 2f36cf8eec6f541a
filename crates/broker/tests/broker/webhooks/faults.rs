//! Receivers that hang, redirect or never end, names that change their address, senders that die.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::webhooks::{DeliveryState, Webhook, WebhookWithSecret};
use brokkr_broker::domain::webhooks::egress_policy::EgressPolicy;
use brokkr_broker::domain::webhooks::signature::WebhookSecret;
use brokkr_broker::state::webhooks::resolver::Resolver;
use brokkr_broker::state::webhooks::send::{Message, SendOutcome, Sender};
use brokkr_broker::store::webhook_deliveries::{
    DeliveryOutcome, webhook_delivery_claim, webhook_delivery_delete_old, webhook_delivery_finish_on_conn,
};
use brokkr_testkit::process::run;
use brokkr_testkit::{Launch, Port, Postgres, Process, Scratch};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::json;

use super::receiver::{Answer, KEY, SOON, Trust};
use super::{create, deliveries, newest, open};
use crate::harness::{Caller, Harness, YAML, read};

#[tokio::test(flavor = "multi_thread")]
async fn row_48_a_receiver_that_hangs_delays_no_other_and_is_retried() -> Result<()> {
    let trust = Trust::new()?;
    let harness = open(&trust).await?;
    let (hanging, good) = (trust.receiver(Answer::Hang).await?, trust.receiver(Answer::Status(200)).await?);
    create(&harness, "hanging", &hanging, json!({})).await?;
    create(&harness, "good", &good, json!({})).await?;
    harness.stack("web", json!({ "agents": [] })).await?;
    for _ in 0..3 {
        harness.submit("web", YAML).await?;
    }
    good.got(3).await?;
    let waiting = deliveries(&harness, "hanging").await?;
    assert!(
        waiting.iter().all(|delivery| delivery.last_attempt.is_none()),
        "the other receiver did not wait"
    );
    let timed_out = |text: &str| text.contains("no response within 15 seconds");
    let oldest = async || deliveries(&harness, "hanging").await.ok()?.pop();
    let tried = brokkr_testkit::eventually(SOON, "the attempt to time out", async || {
        let attempt = oldest().await?.last_attempt?;
        attempt.error.filter(|error| timed_out(error))
    });
    tried.await?;
    // The receiver recovers: it gets the same message, and then the rest.
    hanging.answer(Answer::Status(200));
    let id = oldest().await.context("the first message")?.id;
    brokkr_testkit::eventually(SOON, "the message to be delivered", async || {
        oldest().await.is_some_and(|oldest| oldest.state == DeliveryState::Delivered && oldest.attempts == 2)
    })
    .await?;
    let same = hanging.seen().iter().filter(|message| message.id() == id.to_string()).count();
    assert_eq!(same, 2, "sent twice under one id");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_48_redirects_are_not_followed_and_a_body_without_end_is_cut() -> Result<()> {
    let trust = Trust::new()?;
    let harness = open(&trust).await?;
    let elsewhere = trust.receiver(Answer::Status(200)).await?;
    let receiver = trust.receiver(Answer::Redirect(elsewhere.url.clone())).await?;
    create(&harness, "chat", &receiver, json!({})).await?;
    harness.stack("web", json!({ "agents": [] })).await?;
    harness.submit("web", YAML).await?;
    let failed = newest(&harness, "chat", |delivery| delivery.last_attempt.is_some()).await?;
    let attempt = failed.last_attempt.context("an attempt")?;
    assert_eq!((failed.state, attempt.status), (DeliveryState::Pending, Some(302)));
    assert!(attempt.error.is_some_and(|error| error.contains("redirects are not followed")));
    assert!(elsewhere.seen().is_empty());
    receiver.answer(Answer::Endless);
    let done = newest(&harness, "chat", |delivery| delivery.state == DeliveryState::Delivered).await?;
    assert_eq!(done.last_attempt.context("an attempt")?.answer, "x".repeat(1024));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_listed_and_resent_and_a_receiver_that_is_gone_is_disabled() -> Result<()> {
    let trust = Trust::new()?;
    let (harness, receiver) = (open(&trust).await?, trust.receiver(Answer::Status(500)).await?);
    create(&harness, "chat", &receiver, json!({})).await?;
    harness.stack("web", json!({ "agents": [] })).await?;
    harness.submit("web", YAML).await?;
    receiver.got(1).await?;
    newest(&harness, "chat", |delivery| delivery.last_attempt.is_some()).await?;
    // Three days pass.
    let mut connection = harness.database.connect().await?;
    sqlx::query("UPDATE webhook_deliveries SET attempts = 10, due_at = now()")
        .execute(&mut connection)
        .await?;
    let dead = newest(&harness, "chat", |delivery| delivery.state == DeliveryState::Dead).await?;
    assert_eq!(dead.last_attempt.context("an attempt")?.status, Some(500));
    let listed = harness.admin.get("webhooks/chat/deliveries?state=pending").await?.text().await?;
    assert!(listed.contains("\"items\":[]"), "{listed}");
    receiver.answer(Answer::Status(200));
    let resend = format!("webhooks/chat/deliveries/{}/resend", dead.id);
    assert_eq!(harness.admin.send(Method::POST, &resend, &json!({})).await?.status(), 204);
    let done = newest(&harness, "chat", |delivery| delivery.state == DeliveryState::Delivered).await?;
    assert!(receiver.seen().iter().all(|message| message.id() == done.id.to_string()), "always the same id");

    receiver.answer(Answer::Status(410));
    harness.submit("web", YAML).await?;
    let last = newest(&harness, "chat", |delivery| delivery.state == DeliveryState::Dead).await?;
    assert_eq!(last.attempts, 1, "it is not retried");
    let webhook: Webhook = harness.admin.get_json("webhooks/chat").await?;
    assert!(!webhook.enabled && webhook.disabled_because.is_some_and(|because| because.contains("410")));
    Ok(())
}

/// Answers as a hostile name server would: something else each time.
struct Rebinding {
    answers: Mutex<VecDeque<Vec<IpAddr>>>,
}

impl Resolver for Rebinding {
    fn lookup(&self, _: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let answer = self.answers.lock().unwrap().pop_front();
        async move { answer.ok_or_else(|| io::Error::other("there are no more answers")) }.boxed()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_48_a_name_that_changes_its_address_does_not_bypass_the_policy() -> Result<()> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let trust = Trust::new()?;
    let receiver = trust.receiver(Answer::Status(200)).await?;
    let url = format!("https://receiver.test:{}/", receiver.port);
    let inside: IpAddr = "127.0.0.1".parse()?;
    // Plays the role of a public address; nothing listens there.
    let outside: IpAddr = "127.0.0.2".parse()?;
    let send = async |allowed: IpAddr, answers: &[&[IpAddr]]| -> Result<(SendOutcome, usize)> {
        let lookup =
            Arc::new(Rebinding { answers: Mutex::new(answers.iter().map(|one| one.to_vec()).collect()) });
        let guard = EgressPolicy { networks: vec![allowed.into()], any_port: true, plain_http: false };
        let authorities = trust.args(Duration::ZERO)?.webhook_ca;
        let sender = Sender::new(guard, Arc::clone(&lookup) as Arc<dyn Resolver>, authorities.as_deref())?;
        let secrets = [WebhookSecret::generate()];
        let message = Message { url: &url, id: "a", body: b"{}", secrets: &secrets };
        let sent = sender.send(&message, Timestamp::now()).await;
        let left = lookup.answers.lock().unwrap().len();
        Ok((sent, left))
    };
    // The checked address is allowed: the client connects to it and does not resolve the name again.
    let (sent, left) = send(outside, &[&[outside], &[inside]]).await?;
    assert!(!sent.attempt.delivered && left == 1, "{sent:?}");
    // The address is refused, alone or among allowed ones.
    for answer in [&[inside][..], &[outside, inside], &[inside, outside]] {
        let (sent, _) = send(outside, &[answer]).await?;
        let error = sent.attempt.error.context("an error")?;
        assert!(error.contains("127.0.0.1 is not a public address"), "{error}");
        assert!(!error.contains("receiver.test"), "the address may be a secret: {error}");
    }
    assert!(receiver.seen().is_empty());
    // An allowed address is reached.
    let (sent, _) = send(inside, &[&[inside]]).await?;
    assert!(sent.attempt.delivered, "{sent:?}");
    assert_eq!(receiver.seen().len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s15_a_sender_with_an_expired_lease_stores_nothing() -> Result<()> {
    let trust = Trust::new()?;
    let (harness, receiver) = (open(&trust).await?, trust.receiver(Answer::Hang).await?);
    let webhook = create(&harness, "chat", &receiver, json!({})).await?;
    harness.stack("web", json!({ "agents": [] })).await?;
    harness.submit("web", YAML).await?;
    // The replica that sends the message stops; two others claim it one after the other.
    receiver.got(1).await?;
    harness.server.stop().await;
    let mut connection = harness.database.connect().await?;
    sqlx::query("UPDATE webhook_deliveries SET due_at = now() + interval '1 hour'")
        .execute(&mut connection)
        .await?;
    let pool = sqlx::PgPool::connect(&harness.database.url()).await?;
    let hour = Duration::from_secs(3600);
    assert!(webhook_delivery_claim(&pool, &[], 10, 10, hour).await?.is_empty(), "leased");
    sqlx::query("UPDATE webhook_deliveries SET due_at = now()").execute(&mut connection).await?;
    assert!(webhook_delivery_claim(&pool, &[webhook.webhook.id], 10, 10, hour).await?.is_empty(), "busy");
    let first = webhook_delivery_claim(&pool, &[], 10, 10, Duration::ZERO).await?.pop().context("claimed")?;
    let second = webhook_delivery_claim(&pool, &[], 10, 10, hour).await?.pop().context("claimed again")?;
    assert_eq!((first.id, second.attempts), (second.id, first.attempts + 1));
    let attempt = SendOutcome::failed("for the test").attempt;
    assert!(
        !webhook_delivery_finish_on_conn(&mut connection, &first, &attempt, DeliveryOutcome::GiveUp).await?
    );
    assert!(
        webhook_delivery_finish_on_conn(&mut connection, &second, &attempt, DeliveryOutcome::Delivered)
            .await?
    );
    assert!(
        !webhook_delivery_finish_on_conn(&mut connection, &second, &attempt, DeliveryOutcome::GiveUp).await?
    );
    let state: String = sqlx::query_scalar("SELECT state FROM webhook_deliveries").fetch_one(&pool).await?;
    assert_eq!(state, "delivered");
    pool.close().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_49_a_message_that_was_sent_before_a_kill_is_sent_again_with_the_same_id() -> Result<()> {
    const PROGRAM: &str = env!("CARGO_BIN_EXE_brokkr-broker");
    let trust = Trust::new()?;
    let receiver = trust.receiver(Answer::Hang).await?;
    let database = Postgres::shared().await?.database().await?;
    let url = database.url();
    let launch = |arguments: &[&str]| {
        Launch::new("brokkr-broker", PROGRAM).args(arguments).args(["--database-url", &url])
    };
    run(launch(&["migrate"]), SOON).await?.ok()?;
    let token = run(launch(&["bootstrap"]), SOON).await?.ok()?.stdout.trim().to_owned();
    let authorities = trust.args(Duration::ZERO)?.webhook_ca.context("certificates")?;
    let (port, scratch) = (Port::free()?, Scratch::new("broker")?);
    let serve = launch(&["serve", "--listen", &port.address(), "--secret-key", KEY])
        .args(["--webhook-networks", "127.0.0.0/8,::1", "--webhook-any-port", "--webhook-ca"])
        .arg(&authorities);
    let process = Process::start(serve, scratch.path())?;
    let caller = Caller::new(port.address().parse()?, Some(token));
    let ready = async || caller.get("/readyz").await.is_ok_and(|response| response.status().is_success());
    process.ready_when(SOON, ready).await?;
    let wanted = json!({ "name": "chat", "url": receiver.url });
    let made: WebhookWithSecret = read(caller.send(Method::POST, "webhooks", &wanted).await?).await?;
    caller.send(Method::PUT, "stacks/web", &json!({})).await?;
    caller
        // A rollout would send messages of its own.
        .request(Method::POST, "stacks/web/deployment-objects?now=true&reason=test")
        .body(YAML)
        .send()
        .await?
        .error_for_status()?;
    let first = receiver.got(1).await?.remove(0);
    process.kill9();
    receiver.answer(Answer::Status(200));
    // The lease ends, as it would after half a minute.
    let mut connection = database.connect().await?;
    sqlx::query("UPDATE webhook_deliveries SET due_at = now()").execute(&mut connection).await?;
    process.start_again()?;
    process.ready_when(SOON, ready).await?;
    let second = receiver.got(2).await?.remove(1);
    assert_eq!((first.id(), &first.body), (second.id(), &second.body));
    assert!(first.is_signed_with(&made.secret) && second.is_signed_with(&made.secret));
    brokkr_testkit::eventually(SOON, "the message to be marked as delivered", async || {
        let state: Result<(String, i32), _> =
            sqlx::query_as("SELECT state, attempts FROM webhook_deliveries").fetch_one(&mut connection).await;
        state.is_ok_and(|state| state == ("delivered".to_owned(), 2))
    })
    .await?;
    assert!(!process.log().contains(&made.secret["whsec_".len()..]), "no secret in the log");
    Ok(())
}

/// Otherwise the table grows for ever as soon as messages arrive faster than one slice per round.
#[tokio::test(flavor = "multi_thread")]
async fn old_messages_are_deleted_however_many_there_are() -> Result<()> {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let harness = Harness::open().await?;
    let mut connection = harness.database.connect().await?;
    sqlx::raw_sql(
        "INSERT INTO webhooks (project, id, name, url, filter)
         VALUES ('default', '00000000-0000-0000-0000-000000000001', 'a', 'https://a.example', '{}');
         INSERT INTO webhook_deliveries (project, webhook_id, id, event, body, state, last_attempt_at)
         SELECT 'default', '00000000-0000-0000-0000-000000000001', gen_random_uuid(), 'stack.applied', '{}',
                (ARRAY['delivered', 'dead', 'pending'])[1 + n % 3], now() - make_interval(days => 10)
         FROM generate_series(1, 18000) AS n",
    )
    .execute(&mut connection)
    .await?;
    let deleted = webhook_delivery_delete_old(&harness.server.broker.pool, 7 * DAY, 30 * DAY).await?;
    assert_eq!(deleted, 6000, "delivered more than a week ago");
    let deleted = webhook_delivery_delete_old(&harness.server.broker.pool, 7 * DAY, 9 * DAY).await?;
    assert_eq!(deleted, 6000, "dead for more than nine days");
    Ok(())
}

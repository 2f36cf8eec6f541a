//! Agents with the same lasting problem are one alert: one message when it opens, one when it is resolved.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{Report, Transition};
use brokkr_api::stacks::Stack;
use brokkr_api::{SequenceId, StackId};
use brokkr_testkit::{Postgres, eventually};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use super::create;
use super::receiver::{Answer, Receiver, Trust};
use crate::harness::{Agent, Harness, YAML, serve_all};

const HOUR: Duration = Duration::from_secs(3600);
const ALERTS: [&str; 3] = ["alert.opened", "alert.updated", "alert.resolved"];

/// A stack on some agents, of which a test reports.
struct Fleet {
    harness: Harness,
    agents: Vec<Agent>,
    stack: StackId,
    sequence: SequenceId,
    reports: i64,
}

impl Fleet {
    /// Every second agent has the label `env=prod`.
    async fn open(trust: &Trust, agents: usize, timing: [Duration; 3]) -> Result<Self> {
        let [grace, gather, interval] = timing;
        let args = trust.alert_args(grace, gather, interval)?;
        let harness = Harness::open_with(Postgres::shared().await?, args).await?;
        let mut all = Vec::new();
        for number in 0..agents {
            let env = if number % 2 == 0 { "prod" } else { "test" };
            all.push(harness.agent(&format!("shop-{number:02}"), json!({ "env": env })).await?);
        }
        let labels = json!({ "labels": { "team": "payments" } });
        harness.admin.send(Method::PUT, "stacks/web", &labels).await?;
        let stack: Stack = harness.target("web", json!({ "selectors": ["env"] })).await?;
        let sequence = harness.submit("web", YAML).await?.sequence_id;
        Ok(Self { harness, agents: all, stack: stack.id, sequence, reports: 1_760_000_000 })
    }

    fn report(&mut self, agent: usize, transition: Transition, reason: Reason) -> Report {
        self.reports += 1;
        let mut report = self.agents[agent].report(self.stack, self.sequence, transition, self.reports);
        report.message = if reason.is_none() { Message::default() } else { reason.message() };
        report.reason = reason;
        report
    }

    async fn send(&mut self, agent: usize, transition: Transition, reason: Reason) -> Result<()> {
        let report = self.report(agent, transition, reason);
        let response = self.agents[agent].send_reports(&[report]).await?;
        anyhow::ensure!(response.status().is_success(), "{}", response.text().await?);
        Ok(())
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn cause(number: usize) -> Reason {
    match number % 3 {
        0 => Reason::ImagePullBackOff,
        1 => Reason::Immutable { fields: vec![format!("spec.of{number}")] },
        _ => Reason::QuotaExceeded { quota: Some(format!("quota-{number}")) },
    }
}

/// Returns the messages of one type by cause.
fn by_cause(receiver: &Receiver, kind: &str) -> BTreeMap<String, Value> {
    let messages = receiver.seen().into_iter().map(|message| message.json());
    let of_kind = messages.filter(|message| message["type"] == kind);
    of_kind
        .map(|message| (message["data"]["cause"].as_str().unwrap_or_default().to_owned(), message))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn f7_all_agents_with_one_cause_are_one_message_and_their_recovery_is_one() -> Result<()> {
    let trust = Trust::new()?;
    let receiver = trust.receiver(Answer::Status(200)).await?;
    let mut fleet = Fleet::open(&trust, 12, [seconds(1), seconds(4), HOUR]).await?;
    create(&fleet.harness, "chat", &receiver, json!({ "events": ALERTS })).await?;
    // Fails and recovers within the grace, in one batch, so that the speed of the test does not matter.
    let passing = [
        fleet.report(0, Transition::Failed, Reason::Fenced),
        fleet.report(0, Transition::Healthy, Reason::None),
    ];
    fleet.agents[0].send_reports(&passing).await?;
    for agent in 0..12 {
        fleet.send(agent, Transition::Failed, cause(agent)).await?;
    }
    receiver.got(3).await?;
    let opened = by_cause(&receiver, "alert.opened");
    assert_eq!(opened.keys().collect::<Vec<_>>(), ["image_not_pulled", "immutable_field", "quota_exceeded"]);
    let data = &opened["image_not_pulled"]["data"];
    assert_eq!(data["agents"], 4);
    assert_eq!(data["examples"], json!(["shop-00", "shop-03", "shop-06", "shop-09"]));
    assert_eq!(data["summary"], "web: an image cannot be pulled on 4 agents");
    assert_eq!(data["command"], "brokkr why web --agent shop-00");
    assert_eq!(data["next"], "correct the image, or give the cluster access to its registry");
    assert_eq!((&data["stack"]["name"], &data["reason"]), (&json!("web"), &json!("ImagePullBackOff")));
    // The same failures again, and another reason of the same cause, are no news.
    for agent in 0..12 {
        fleet.send(agent, Transition::Failed, cause(agent)).await?;
    }
    fleet.send(0, Transition::Failed, Reason::ErrImagePull).await?;
    for agent in 0..12 {
        fleet.send(agent, Transition::Healthy, Reason::None).await?;
    }
    receiver.got(6).await?;
    let resolved = by_cause(&receiver, "alert.resolved");
    for (cause, resolved) in &resolved {
        let opened = &opened[cause]["data"];
        assert_eq!(resolved["data"]["alert_id"], opened["alert_id"], "{cause}");
        assert_eq!(resolved["data"]["since"], opened["since"]);
        assert_eq!(resolved["data"]["agents"], 4, "the largest number");
    }
    assert_eq!((resolved.len(), receiver.seen().len()), (3, 6), "{:?}", receiver.kinds());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn f7_an_alert_is_neither_repeated_nor_lost_when_another_replica_takes_over() -> Result<()> {
    let trust = Trust::new()?;
    let receiver = trust.receiver(Answer::Status(200)).await?;
    let timing = [seconds(1), seconds(1), HOUR];
    let mut fleet = Fleet::open(&trust, 2, timing).await?;
    let args = trust.alert_args(timing[0], timing[1], timing[2])?;
    let second = serve_all(&fleet.harness.database, None, args).await?;
    create(&fleet.harness, "chat", &receiver, json!({ "events": ALERTS })).await?;
    fleet.send(0, Transition::Failed, Reason::Fenced).await?;
    fleet.send(1, Transition::Failed, Reason::Fenced).await?;
    receiver.got(1).await?;
    let recovered = [0, 1].map(|agent| (agent, fleet.report(agent, Transition::Healthy, Reason::None)));
    let Fleet { harness, agents, .. } = fleet;
    harness.server.stop().await;
    for (agent, report) in recovered {
        let (agent, body) = (&agents[agent], json!({ "reports": [report] }));
        let caller = agent.at(second.address).without_waiting();
        let response = caller.send(Method::POST, &agent.path("reports"), &body).await?;
        anyhow::ensure!(response.status().is_success(), "{}", response.text().await?);
    }
    receiver.got(2).await?;
    assert_eq!(receiver.kinds(), ["alert.opened", "alert.resolved"]);
    second.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn f7_a_flapping_agent_causes_at_most_two_messages_in_an_interval() -> Result<()> {
    let trust = Trust::new()?;
    let receiver = trust.receiver(Answer::Status(200)).await?;
    let interval = seconds(4);
    let mut fleet = Fleet::open(&trust, 1, [Duration::ZERO, Duration::ZERO, interval]).await?;
    create(&fleet.harness, "chat", &receiver, json!({ "events": ALERTS })).await?;
    let mut turns = 0;
    while receiver.seen().len() < 5 {
        turns += 1;
        assert!(turns < 100, "{:?}", receiver.kinds());
        fleet.send(0, Transition::Failed, Reason::Fenced).await?;
        tokio::time::sleep(interval / 3).await;
        fleet.send(0, Transition::Healthy, Reason::None).await?;
        tokio::time::sleep(interval / 3).await;
    }
    let sent = receiver.seen().into_iter().map(|message| {
        let message = message.json();
        let at: Timestamp = message["timestamp"].as_str().context("a time")?.parse()?;
        Ok((at, message["type"].to_string()))
    });
    let mut sent: Vec<(Timestamp, String)> = sent.collect::<Result<_>>()?;
    sent.sort();
    for three in sent.windows(3) {
        let within = Duration::try_from(three[2].0.duration_since(three[0].0))?;
        assert!(within >= interval, "three messages within {within:?}: {sent:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_alerts_are_routed_by_the_labels_of_stacks_and_agents() -> Result<()> {
    let trust = Trust::new()?;
    let mut fleet = Fleet::open(&trust, 6, [seconds(1), seconds(3), HOUR]).await?;
    let mut receivers = Vec::new();
    for (name, filter) in [
        ("payments", json!({ "events": ALERTS, "stack_selector": "team=payments" })),
        ("production", json!({ "events": ALERTS, "agent_selector": "env=prod" })),
        ("one", json!({ "events": ALERTS, "agents": ["shop-05"] })),
        ("search", json!({ "events": ALERTS, "stack_selector": "team=search" })),
        ("staging", json!({ "events": ALERTS, "agent_selector": "env=staging" })),
    ] {
        let receiver = trust.receiver(Answer::Status(200)).await?;
        create(&fleet.harness, name, &receiver, filter).await?;
        receivers.push(receiver);
    }
    for agent in 0..6 {
        fleet.send(agent, Transition::Failed, Reason::Fenced).await?;
    }
    for (receiver, agents, first) in [(0, 6, "shop-00"), (1, 3, "shop-00"), (2, 1, "shop-05")] {
        let opened = receivers[receiver].got(1).await?.remove(0).json();
        assert_eq!(
            (&opened["data"]["agents"], &opened["data"]["examples"][0]),
            (&json!(agents), &json!(first))
        );
    }
    // For this receiver it is over, for the others it is not.
    fleet.send(5, Transition::Healthy, Reason::None).await?;
    receivers[2].got(2).await?;
    let seen: Vec<usize> = receivers.iter().map(|receiver| receiver.seen().len()).collect();
    assert_eq!(seen, [1, 1, 2, 0, 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn f7_drift_that_is_repaired_again_and_again_is_an_alert_and_over_when_it_ends() -> Result<()> {
    let trust = Trust::new()?;
    let receiver = trust.receiver(Answer::Status(200)).await?;
    let grace = seconds(3);
    let mut fleet = Fleet::open(&trust, 1, [grace, Duration::ZERO, HOUR]).await?;
    create(&fleet.harness, "chat", &receiver, json!({ "events": ALERTS })).await?;
    let mut sent = 0;
    // Another client keeps changing a field: it is repaired until the alert arrives.
    while receiver.seen().is_empty() {
        sent += 1;
        fleet.send(0, Transition::Repaired, Reason::None).await?;
        assert!(sent < 400, "no alert for drift");
        tokio::time::sleep(grace / 10).await;
    }
    let seen = receiver.got(2).await?;
    assert_eq!(receiver.kinds(), ["alert.opened", "alert.resolved"]);
    let opened = seen[0].json();
    assert_eq!(opened["data"]["cause"], "contested");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn f7_the_end_of_an_alert_is_not_sent_before_its_beginning_has_arrived() -> Result<()> {
    let trust = Trust::new()?;
    let receiver = trust.receiver(Answer::Status(503)).await?;
    let mut fleet = Fleet::open(&trust, 1, [Duration::ZERO, Duration::ZERO, HOUR]).await?;
    create(&fleet.harness, "chat", &receiver, json!({ "events": ALERTS })).await?;
    fleet.send(0, Transition::Failed, Reason::Fenced).await?;
    receiver.got(1).await?;
    fleet.send(0, Transition::Healthy, Reason::None).await?;
    let mut connection = fleet.harness.database.connect().await?;
    // The end is written, the beginning was tried again after that, and its next attempt is planned.
    let is_due = "SELECT count(*) = 2 AND max(attempts) >= 2 AND bool_and(claim_token IS NULL) FROM webhook_deliveries";
    eventually(Duration::from_secs(60), "the first message to be tried again", async || {
        let is_due: bool = sqlx::query_scalar(is_due).fetch_one(&mut connection).await?;
        anyhow::ensure!(is_due);
        Ok(())
    })
    .await?;
    assert!(receiver.kinds().iter().all(|kind| kind == "alert.opened"), "{:?}", receiver.kinds());
    receiver.answer(Answer::Status(200));
    let tried = receiver.seen().len();
    sqlx::query("UPDATE webhook_deliveries SET due_at = now()").execute(&mut connection).await?;
    receiver.got(tried + 2).await?;
    assert_eq!(receiver.kinds()[tried..], ["alert.opened", "alert.resolved"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn f7_an_agent_that_waits_as_it_should_is_in_no_alert() -> Result<()> {
    let trust = Trust::new()?;
    let receiver = trust.receiver(Answer::Status(200)).await?;
    let mut fleet = Fleet::open(&trust, 3, [Duration::ZERO, seconds(1), HOUR]).await?;
    create(&fleet.harness, "chat", &receiver, json!({ "events": ALERTS })).await?;
    let wave = brokkr_api::reason::Wave::Number(1);
    fleet.send(0, Transition::Blocked, Reason::WaitingForWave { wave }).await?;
    fleet.send(1, Transition::Blocked, Reason::Suspended).await?;
    fleet.send(2, Transition::Failed, Reason::WaveNotReady { wave }).await?;
    let opened = receiver.got(1).await?.remove(0).json();
    assert_eq!(opened["data"]["summary"], "web: a wave of the stack is not ready in time on 1 agent");
    assert_eq!(opened["data"]["examples"], json!(["shop-02"]));
    let mut connection = fleet.harness.database.connect().await?;
    let failing: i64 =
        sqlx::query_scalar("SELECT count(*) FROM webhook_alarms").fetch_one(&mut connection).await?;
    assert_eq!((failing, receiver.seen().len()), (1, 1));
    Ok(())
}

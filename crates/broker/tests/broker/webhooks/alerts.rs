//! Lasting problems send one alert, and one when they are resolved.

use std::time::Duration;

use anyhow::Result;
use brokkr_api::report::Transition;
use brokkr_testkit::Postgres;
use serde_json::json;

use super::create;
use super::receiver::{Answer, Trust};
use crate::harness::{Harness, YAML};

#[tokio::test(flavor = "multi_thread")]
async fn f7_a_failure_that_lasts_is_sent_once_and_its_end_once_and_one_that_passes_never() -> Result<()> {
    let trust = Trust::new()?;
    let receiver = trust.receiver(Answer::Status(200)).await?;
    let harness = Harness::open_with(Postgres::shared().await?, trust.args(Duration::from_secs(2))?).await?;
    create(&harness, "pager", &receiver, json!({ "events": ["alert.failure", "alert.failure_resolved"] }))
        .await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "agents": ["shop-1"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let mut second = 1_760_000_000;
    let mut report = |transition: Transition| {
        second += 1;
        let text = format!("it is {transition}");
        let mut report = agent.report(stack.id, object.sequence_id, transition, second);
        report.message = brokkr_api::reason::Message::new(text);
        report
    };
    // A failure that ends within the grace period. In one batch, so that the speed of the test does not
    // matter.
    agent
        .send_reports(&[report(Transition::Failed), report(Transition::Applied), report(Transition::Healthy)])
        .await?;
    // A failure that lasts, reported repeatedly.
    agent
        .send_reports(&[report(Transition::Failed), report(Transition::Failed), report(Transition::Failed)])
        .await?;
    let raised = receiver.got(1).await?.remove(0).json();
    assert_eq!(raised["type"], "alert.failure");
    assert_eq!((&raised["data"]["count"], &raised["data"]["message"]), (&json!(3), &json!("it is failed")));
    agent.send_reports(&[report(Transition::Failed), report(Transition::Degraded)]).await?;
    agent.send_reports(&[report(Transition::Healthy)]).await?;
    let ended = receiver.got(2).await?.remove(1).json();
    assert_eq!(ended["type"], "alert.failure_resolved");
    assert_eq!((&ended["data"]["count"], &ended["data"]["since"]), (&json!(5), &raised["data"]["since"]));
    // The next message is the alert of a second episode, so none was sent in between.
    agent.send_reports(&[report(Transition::Blocked)]).await?;
    receiver.got(3).await?;
    assert_eq!(receiver.kinds(), ["alert.failure", "alert.failure_resolved", "alert.failure"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn f7_drift_that_is_repaired_again_and_again_is_sent_once_with_the_count_and_its_end_once() -> Result<()>
{
    let trust = Trust::new()?;
    let receiver = trust.receiver(Answer::Status(200)).await?;
    let grace = Duration::from_secs(3);
    let harness = Harness::open_with(Postgres::shared().await?, trust.args(grace)?).await?;
    create(&harness, "pager", &receiver, json!({ "events": ["alert.drift", "alert.drift_resolved"] }))
        .await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "agents": ["shop-1"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let mut sent = 0;
    // Another client keeps changing a field: it is repaired until the alert arrives.
    while receiver.seen().is_empty() {
        sent += 1;
        let repaired = agent.report(stack.id, object.sequence_id, Transition::Repaired, 1_760_000_000 + sent);
        agent.send_reports(&[repaired]).await?;
        assert!(sent < 400, "no alert for drift");
        tokio::time::sleep(grace / 10).await;
    }
    let seen = receiver.got(2).await?;
    let (raised, ended) = (seen[0].json(), seen[1].json());
    assert_eq!(
        (raised["type"].as_str(), ended["type"].as_str()),
        (Some("alert.drift"), Some("alert.drift_resolved"))
    );
    assert!(raised["data"]["count"].as_i64() > Some(1), "{raised}");
    assert_eq!(ended["data"]["since"], raised["data"]["since"]);
    assert!(ended["data"]["count"].as_i64() >= raised["data"]["count"].as_i64(), "{ended}");
    Ok(())
}

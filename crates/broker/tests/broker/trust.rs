//! J1: an agent holds, reads and reports only what was released to it. Everything else is refused and audited.

use anyhow::Result;
use brokkr_api::ErrorCode;
use brokkr_api::agents::RegisteredAgent;
use brokkr_api::audit::{AuditEntry, RefusalReason};
use brokkr_api::envelope::Removal;
use brokkr_api::events::Event;
use brokkr_api::objects::DeploymentObject;
use brokkr_api::page::Page;
use brokkr_api::report::{ReportReceipt, Transition};
use brokkr_api::status::{StackStatus, State};
use brokkr_api::system::UnsettledStack;
use brokkr_api::{SequenceId, StackId};
use brokkr_testkit::{Attempt, eventually};
use jiff::Timestamp;
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::harness::{Agent, Harness, Key, YAML, read, refused, register};

/// Waits until the audit log has an entry of the agent with this reason.
async fn audited(harness: &Harness, agent: &Agent, reason: RefusalReason) -> Result<AuditEntry> {
    let path = format!("audit?kind=refused&who=agent:{}", agent.id);
    eventually(std::time::Duration::from_secs(30), "the attempt to be audited", async || {
        let page: Page<AuditEntry> = match harness.admin.get_json(&path).await {
            Ok(page) => page,
            Err(error) => return Attempt::NotYet(error.to_string()),
        };
        match page.items.into_iter().find(|entry| entry.refusal == Some(reason)) {
            Some(entry) => Attempt::Done(entry),
            None => Attempt::NotYet("no such entry".to_owned()),
        }
    })
    .await
}

fn content(object: &DeploymentObject) -> String {
    format!("deployment-objects/{}", object.sequence_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn j1_a_claim_to_hold_a_stack_of_others_gives_no_content_removal_or_target() -> Result<()> {
    let harness = Harness::open().await?;
    let mut thief = harness.agent("shop-1", json!({})).await?;
    harness.agent("shop-2", json!({})).await?;
    let stack = harness.stack("web", json!({ "agents": ["shop-2"] })).await?;
    let object = harness.submit("web", YAML).await?;

    // A stack that is only announced is refused, and the set stays as it was.
    let claim = json!({ "stacks": [stack.id] });
    let response = thief.caller().send(Method::PUT, &thief.path("holds"), &claim).await?;
    assert_eq!(refused(response).await?, ErrorCode::BRK3007);
    assert_eq!(thief.poll().await?.status, StatusCode::OK, "the broker's set is still empty");
    let entry = audited(&harness, &thief, RefusalReason::NotTargeted).await?;
    assert_eq!((entry.route.as_str(), entry.status), ("/api/v1/agents/{agent}/holds", 409));

    // One that the agent says it has is stored, and counts for nothing.
    thief.have(&[stack.id]).await?;
    assert!(thief.poll().await?.envelope()?.stacks.is_empty(), "neither a target nor a removal");
    assert_eq!(refused(thief.caller().get(&content(&object)).await?).await?, ErrorCode::BRK2001);
    let newer = harness.submit("web", YAML).await?;
    assert_eq!(refused(thief.caller().get(&content(&newer)).await?).await?, ErrorCode::BRK2001);
    audited(&harness, &thief, RefusalReason::NotReleased).await?;
    let plain: Vec<serde_json::Value> = read(thief.caller().get(&thief.path("target-state")).await?).await?;
    assert!(plain.is_empty(), "{plain:?}");
    let statuses: Page<StackStatus> = harness.admin.get_json("stacks/web/status").await?;
    assert_eq!(statuses.items.len(), 1, "only its target");
    // An admin sees the claim.
    let claims: Page<UnsettledStack> = harness.admin.get_json("system/unconfirmed").await?;
    assert_eq!((claims.items.len(), claims.items[0].agents[0].agent_id), (1, thief.id));
    // It also keeps no content from being deleted, and no deleted stack in the lists.
    harness.delete("web").await?;
    assert!(thief.poll().await?.envelope()?.stacks.is_empty(), "nothing to remove");
    let deleted: Page<serde_json::Value> = harness.admin.get_json("stacks?deleted=true").await?;
    assert!(deleted.items.is_empty(), "{deleted:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn j1_content_is_served_up_to_the_newest_version_that_was_released_to_the_agent() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "agents": ["shop-1"] })).await?;
    let first = harness.submit("web", YAML).await?;
    agent.hold(&[stack.id]).await?;
    let second = harness.submit("web", YAML).await?;
    let applied = agent.report(stack.id, second.sequence_id, Transition::Applied, 1_760_000_000);
    agent.send_reports(&[applied]).await?;

    harness.target("web", json!({})).await?;
    let third = harness.submit("web", &YAML.replace("greeting", "secret")).await?;
    let envelope = agent.poll().await?.envelope()?;
    assert_eq!(envelope.stacks[0].removal, Some(Removal::Untargeted));
    for (object, readable) in [(&first, true), (&second, true), (&third, false)] {
        let status = agent.caller().get(&content(object)).await?.status();
        assert_eq!(status == StatusCode::OK, readable, "{} answered {status}", object.sequence_id);
    }
    // Claiming to have applied the newer version does not release it.
    let lie = agent.report(stack.id, third.sequence_id, Transition::Applied, 1_760_000_001);
    agent.send_reports(&[lie]).await?;
    assert_eq!(refused(agent.caller().get(&content(&third)).await?).await?, ErrorCode::BRK2001);
    // Nor does ending the claim and making it again.
    agent.hold(&[]).await?;
    agent.have(&[stack.id]).await?;
    assert_eq!(refused(agent.caller().get(&content(&third)).await?).await?, ErrorCode::BRK2001);
    assert_eq!(agent.caller().get(&content(&second)).await?.status(), StatusCode::OK, "it had this one");

    // A withdrawn grant freezes the stack: the agent holds it, and gets nothing newer.
    harness.target("web", json!({ "agents": ["shop-1"] })).await?;
    assert_eq!(agent.caller().get(&content(&third)).await?.status(), StatusCode::OK);
    let elsewhere = json!({ "project": "default", "selector": "no=such", "namespaces": ["*"], "kinds": ["*"], "account": "a/brokkr-a" });
    let granted = harness.admin.send(Method::PUT, "grants/narrow?expect=1", &elsewhere).await?;
    assert!(granted.status().is_success(), "{}", granted.text().await?);
    let fourth = harness.submit("web", YAML).await?;
    assert_eq!(refused(agent.caller().get(&content(&fourth)).await?).await?, ErrorCode::BRK2001);
    let plain: Vec<serde_json::Value> = read(agent.caller().get(&agent.path("target-state")).await?).await?;
    assert!(plain.is_empty(), "{plain:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn j1_reports_are_stored_only_for_stacks_and_versions_that_were_released_to_the_agent() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    harness.agent("shop-2", json!({ "env": "dev" })).await?;
    let mine = harness.stack("mine", json!({ "selectors": ["env=prod"] })).await?;
    let other = harness.stack("other", json!({ "selectors": ["env=dev"] })).await?;
    let (object, elsewhere) = (harness.submit("mine", YAML).await?, harness.submit("other", YAML).await?);
    let at = 1_760_000_000;
    let good = agent.report(mine.id, object.sequence_id, Transition::Applied, at);
    let bad = [
        agent.report(other.id, elsewhere.sequence_id, Transition::Failed, at),
        agent.report(StackId::generate(), object.sequence_id, Transition::Failed, at),
        agent.report(mine.id, SequenceId(object.sequence_id.0 + 100), Transition::Healthy, at),
        agent.report(mine.id, SequenceId(i64::MAX), Transition::Healthy, at),
    ];
    let batch: Vec<_> = bad.iter().cloned().chain([good.clone()]).collect();
    let receipt: ReportReceipt = read(agent.send_reports(&batch).await?).await?;
    assert_eq!(receipt.accepted, [good.id]);
    assert_eq!(receipt.refused, bad.iter().map(|report| report.id).collect::<Vec<_>>());
    let events: Page<Event> = harness.admin.get_json("events").await?;
    assert_eq!(events.items.iter().map(|event| event.id).collect::<Vec<_>>(), [good.id]);
    let statuses: Page<StackStatus> = harness.admin.get_json("stacks/other/status").await?;
    assert!(statuses.items.iter().all(|status| status.state == State::Pending), "{statuses:?}");
    for (reason, count) in [(RefusalReason::NotTargeted, 2), (RefusalReason::NotReleased, 2)] {
        let entry = audited(&harness, &agent, reason).await?;
        assert_eq!((entry.count, entry.route.as_str()), (count, "/api/v1/agents/{agent}/reports"));
    }

    // A report from the future does not hide later ones.
    let future = agent.report(mine.id, object.sequence_id, Transition::Failed, 4_000_000_000);
    let receipt: ReportReceipt = read(agent.send_reports(std::slice::from_ref(&future)).await?).await?;
    assert_eq!(receipt.accepted, [future.id]);
    let again: ReportReceipt = read(agent.send_reports(std::slice::from_ref(&future)).await?).await?;
    assert_eq!(again.duplicates, [future.id], "it is still stored once");
    // A copy that arrives when its time is no longer in the future: as if this one had arrived an hour ago.
    let early = agent.report(mine.id, object.sequence_id, Transition::Failed, 1_770_000_000);
    let mut connection = harness.database.connect().await?;
    for sql in [
        "INSERT INTO clamped_reports (project, id) VALUES ('default', $1)",
        "INSERT INTO events (project, id, at, stack_id, agent_id, sequence_id, transition, reason, message, objects, hops)
         SELECT project, $1, at, stack_id, agent_id, sequence_id, transition, reason, message, objects, hops
         FROM events LIMIT 1",
    ] {
        sqlx::query(sql).bind(early.id.0).execute(&mut connection).await?;
    }
    let copied: ReportReceipt = read(agent.send_reports(std::slice::from_ref(&early)).await?).await?;
    assert_eq!(copied.duplicates, [early.id]);
    let now = Timestamp::now().as_second() + 1;
    agent.send_reports(&[agent.report(mine.id, object.sequence_id, Transition::Healthy, now)]).await?;
    let statuses: Page<StackStatus> = harness.admin.get_json("stacks/mine/status").await?;
    assert_eq!(statuses.items[0].state, State::Healthy);

    // The last report about a stack may arrive after the agent no longer holds it.
    agent.hold(&[mine.id]).await?;
    let marker = harness.delete("mine").await?;
    agent.hold(&[]).await?;
    let removed = agent.report(mine.id, marker.sequence_id, Transition::Removed, now + 1);
    let receipt: ReportReceipt = read(agent.send_reports(std::slice::from_ref(&removed)).await?).await?;
    assert_eq!(receipt.accepted, [removed.id]);
    Ok(())
}

/// A replica that is behind must not refuse an agent that joined at another replica, nor what the other replica has
/// released to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_behind_refuses_no_agent_hold_or_report_wrongly() -> Result<()> {
    let harness = Harness::open().await?;
    let replica = harness.replica().await?;
    for round in 0..10 {
        let token = harness.join_token(&format!("new-{round}"), json!({})).await?;
        let key = Key::generate()?;
        let registered: RegisteredAgent =
            read(register(&harness.without_credential(), &token.token, &key).await?).await?;
        let joined = harness.joined(&registered, key);
        let answer = joined.at(replica.address).get(&joined.path("targets")).await?;
        assert_eq!(answer.status(), StatusCode::OK, "agent {round}");
    }
    let agent = harness.agent("shop-1", json!({})).await?;
    for round in 0..5 {
        let name = format!("web-{round}");
        let stack = harness.stack(&name, json!({ "agents": ["shop-1"] })).await?;
        let object = harness.submit(&name, YAML).await?;
        let there = agent.at(replica.address);
        let claim = json!({ "stacks": [stack.id] });
        let held = there.send(Method::PUT, &agent.path("holds"), &claim).await?;
        assert_eq!(held.status(), StatusCode::NO_CONTENT, "round {round}");
        let newer = harness.submit(&name, YAML).await?;
        assert!(newer.sequence_id > object.sequence_id);
        let report = agent.report(stack.id, newer.sequence_id, Transition::Applied, 1_760_000_000);
        let sent = there.send(Method::POST, &agent.path("reports"), &json!({ "reports": [report] })).await?;
        let receipt: ReportReceipt = read(sent).await?;
        assert_eq!(receipt.accepted.len(), 1, "round {round}");
        assert_eq!(there.get(&content(&newer)).await?.status(), StatusCode::OK, "round {round}");
    }
    replica.stop().await;
    Ok(())
}

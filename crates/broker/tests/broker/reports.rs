//! Reports become events, each once; the newest report about a stack is its status.

use anyhow::{Context as _, Result};
use brokkr_api::events::Event;
use brokkr_api::page::Page;
use brokkr_api::reason::{Message, ObjectRef, Reason};
use brokkr_api::report::{Condition, ConditionKind, ConditionStatus, ObjectNote, ReportReceipt, Transition};
use brokkr_api::status::{StackStatus, State};
use brokkr_api::{EventId, SequenceId};
use reqwest::Method;
use serde_json::json;

use crate::harness::{Harness, YAML, read};

#[tokio::test(flavor = "multi_thread")]
async fn a_report_sent_again_is_the_same_event() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let reports: Vec<_> = [Transition::Applied, Transition::Healthy, Transition::Repaired]
        .into_iter()
        .zip(1_760_000_000..)
        .map(|(transition, second)| agent.report(stack.id, object.sequence_id, transition, second))
        .collect();
    let ids: Vec<EventId> = reports.iter().map(|report| report.id).collect();
    let first: ReportReceipt = read(agent.send_reports(&reports[..2]).await?).await?;
    assert_eq!((first.accepted, first.duplicates), (ids[..2].to_vec(), vec![]));
    let second: ReportReceipt = read(agent.send_reports(&reports).await?).await?;
    assert_eq!((second.accepted, second.duplicates), (ids[2..].to_vec(), ids[..2].to_vec()));

    let events: Page<Event> = harness.admin.get_json("events?stack=web&agent=shop-1").await?;
    let ids_of_events: Vec<EventId> = events.items.iter().map(|event| event.id).collect();
    assert_eq!(ids_of_events, [ids[2], ids[1], ids[0]], "newest first, each once");
    let hops = events.items[0].hops;
    assert_eq!(hops.published, Some(object.created_at));
    assert!(hops.targeted.is_some() && hops.released.is_some() && hops.reported.is_some());

    let page: Page<Event> = harness.admin.get_json("events?limit=2").await?;
    let rest: Page<Event> =
        harness.admin.get_json(&format!("events?limit=2&after={}", page.next.unwrap())).await?;
    assert_eq!((rest.items[0].id, rest.items.len(), rest.next), (ids[0], 1, None));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_report_does_not_block_the_others_of_its_batch() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let report = |transition| agent.report(stack.id, object.sequence_id, transition, 1_760_000_000);
    let (good, mut forged, mut long) =
        (report(Transition::Applied), report(Transition::Failed), report(Transition::Degraded));
    forged.id = EventId::generate();
    // Letters of two bytes after a single byte: the limit falls into the middle of a letter.
    long.message = Message::new(format!("a\0{}", "é".repeat(5000)));
    let object = ObjectRef { kind: "o".repeat(5000), ..ObjectRef::default() };
    let fields = vec!["f\0".to_owned()];
    let note = ObjectNote { object, reason: Reason::Immutable { fields }, message: Message::default() };
    long.objects = vec![note; 30];
    let receipt: ReportReceipt =
        read(agent.send_reports(&[forged.clone(), good.clone(), long.clone()]).await?).await?;
    assert_eq!((receipt.accepted, receipt.refused), (vec![good.id, long.id], vec![forged.id]));

    let events: Page<Event> = harness.admin.get_json("events").await?;
    assert_eq!(events.items.len(), 2, "what is refused is not stored");
    let stored = events.items.iter().find(|event| event.id == long.id).context("the long one")?;
    assert_eq!(stored.message, Message::new(format!("a{}…", "é".repeat(4095))));
    assert_eq!(stored.objects.len(), 20);
    assert_eq!(stored.objects[0].object.kind.len(), 4096);
    // PostgreSQL cannot store a NUL: the reason stays, and its details are dropped.
    assert_eq!(stored.objects[0].reason, Reason::Other("Immutable".into()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn status_follows_the_target_state_and_the_reports() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    harness.agent("shop-2", json!({ "env": "dev" })).await?;
    let stack = harness.stack("web", json!({ "selectors": ["env=prod"] })).await?;
    let states = async || -> Result<Vec<StackStatus>> {
        let page: Page<StackStatus> = harness.admin.get_json("stacks/web/status").await?;
        Ok(page.items)
    };
    let object = harness.submit("web", YAML).await?;
    let pending = states().await?;
    assert_eq!(pending.len(), 1, "only the agent that it targets");
    assert_eq!((pending[0].state, pending[0].wanted_sequence_id), (State::Pending, Some(object.sequence_id)));
    assert_eq!(pending[0].hops.published, Some(object.created_at));

    agent.hold(&[stack.id]).await?;
    let healthy = agent.report(stack.id, object.sequence_id, Transition::Healthy, 1_760_000_010);
    agent.send_reports(std::slice::from_ref(&healthy)).await?;
    // An older report that arrives late is an event, but does not change the status.
    let late = agent.report(stack.id, object.sequence_id, Transition::Applied, 1_760_000_001);
    agent.send_reports(&[late]).await?;
    let status = states().await?;
    assert_eq!((status[0].state, status[0].ready, status[0].total), (State::Healthy, 1, 1));

    let newer = harness.submit("web", YAML).await?;
    assert_eq!(states().await?[0].state, State::Pending, "nothing is reported of the newer object");
    let marker = harness.delete("web").await?;
    let removing = states().await?;
    assert_eq!(
        (removing[0].state, removing[0].wanted_sequence_id),
        (State::Removing, Some(marker.sequence_id))
    );
    assert!(marker.sequence_id > newer.sequence_id);
    let mut blocked = agent.report(stack.id, marker.sequence_id, Transition::Blocked, 1_760_000_020);
    blocked.message = brokkr_api::reason::Message::new("a finalizer");
    agent.send_reports(&[blocked]).await?;
    assert_eq!(
        (states().await?[0].state, states().await?[0].message.to_string()),
        (State::Blocked, "a finalizer".to_owned())
    );
    let removed = agent.report(stack.id, marker.sequence_id, Transition::Removed, 1_760_000_030);
    agent.send_reports(&[removed]).await?;
    agent.hold(&[]).await?;
    assert_eq!(states().await?[0].state, State::Removed);
    Ok(())
}

/// F5 at the broker: the newest conditions are shown, also those of a repair, and older ones never replace
/// them.
#[tokio::test(flavor = "multi_thread")]
async fn f5_the_newest_conditions_are_shown_with_the_status() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    let stack = harness.stack("web", json!({ "selectors": ["env=prod"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let shown = async || -> Result<(State, Vec<String>)> {
        let page: Page<StackStatus> = harness.admin.get_json("stacks/web/status").await?;
        let reasons = page.items[0].conditions.iter().map(|condition| condition.reason.code().to_owned());
        Ok((page.items[0].state, reasons.collect()))
    };
    let report = |transition, second, reasons: &[&str]| {
        let mut report = agent.report(stack.id, object.sequence_id, transition, second);
        report.conditions = reasons.iter().map(|reason| contested(object.sequence_id, reason)).collect();
        report
    };
    assert_eq!(shown().await?, (State::Pending, vec![]));
    agent.send_reports(&[report(Transition::Healthy, 1_760_000_010, &["Uncontested"])]).await?;
    assert_eq!(shown().await?, (State::Healthy, vec!["Uncontested".to_owned()]));
    // A repair changes no state, but its conditions are shown.
    let repairs = [
        report(Transition::Repaired, 1_760_000_030, &["Fight\0ing"]),
        report(Transition::Repaired, 1_760_000_020, &["Older"]),
    ];
    agent.send_reports(&repairs).await?;
    assert_eq!(shown().await?, (State::Healthy, vec!["Fighting".to_owned()]));
    // Both arrive late.
    let late = [
        report(Transition::Repaired, 1_760_000_025, &["Late"]),
        report(Transition::Degraded, 1_760_000_026, &["Late"]),
    ];
    agent.send_reports(&late).await?;
    assert_eq!(shown().await?, (State::Degraded, vec!["Fighting".to_owned()]));
    // About another deployment object, nothing is known yet.
    let newer = harness.submit("web", YAML).await?;
    assert_eq!(shown().await?, (State::Pending, vec![]));
    let mut applied = agent.report(stack.id, newer.sequence_id, Transition::Applied, 1_760_000_001);
    applied.conditions = vec![contested(newer.sequence_id, "Fresh")];
    agent.send_reports(&[applied]).await?;
    assert_eq!(shown().await?, (State::Applied, vec!["Fresh".to_owned()]), "by sequence id, then by time");
    Ok(())
}

fn contested(sequence_id: SequenceId, reason: &str) -> Condition {
    Condition {
        kind: ConditionKind::Contested,
        status: ConditionStatus::True,
        reason: Reason::Other(reason.to_owned()),
        message: "Deployment shop/web: kubectl-edit changes .spec.replicas".into(),
        sequence_id,
        since: jiff::Timestamp::UNIX_EPOCH,
    }
}

/// Unknown values of a newer agent are stored and shown; a transition that is too long is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_transition_reason_and_condition_of_a_newer_agent_are_stored_and_shown() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    let stack = harness.stack("web", json!({ "selectors": ["env=prod"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let newer = Transition::Other("eclipsed".into());
    let report = agent.report(stack.id, object.sequence_id, newer.clone(), 1_760_000_010);
    let mut planted = json!(report);
    planted["reason"] = json!("MoonPhase");
    planted["details"] = json!({ "phase": 3 });
    planted["message"] = json!("the moon is full");
    planted["conditions"] = json!([{
        "kind": "Eclipsed", "status": "Perhaps", "reason": "MoonPhase", "message": "until dawn",
        "sequence_id": object.sequence_id, "since": "2026-01-01T00:00:00Z",
    }]);
    let long = agent.report(stack.id, object.sequence_id, Transition::Other("x".repeat(65)), 1_760_000_011);
    let body = json!({ "reports": [planted, long] });
    let response = agent.caller().send(Method::POST, &agent.path("reports"), &body).await?;
    let receipt: ReportReceipt = read(response).await?;
    assert_eq!((receipt.accepted, receipt.refused), (vec![report.id], vec![long.id]));

    let page: Page<StackStatus> = harness.admin.get_json("stacks/web/status").await?;
    let status = page.items.first().context("a row")?;
    assert_eq!((status.state, status.message.to_string().as_str()), (State::Unknown, "the moon is full"));
    assert_eq!(status.reason, Reason::Other("MoonPhase".into()));
    let condition = status.conditions.first().context("the condition")?;
    assert_eq!(condition.kind, ConditionKind::Other("Eclipsed".into()));
    assert_eq!(condition.status, ConditionStatus::Unknown);
    let events: Page<Event> = harness.admin.get_json("events").await?;
    assert_eq!(events.items.first().map(|event| &event.transition), Some(&newer));
    Ok(())
}

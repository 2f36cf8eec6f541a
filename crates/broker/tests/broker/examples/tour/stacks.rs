//! A stack is delivered to two clusters, fails on one of them in a new version, and is rolled back.

use anyhow::{Context as _, Result};
use brokkr_api::StackId;
use brokkr_api::fleet::FleetSummary;
use brokkr_api::objects::DeploymentObject;
use brokkr_api::reason::{ObjectRef, Reason};
use brokkr_api::report::{Condition, ConditionKind, ConditionStatus, Hops, ObjectNote, Report, Transition};
use brokkr_api::stacks::Stack;
use brokkr_testkit::{Attempt, eventually};
use reqwest::Method;
use serde_json::{Value, from_value, json};

use super::{SOON, Tour, manifest, submission, submit};
use crate::harness::{Agent, Caller};
use crate::streams::Reader;

pub async fn walk(tour: &Tour, owner: &Caller, eu: &mut Agent, us: &Agent) -> Result<StackId> {
    let stack: Stack =
        from_value(tour.put(owner, "stacks/web", json!({ "labels": { "team": "shop" } })).await?)?;
    tour.put(owner, "stacks/web/targets", json!({ "selectors": ["env=prod"] })).await?;
    tour.get(owner, "selectors/preview?selector=region%3Deu&stack=web").await?;
    tour.recorder.ask_in_vain(submission(owner, "web", "kind: Deployment\nmetadata:\n  name: web\n")).await?;
    let submitted = tour.recorder.ask(submission(owner, "web", &manifest("web", "1.4.0"))).await?;
    let first: DeploymentObject = from_value(submitted)?;
    deliver(tour, owner, eu, stack.id, &first).await?;
    send_report(us, tour.report(us, stack.id, first.sequence_id, Transition::Healthy)).await?;

    let second = submit(owner, "web", &manifest("web", "1.5.0")).await?;
    send_report(us, tour.report(us, stack.id, second.sequence_id, Transition::Healthy)).await?;
    send_report(eu, failure(tour.report(eu, stack.id, second.sequence_id, Transition::Failed))).await?;
    eu.poll().await?.envelope()?;
    inspect(tour, owner, &first, &second).await?;
    view(tour, owner).await?;

    let wanted = json!({ "reason": "the image of 1.5.0 was not pushed" });
    let third: DeploymentObject = from_value(tour.post(owner, "stacks/web/roll-back", wanted).await?)?;
    tour.get(owner, "stacks/web/barred-contents").await?;
    tour.delete(owner, &format!("stacks/web/barred-contents/{}", second.checksum)).await?;
    tour.get(owner, "stacks/web/deployment-objects").await?;
    let wanted = json!({ "sequence_id": third.sequence_id, "objects": 70, "agent": "eu-1" });
    tour.post(owner, "stacks/web/prune-approvals", wanted).await?;
    tour.get(owner, "stacks/web/prune-approvals").await?;
    let object = json!({ "kind": "Deployment", "name": "web" });
    let wanted =
        json!({ "agent": "eu-1", "object": object, "seconds": 7200, "reason": "debugging the cache" });
    tour.post(owner, "stacks/web/suspensions", wanted).await?;
    tour.get(owner, "stacks/web/suspensions").await?;
    tour.post(owner, "stacks/web/resume", json!({})).await?;
    health_rules(tour, owner, eu).await?;
    owner
        .send(Method::PUT, "stacks/load", &json!({ "annotations": { "brokkr.io/wave-wait": "healthy" } }))
        .await?
        .error_for_status()?;
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: migrate\n  namespace: shop\n";
    submit(owner, "load", job).await?;
    tour.post(owner, "stacks/load/rerun", json!({ "job": "migrate" })).await?;
    follow(tour, owner, eu, stack.id, &third).await?;
    Ok(stack.id)
}

/// Sets rules for the health of a custom kind, which the agent fetches.
async fn health_rules(tour: &Tour, owner: &Caller, eu: &Agent) -> Result<()> {
    let failed = json!({ "field": "status.phase", "equals": "Failed", "message": "status.error" });
    let rule = json!({ "groups": ["backup.example.com"], "kinds": ["Backup"], "failed": [failed],
        "ready": [{ "field": "status.phase", "equals": "Completed" }] });
    let rules = json!({ "rules": [rule] });
    tour.put(&tour.ops, "health-rules", rules.clone()).await?;
    tour.get(&tour.ops, "health-rules").await?;
    tour.put(owner, "stacks/web/health-rules", rules).await?;
    tour.get(owner, "stacks/web/health-rules").await?;
    let envelope = eu.poll().await?.envelope()?;
    let checksum = envelope.health_rules.context("the rules of the installation")?;
    tour.get(&eu.caller(), &eu.path(&format!("health-rules/{checksum}"))).await?;
    // The rest of the tour does without.
    for (caller, path) in [(&tour.ops, "health-rules"), (owner, "stacks/web/health-rules")] {
        caller.send(Method::PUT, path, &json!({ "rules": [] })).await?.error_for_status()?;
    }
    Ok(())
}

/// Delivers the first version as the agent does.
async fn deliver(
    tour: &Tour,
    owner: &Caller,
    eu: &mut Agent,
    stack: StackId,
    object: &DeploymentObject,
) -> Result<()> {
    let itself = eu.caller();
    tour.put(&itself, &eu.path("holds"), json!({ "stacks": [stack] })).await?;
    eu.holds = vec![stack];
    tour.get(&tour.ops, &eu.path("target-state")).await?;
    tour.recorder.ask(eu.poll_request()).await?;
    tour.get(owner, &eu.path("targets")).await?;
    tour.get(&itself, &format!("deployment-objects/{}", object.sequence_id)).await?;
    let applied = tour.report(eu, stack, object.sequence_id, Transition::Applied);
    let mut healthy = tour.report(eu, stack, object.sequence_id, Transition::Healthy);
    healthy.hops = Hops { healthy: healthy.hops.healthy, ..applied.hops };
    healthy.conditions = vec![Condition {
        kind: ConditionKind::Ready,
        status: ConditionStatus::True,
        reason: Reason::Ready,
        message: "2/2 resources ready".into(),
        sequence_id: object.sequence_id,
        since: healthy.at,
    }];
    tour.post(&itself, &eu.path("reports"), json!({ "reports": [applied, healthy] })).await?;
    Ok(())
}

async fn send_report(agent: &Agent, report: Report) -> Result<()> {
    agent.send_reports(&[report]).await?.error_for_status()?;
    Ok(())
}

fn failure(mut report: Report) -> Report {
    report.reason = Reason::ImagePullBackOff;
    report.message = brokkr_api::reason::Message::new("Deployment shop/web: 0/3 replicas ready");
    report.objects = vec![ObjectNote {
        object: ObjectRef {
            group: "apps".into(),
            kind: "Deployment".into(),
            namespace: Some("shop".into()),
            name: "web".into(),
        },
        reason: Reason::ImagePullBackOff,
        message: "cannot pull shop/web:1.5.0: not found".into(),
    }];
    (report.ready, report.total) = (0, 1);
    report
}

/// Reads the status and the explanation of a failure.
async fn inspect(
    tour: &Tour,
    owner: &Caller,
    first: &DeploymentObject,
    second: &DeploymentObject,
) -> Result<()> {
    for path in [
        "stacks",
        "stacks/web",
        "stacks/web/status?state=failed",
        "stacks/web/status/summary",
        "stacks/web/errors",
        "errors",
        "stacks/web/agents/eu-1/why",
        "stacks/web/agents/eu-1/hops",
        "agents/eu-1/why",
        "events?stack=web&agent=eu-1",
    ] {
        tour.get(owner, path).await?;
    }
    let (from, to) = (first.sequence_id, second.sequence_id);
    tour.get(owner, &format!("stacks/web/diff?from={from}&to={to}")).await?;
    Ok(())
}

/// Reads the views of the fleet.
async fn view(tour: &Tour, owner: &Caller) -> Result<()> {
    // They are a moment behind the reports.
    eventually(SOON, "the failure in the views", async || {
        match owner.get_json::<FleetSummary>("fleet/summary").await {
            Ok(summary) if summary.freshness.complete && summary.counts.failing == 1 => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    for path in ["fleet/summary", "fleet/matrix?by=region", "labels", "search?q=eu", "agents/eu-1/stacks"] {
        tour.get(owner, path).await?;
    }
    let path = "/api/v1/fleet/stream";
    let mut reader = Reader::open(owner, &format!("{path}?by=region"), None).await?;
    let message = reader.next().await?.context("the stream ended")?;
    let mut matrix: Value = serde_json::from_str(&message.data)?;
    // They differ between runs.
    matrix.as_object_mut().context("a matrix")?.retain(|key, _| key != "as_of" && key != "position");
    tour.recorder.message(path, format!("id: {}\nevent: {}\ndata: {matrix}\n\n", message.id, message.name))
}

/// Follows the status during a rollback.
async fn follow(
    tour: &Tour,
    owner: &Caller,
    eu: &Agent,
    stack: StackId,
    object: &DeploymentObject,
) -> Result<()> {
    let paths = ["/api/v1/events/stream", "/api/v1/stacks/web/status/stream"];
    let [mut events, mut statuses] =
        [Reader::open(owner, paths[0], None).await?, Reader::open(owner, paths[1], None).await?];
    send_report(eu, tour.report(eu, stack, object.sequence_id, Transition::Healthy)).await?;
    for (path, reader) in [(paths[0], &mut events), (paths[1], &mut statuses)] {
        // A stream begins at the position of its replica, which may be a moment behind.
        let message = loop {
            let message = reader.next().await?.context("the stream ended")?;
            if serde_json::from_str::<Value>(&message.data)?["sequence_id"] == json!(object.sequence_id) {
                break message;
            }
        };
        tour.recorder.message(
            path,
            format!("id: {}\nevent: {}\ndata: {}\n\n", message.id, message.name, message.data),
        )?;
    }
    Ok(())
}

//! G3: troubleshooting from one place: whether the agent is active, whether the stack targets it, what it
//! reported, and what blocks the stack.

use anyhow::{Context as _, Result};
use brokkr_api::agents::AgentStatus;
use brokkr_api::page::Page;
use brokkr_api::reason::{ObjectRef, Reason};
use brokkr_api::report::{ObjectNote, Transition};
use brokkr_api::stacks::Stack;
use brokkr_api::status::{StackStatus, State};
use brokkr_api::why::{AgentEventKind, AgentWhy, Cause, Hop, Presence, SequenceHops, StackWhy};
use brokkr_broker::domain::why::Refused;
use brokkr_broker::store::presence::refusals_store;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::json;

use crate::harness::{Agent, Harness, YAML};

async fn explain(harness: &Harness, stack: &str, agent: &str) -> Result<StackWhy> {
    harness.admin.get_json(&format!("stacks/{stack}/agents/{agent}/why")).await
}

fn broken(why: &StackWhy) -> Option<(Hop, Cause)> {
    why.broken.as_ref().map(|broken| (broken.hop, broken.cause))
}

async fn harness_with_web() -> Result<(Harness, Agent, Stack)> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({ "env": "prod", "region": "us" })).await?;
    let stack = harness.stack("web", json!({ "selectors": ["env=prod"] })).await?;
    Ok((harness, agent, stack))
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_from_nothing_submitted_to_healthy_the_first_broken_hop_is_reported() -> Result<()> {
    let (harness, mut agent, stack) = harness_with_web().await?;
    let why = explain(&harness, "web", "shop-1").await?;
    assert_eq!(broken(&why), Some((Hop::Published, Cause::NothingSubmitted)));

    let object = harness.submit("web", YAML).await?;
    let why = explain(&harness, "web", "shop-1").await?;
    assert_eq!(broken(&why), Some((Hop::Fetched, Cause::AgentNeverSeen)));
    assert_eq!(why.hops.published, Some(object.created_at));
    agent.poll().await?;
    let why = explain(&harness, "web", "shop-1").await?;
    assert_eq!((broken(&why), why.state), (Some((Hop::Fetched, Cause::NotReportedYet)), State::Pending));

    let now = Timestamp::now().as_second();
    let mut failed = agent.report(stack.id, object.sequence_id, Transition::Failed, now);
    (failed.hops.fetched, failed.hops.verified) = (Some(Timestamp::now()), Some(Timestamp::now()));
    failed.message = "1 object was refused".into();
    failed.objects = vec![ObjectNote {
        object: deployment(),
        reason: Reason::Other("MoonPhase".into()),
        message: "the moon is full".into(),
    }];
    agent.send_reports(&[failed]).await?;
    let why = explain(&harness, "web", "shop-1").await?;
    assert_eq!(broken(&why), Some((Hop::Applied, Cause::Failed)));
    assert_eq!(why.evidence[0], "Deployment shop/web: MoonPhase: the moon is full");

    let degraded = agent.report(stack.id, object.sequence_id, Transition::Degraded, now + 1);
    agent.send_reports(&[degraded]).await?;
    assert_eq!(broken(&explain(&harness, "web", "shop-1").await?), Some((Hop::Healthy, Cause::Degraded)));
    let healthy = agent.report(stack.id, object.sequence_id, Transition::Healthy, now + 2);
    agent.send_reports(&[healthy]).await?;
    let why = explain(&harness, "web", "shop-1").await?;
    assert_eq!((why.broken, why.state), (None, State::Healthy));

    // The stack is deleted, and something blocks its removal.
    agent.hold(&[stack.id]).await?;
    let marker = harness.delete("web").await?;
    assert_eq!(broken(&explain(&harness, "web", "shop-1").await?), Some((Hop::Pruned, Cause::Removing)));
    let mut blocked = agent.report(stack.id, marker.sequence_id, Transition::Blocked, now + 3);
    blocked.message = brokkr_api::reason::Message::new(
        "PersistentVolumeClaim shop/data: finalizer kubernetes.io/pvc-protection",
    );
    agent.send_reports(&[blocked]).await?;
    let why = explain(&harness, "web", "shop-1").await?;
    assert_eq!(broken(&why), Some((Hop::Pruned, Cause::Blocked)));
    assert!(why.broken.context("it is blocked")?.message.to_string().contains("finalizer"));
    let removed = agent.report(stack.id, marker.sequence_id, Transition::Removed, now + 4);
    agent.send_reports(&[removed]).await?;
    agent.hold(&[]).await?;
    let why = explain(&harness, &stack.id.to_string(), "shop-1").await?;
    assert_eq!((why.broken, why.state), (None, State::Removed));

    // The hops of each object are listed, not only those of the newest.
    let path = format!("stacks/{}/agents/shop-1/hops", stack.id);
    let page: Page<SequenceHops> = harness.admin.get_json(&path).await?;
    let objects: Vec<_> =
        page.items.iter().map(|object| (object.sequence_id, object.reports.len())).collect();
    assert_eq!(objects, [(marker.sequence_id, 2), (object.sequence_id, 3)]);
    assert!(page.items[1].hops.fetched.is_some() && page.items[1].hops.published.is_some());
    let first: Page<SequenceHops> = harness.admin.get_json(&format!("{path}?limit=1")).await?;
    let rest: Page<SequenceHops> =
        harness.admin.get_json(&format!("{path}?after={}", first.next.context("more")?)).await?;
    assert_eq!(rest.items[0].sequence_id, object.sequence_id);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_an_agent_that_is_not_targeted_gets_the_label_that_does_not_match() -> Result<()> {
    let (harness, _, _) = harness_with_web().await?;
    harness.submit("web", YAML).await?;
    harness.target("web", json!({ "selectors": ["env=prod,region=eu", "env=dev,region=eu"] })).await?;
    let why = explain(&harness, "web", "shop-1").await?;
    assert_eq!(broken(&why), Some((Hop::Targeted, Cause::NotTargeted)));
    assert_eq!(
        why.evidence[0],
        "selector env=prod,region=eu does not match: it requires region=eu, but the agent has region=us"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_problems_of_the_agent_are_reported_for_it_and_for_its_stacks() -> Result<()> {
    let (harness, agent, stack) = harness_with_web().await?;
    let object = harness.submit("web", YAML).await?;
    agent.poll().await?;
    let of_agent = async || harness.admin.get_json::<AgentWhy>("agents/shop-1/why").await;
    let why = of_agent().await?;
    assert_eq!((why.presence, why.broken, why.affected_stacks), (Presence::Fresh, None, 1));
    assert_eq!(broken(&why.stacks[0]), Some((Hop::Fetched, Cause::NotReportedYet)));

    harness.admin.send(Method::PATCH, "agents/shop-1", &json!({ "status": "INACTIVE" })).await?;
    let why = of_agent().await?;
    assert_eq!(
        (why.status, why.broken.map(|broken| broken.cause)),
        (AgentStatus::Inactive, Some(Cause::AgentInactive))
    );
    assert_eq!(
        broken(&explain(&harness, "web", "shop-1").await?),
        Some((Hop::Fetched, Cause::AgentInactive))
    );
    harness.admin.send(Method::PATCH, "agents/shop-1", &json!({ "status": "ACTIVE" })).await?;

    // Healthy, and then silent: the last report may no longer be true.
    let healthy =
        agent.report(stack.id, object.sequence_id, Transition::Healthy, Timestamp::now().as_second());
    agent.send_reports(&[healthy]).await?;
    assert_eq!(explain(&harness, "web", "shop-1").await?.broken, None);
    let second = harness.replica().await?;
    let mut connection = harness.database.connect().await?;
    harness.store_polls().await?;
    sqlx::query("UPDATE agents SET last_seen_at = now() - interval '2 hours', poll_seconds = 30")
        .execute(&mut connection)
        .await?;
    harness.checked_for("1 hour").await?;
    brokkr_broker::store::presence::presence_mark_silent(&harness.server.broker.pool).await?;
    // The first replica has seen the agent itself; the second knows only what is stored.
    let caller = harness.admin.at(second.address);
    let why: AgentWhy = caller.get_json("agents/shop-1/why").await?;
    assert_eq!(
        (why.presence, why.broken.map(|broken| broken.cause)),
        (Presence::Silent, Some(Cause::AgentSilent))
    );
    assert_eq!(why.events[0].kind, AgentEventKind::Silent);
    let why: StackWhy = caller.get_json("stacks/web/agents/shop-1/why").await?;
    assert_eq!(broken(&why), Some((Hop::Reported, Cause::AgentSilent)));
    second.stop().await;
    Ok(())
}

/// A refusal by one replica is shown by the others.
#[tokio::test(flavor = "multi_thread")]
async fn g3_a_refusal_in_an_agents_name_is_known_to_every_replica() -> Result<()> {
    let (harness, agent, _) = harness_with_web().await?;
    harness.submit("web", YAML).await?;
    let refused = |seconds: i64, because: &str| Refused {
        at: Timestamp::now() - SignedDuration::from_secs(seconds),
        because: because.to_owned(),
    };
    let pool = &harness.server.broker.pool;
    for one in [refused(1, "it signs with another key"), refused(60, "an older one")] {
        refusals_store(pool, &[(agent.id, one)]).await?;
    }
    let second = harness.replica().await?;
    let caller = harness.admin.at(second.address);
    let ask = async || caller.get_json::<StackWhy>("stacks/web/agents/shop-1/why").await;
    let why = ask().await?;
    assert_eq!(broken(&why), Some((Hop::Fetched, Cause::AgentRefused)));
    assert!(why.broken.context("it is refused")?.message.to_string().ends_with("it signs with another key"));
    // An agent that was seen a moment ago is fine, even if other clients use its name.
    sqlx::query("UPDATE agents SET last_seen_at = now(), poll_seconds = 30").execute(pool).await?;
    let why = ask().await?;
    assert_eq!(broken(&why), Some((Hop::Fetched, Cause::NotReportedYet)));
    assert!(
        why.evidence.iter().any(|line| line.ends_with("it signs with another key")),
        "{:?}",
        why.evidence
    );
    second.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_a_stack_is_listed_by_state_and_by_label_page_by_page() -> Result<()> {
    let harness = Harness::open().await?;
    let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let object = harness.submit("web", YAML).await?;
    for number in 0..9 {
        let region = if number % 2 == 0 { "eu" } else { "us" };
        let agent = harness.agent(&format!("shop-{number}"), json!({ "region": region })).await?;
        let transition = match number % 3 {
            0 => Transition::Failed,
            1 => Transition::Healthy,
            _ => continue,
        };
        agent.send_reports(&[agent.report(stack.id, object.sequence_id, transition, 1_700_000_000)]).await?;
    }
    let all = async |query: &str| -> Result<Vec<String>> {
        let (mut names, mut after) = (Vec::new(), String::new());
        loop {
            let path = format!("stacks/web/status?limit=2{query}{after}");
            let page: Page<StackStatus> = harness.admin.get_json(&path).await?;
            assert!(page.items.len() <= 2);
            names.extend(page.items.into_iter().map(|line| line.agent_name));
            match page.next {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(names),
            }
        }
    };
    assert_eq!(all("").await?.len(), 9);
    assert_eq!(all("&state=failed").await?, ["shop-0", "shop-3", "shop-6"]);
    assert_eq!(all("&state=pending").await?, ["shop-2", "shop-5", "shop-8"]);
    assert_eq!(all("&state=failed&selector=region%3Deu").await?, ["shop-0", "shop-6"]);
    assert_eq!(all("&selector=region%3Dus").await?, ["shop-1", "shop-3", "shop-5", "shop-7"]);
    // A newer object, on which no agent has failed.
    harness.submit("web", YAML).await?;
    assert!(all("&state=failed").await?.is_empty());
    assert_eq!(all("&state=pending").await?.len(), 9);
    Ok(())
}

fn deployment() -> ObjectRef {
    ObjectRef {
        group: "apps".into(),
        kind: "Deployment".into(),
        namespace: Some("shop".into()),
        name: "web".into(),
    }
}

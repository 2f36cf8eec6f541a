//! Upgrades of agents with a real database and real polls: agents are offered an image in waves, and what they report decides how it goes
//! on.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brokkr_api::agents::Agent as ShownAgent;
use brokkr_api::page::Page;
use brokkr_api::protocol::{Capabilities, Capability, header};
use brokkr_api::rollouts::{RolloutState, StopReason};
use brokkr_api::upgrades::{AgentUpgrade, AgentUpgradeStatus, UpgradeOffer, UpgradeStep};
use brokkr_api::why::Presence;
use brokkr_api::{ErrorCode, UpgradeId};
use brokkr_testkit::{Attempt, eventually};
use jiff::Timestamp;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Agent, Harness, current, read, refused};

const DEADLINE: Duration = Duration::from_secs(60);
const OLD: &str = "1.0.0";
const NEW: &str = "1.1.0";

/// Agents of which the owners allow upgrades.
struct Fleet {
    harness: Harness,
    agents: Vec<Agent>,
}

fn image() -> String {
    format!("registry.example/brokkr-agent@sha256:{}", "0a".repeat(32))
}

/// Opens the session of a process with this version again.
async fn open_session(agent: &Agent, version: &str) -> Result<()> {
    let body = json!({ "count": agent.session.count, "instance": agent.session.instance });
    let caller = agent.caller();
    let request = caller.request(Method::POST, &agent.path("session")).json(&body);
    let request = request
        .header(header::CAPABILITIES, agent.capabilities.to_string())
        .header("user-agent", format!("brokkr-agent/{version}"));
    caller.write(request).await?.error_for_status()?;
    Ok(())
}

async fn report(
    agent: &Agent,
    id: UpgradeId,
    step: UpgradeStep,
    version: &str,
    reason: Value,
) -> Result<Response> {
    let mut body = json!({ "id": id, "step": step, "version": version, "at": Timestamp::now() });
    if !reason.is_null() {
        body["reason"] = reason;
    }
    agent.caller().send(Method::POST, &agent.path("upgrade"), &body).await
}

/// Returns what the broker asks the agent for.
async fn wants(agent: &Agent) -> Result<Option<String>> {
    let polled = agent.poll().await?;
    Ok(polled.headers.get(header::WANTS).and_then(|value| value.to_str().ok()).map(ToOwned::to_owned))
}

impl Fleet {
    async fn new(names: &[&str]) -> Result<Self> {
        let harness = Harness::open().await?;
        let mut agents = Vec::new();
        for name in names {
            let mut agent = harness.agent(name, json!({ "name": name })).await?;
            agent.capabilities = Capabilities::own();
            open_session(&agent, OLD).await?;
            agent.poll().await?;
            agents.push(agent);
        }
        harness.store_polls().await?;
        Ok(Self { harness, agents })
    }

    async fn begin(&self, selector: Option<&str>) -> Result<AgentUpgrade> {
        let policy = json!({ "waves": [{ "size": "1" }, { "size": "100%" }], "soak_seconds": 0 });
        let body = json!({ "image": image(), "version": NEW, "selector": selector, "policy": policy });
        read(self.harness.admin.send(Method::POST, "agent-upgrades", &body).await?).await
    }

    async fn upgrade(&self, id: UpgradeId) -> Result<AgentUpgrade> {
        self.harness.admin.get_json(&format!("agent-upgrades/{id}")).await
    }

    async fn command(&self, id: UpgradeId, command: &str) -> Result<Response> {
        let path = format!("agent-upgrades/{id}/{command}");
        self.harness.admin.send(Method::POST, &path, &json!({ "reason": "a test" })).await
    }

    /// Waits until exactly this many agents are asked to fetch an upgrade.
    async fn wait_for(&self, count: usize) -> Result<Vec<usize>> {
        eventually(DEADLINE, &format!("{count} agents to be asked"), async || {
            let mut asked = Vec::new();
            for (number, agent) in self.agents.iter().enumerate() {
                if wants(agent).await?.as_deref() == Some("upgrade") {
                    asked.push(number);
                }
            }
            ensure!(asked.len() == count, "{asked:?}");
            Ok(asked)
        })
        .await
    }

    async fn wait_for_state(&self, id: UpgradeId, wanted: RolloutState) -> Result<AgentUpgrade> {
        eventually(DEADLINE, &format!("the upgrade to be {wanted}"), async || match self.upgrade(id).await {
            Ok(upgrade) if upgrade.state == wanted => Attempt::Done(upgrade),
            other => Attempt::NotYet(format!("{other:?}")),
        })
        .await
    }

    /// Lets an agent go through the whole upgrade.
    async fn succeed(&self, agent: usize, id: UpgradeId) -> Result<()> {
        let agent = &self.agents[agent];
        report(agent, id, UpgradeStep::Begun, OLD, Value::Null).await?.error_for_status()?;
        open_session(agent, NEW).await?;
        for step in [UpgradeStep::TakenOver, UpgradeStep::Reconciled] {
            report(agent, id, step, NEW, Value::Null).await?.error_for_status()?;
        }
        Ok(())
    }

    async fn offer(&self, agent: usize) -> Result<Response> {
        let agent = &self.agents[agent];
        agent.caller().get(&agent.path("upgrade")).await
    }

    async fn statuses(&self, id: UpgradeId) -> Result<Vec<AgentUpgradeStatus>> {
        let page: Page<AgentUpgradeStatus> =
            self.harness.admin.get_json(&format!("agent-upgrades/{id}/agents")).await?;
        Ok(page.items)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_reaches_one_agent_first_and_the_others_when_it_has_reconciled() -> Result<()> {
    let fleet = Fleet::new(&["shop-1", "shop-2", "shop-3"]).await?;
    let id = fleet.begin(None).await?.id;
    let first = fleet.wait_for(1).await?[0];
    let offer: UpgradeOffer = read(fleet.offer(first).await?).await?;
    assert_eq!((offer.id, offer.image, offer.version.as_str()), (id, image(), NEW));
    let other = (first + 1) % 3;
    assert_eq!(refused(fleet.offer(other).await?).await?, ErrorCode::BRK2001);

    let agent = &fleet.agents[first];
    report(agent, id, UpgradeStep::Begun, OLD, Value::Null).await?.error_for_status()?;
    fleet.wait_for(0).await?;
    assert_eq!(fleet.offer(first).await?.status(), StatusCode::OK, "until it ends");
    fleet.succeed(first, id).await?;
    // The others do not wait any more.
    let next = fleet.wait_for(1).await?[0];
    assert_ne!(next, first);
    fleet.succeed(next, id).await?;
    let last = fleet.wait_for(1).await?[0];
    fleet.succeed(last, id).await?;
    let upgrade = fleet.wait_for_state(id, RolloutState::Completed).await?;
    assert_eq!((upgrade.figures.healthy, upgrade.figures.members), (3, 3));
    for status in fleet.statuses(id).await? {
        assert_eq!((status.step, status.version.as_deref()), (Some(UpgradeStep::Reconciled), Some(NEW)));
    }
    assert_eq!(refused(fleet.command(id, "pause").await?).await?, ErrorCode::BRK2023);

    // An agent that joins later gets it, too.
    let mut late = fleet.harness.agent("shop-4", json!({})).await?;
    assert_eq!(wants(&late).await?, None, "its owner allows no upgrades");
    late.capabilities = Capabilities::own();
    late.poll().await?;
    fleet.harness.store_polls().await?;
    eventually(DEADLINE, "the agent to be asked, which has announced that it allows upgrades", async || {
        wants(&late).await.is_ok_and(|want| want.as_deref() == Some("upgrade"))
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_agent_is_woken_by_the_offer_and_a_key_comes_first() -> Result<()> {
    let fleet = Fleet::new(&["shop-1"]).await?;
    let agent = &fleet.agents[0];
    let etag = agent.poll().await?.etag;
    let begin = async {
        eventually(DEADLINE, "the poll to wait", async || fleet.harness.server.broker.index.waiting() == 1)
            .await?;
        fleet.begin(None).await
    };
    let (polled, begun) = tokio::join!(agent.wait(&etag, 60), begin);
    begun?;
    let polled = polled?;
    assert_eq!(polled.status, StatusCode::NOT_MODIFIED, "the target state is the same");
    assert_eq!(polled.headers[header::WANTS], "upgrade");

    let rotation = fleet.harness.admin.send(Method::POST, "agents/shop-1/rotation", &json!({})).await?;
    rotation.error_for_status()?;
    assert_eq!(wants(agent).await?.as_deref(), Some("key"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_that_is_restored_stops_and_takes_the_offer_back() -> Result<()> {
    let fleet = Fleet::new(&["shop-1", "shop-2"]).await?;
    let id = fleet.begin(None).await?.id;
    let first = fleet.wait_for(1).await?[0];
    let agent = &fleet.agents[first];
    report(agent, id, UpgradeStep::Begun, OLD, Value::Null).await?.error_for_status()?;
    let reason = json!({ "kind": "not_started", "message": "ErrImagePull" });
    report(agent, id, UpgradeStep::Restored, OLD, reason).await?.error_for_status()?;
    let upgrade = fleet.wait_for_state(id, RolloutState::Stopped).await?;
    assert_eq!(upgrade.stop_reason, Some(StopReason::TooManyBad { bad: 1, allowed: 0 }));
    fleet.wait_for(0).await?;
    for agent in [0, 1] {
        assert_eq!(refused(fleet.offer(agent).await?).await?, ErrorCode::BRK2001);
    }
    let name = ["shop-1", "shop-2"][first];
    let shown: ShownAgent = fleet.harness.admin.get_json(&format!("agents/{name}")).await?;
    let reported = shown.upgrade.context("its last step")?;
    assert_eq!((reported.id, reported.step), (id, UpgradeStep::Restored));
    assert!(reported.reason.is_some_and(|reason| reason.to_string().contains("ErrImagePull")));

    fleet.command(id, "resume").await?.error_for_status()?;
    assert_eq!(fleet.wait_for(1).await?, [1 - first], "what has failed is not tried again");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_stops_nothing_and_is_named() -> Result<()> {
    let fleet = Fleet::new(&["shop-1", "shop-2"]).await?;
    let id = fleet.begin(None).await?.id;
    let first = fleet.wait_for(1).await?[0];
    let reason = json!({ "kind": "not_allowed", "allowed": "registry.example/other" });
    report(&fleet.agents[first], id, UpgradeStep::Refused, OLD, reason).await?.error_for_status()?;
    // Another agent proves the version in its place.
    let second = fleet.wait_for(1).await?[0];
    assert_ne!(second, first);
    fleet.succeed(second, id).await?;
    let upgrade = fleet.wait_for_state(id, RolloutState::Completed).await?;
    assert_eq!((upgrade.figures.healthy, upgrade.figures.owed, upgrade.figures.bad), (1, 1, 0));
    let statuses = fleet.statuses(id).await?;
    let refused = &statuses[first];
    assert_eq!(refused.step, Some(UpgradeStep::Refused));
    assert!(
        refused.reason.as_ref().is_some_and(|reason| reason.to_string().contains("registry.example/other"))
    );
    // Its owner has allowed it, so that it starts again.
    open_session(&fleet.agents[first], OLD).await?;
    assert_eq!(fleet.wait_for(1).await?, [first]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_without_the_capability_are_owed_the_upgrade() -> Result<()> {
    let mut fleet = Fleet::new(&["shop-1", "shop-2"]).await?;
    fleet.agents[1].capabilities = [Capability::KeyRotation].into_iter().collect();
    fleet.agents[1].poll().await?;
    fleet.harness.store_polls().await?;
    current(&fleet.harness.server.broker).await?;
    let id = fleet.begin(None).await?.id;
    assert_eq!(fleet.wait_for(1).await?, [0]);
    fleet.succeed(0, id).await?;
    let upgrade = fleet.wait_for_state(id, RolloutState::Completed).await?;
    assert_eq!((upgrade.figures.members, upgrade.figures.bad), (2, 0));
    assert_eq!(wants(&fleet.agents[1]).await?, None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_are_idempotent_and_late_ones_change_nothing() -> Result<()> {
    let fleet = Fleet::new(&["shop-1", "shop-2"]).await?;
    let id = fleet.begin(None).await?.id;
    let first = fleet.wait_for(1).await?[0];
    fleet.succeed(first, id).await?;
    let agent = &fleet.agents[first];
    for step in [UpgradeStep::Begun, UpgradeStep::Reconciled, UpgradeStep::Refused] {
        let status = report(agent, id, step, NEW, Value::Null).await?.status();
        assert_eq!(status, StatusCode::NO_CONTENT, "{step}");
    }
    assert_eq!(fleet.statuses(id).await?[first].step, Some(UpgradeStep::Reconciled));
    assert_eq!(wants(agent).await?, None, "it has ended");

    let never = UpgradeId(i64::MAX);
    let lie = report(agent, never, UpgradeStep::Begun, OLD, Value::Null).await?;
    assert_eq!(refused(lie).await?, ErrorCode::BRK2001);
    let long = json!({ "kind": "not_started", "message": "x".repeat(1001) });
    let long = report(agent, id, UpgradeStep::Restored, OLD, long).await?;
    assert_eq!(refused(long).await?, ErrorCode::BRK2003);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_upgrade_supersedes_those_that_may_be_for_the_same_agents() -> Result<()> {
    let fleet = Fleet::new(&["shop-1", "shop-2"]).await?;
    let one = fleet.begin(Some("name=shop-1")).await?.id;
    let two = fleet.begin(Some("name=shop-2")).await?.id;
    assert_eq!(fleet.wait_for(2).await?, [0, 1]);
    assert_eq!(fleet.upgrade(one).await?.state, RolloutState::Running, "they have no agent in common");
    let three = fleet.begin(Some("name in (shop-1,shop-3)")).await?.id;
    assert_eq!(fleet.upgrade(one).await?.state, RolloutState::Superseded);
    assert_eq!(fleet.upgrade(two).await?.state, RolloutState::Running);
    eventually(DEADLINE, "the newer one to be offered", async || {
        let offer: UpgradeOffer = read(fleet.offer(0).await?).await?;
        ensure!(offer.id == three, "{offer:?}");
        Ok(())
    })
    .await?;
    let listed: Page<AgentUpgrade> = fleet.harness.admin.get_json("agent-upgrades?limit=2").await?;
    assert_eq!(listed.items.iter().map(|upgrade| upgrade.id).collect::<Vec<_>>(), [three, two]);
    let rest: Page<AgentUpgrade> = fleet
        .harness
        .admin
        .get_json(&format!("agent-upgrades?after={}", listed.next.context("more")?))
        .await?;
    assert_eq!(rest.items.iter().map(|upgrade| upgrade.id).collect::<Vec<_>>(), [one]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_freeze_of_the_installation_holds_an_upgrade_back() -> Result<()> {
    let fleet = Fleet::new(&["shop-1"]).await?;
    let rule = json!({ "kind": "freeze", "from": "2000-01-01T00:00:00Z", "until": "9000-01-01T00:00:00Z", "reason": "" });
    let freeze = json!({ "selector": "*", "rule": rule });
    fleet.harness.admin.send(Method::PUT, "windows/freeze", &freeze).await?.error_for_status()?;
    let id = fleet.begin(None).await?.id;
    eventually(DEADLINE, "the upgrade to wait for the freeze", async || {
        let upgrade = fleet.upgrade(id).await?;
        ensure!(format!("{:?}", upgrade.pending).contains("Window"), "{upgrade:?}");
        Ok(())
    })
    .await?;
    assert_eq!(wants(&fleet.agents[0]).await?, None);
    fleet.harness.admin.request(Method::DELETE, "windows/freeze").send().await?.error_for_status()?;
    fleet.wait_for(1).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_request_of_a_new_process_for_its_offer_is_no_sign_of_life() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let offer = agent.caller().get(&agent.path("upgrade")).await?;
    assert_eq!(refused(offer).await?, ErrorCode::BRK2001);
    let shown: ShownAgent = harness.admin.get_json("agents/shop-1").await?;
    assert_eq!((shown.presence, shown.session_count), (Presence::Never, 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_needs_a_digest_a_version_and_waves() -> Result<()> {
    let harness = Harness::open().await?;
    for (image, version, policy) in [
        ("registry.example/brokkr-agent:1.1.0", NEW, json!({})),
        (image().as_str(), "latest", json!({})),
        (image().as_str(), "1.1.0-rc.1", json!({})),
        (image().as_str(), NEW, json!({ "staged": false })),
        (image().as_str(), NEW, json!({ "waves": [] })),
    ] {
        let body = json!({ "image": image, "version": version, "policy": policy });
        let response = harness.admin.send(Method::POST, "agent-upgrades", &body).await?;
        assert_eq!(refused(response).await?, ErrorCode::BRK2003, "{body}");
    }
    Ok(())
}

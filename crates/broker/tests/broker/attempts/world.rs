//! Two replicas and three projects with live agents, and the agents that an attacker controls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::objects::DeploymentObject;
use brokkr_api::report::Transition;
use brokkr_api::stacks::Stack;
use brokkr_api::tokens::{JoinToken, Role};
use brokkr_api::{SequenceId, StackId};
use brokkr_broker::serve::Server;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::harness::{Agent, Caller, Harness, Key, read, register};

/// A stack and its versions. The content of each version contains a marker that occurs nowhere else.
pub struct Target {
    pub id: StackId,
    pub name: &'static str,
    pub versions: Vec<SequenceId>,
}

impl Target {
    pub fn newest(&self) -> SequenceId {
        *self.versions.last().expect("a version")
    }
}

pub struct World {
    pub harness: Harness,
    pub replica: Server,
    /// The stack of the attacker, and those of others.
    pub own: Target,
    pub other: Target,
    pub before: Target,
    pub foreign: Target,
    pub deleted: Target,
    /// The agents of the attacker: in good standing, with an older session, INACTIVE, revoked, and with the key from
    /// before it joined again.
    pub attacker: Agent,
    pub superseded: Agent,
    pub inactive: Agent,
    pub revoked: Agent,
    pub rejoined: Agent,
    load: Load,
}

/// Agents that poll and report, and a user who submits, until the end of the test.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<Result<()>>>,
}

impl World {
    pub async fn start() -> Result<Self> {
        let harness = Harness::open().await?;
        let replica = harness.replica().await?;
        let red = harness.project("red", Role::Owner).await?;
        harness.project("blue", Role::Owner).await?;
        for project in ["red", "blue"] {
            let grant = json!({ "project": project, "selector": "team=red", "namespaces": [project], "kinds": ["*"],
                "account": format!("{project}/brokkr-{project}") });
            harness
                .admin
                .send(Method::PUT, &format!("grants/{project}"), &grant)
                .await?
                .error_for_status()?;
        }
        let mut attacker = harness.agent("mallory", json!({ "team": "m" })).await?;
        let superseded = harness.agent("older", json!({ "team": "m" })).await?;
        let inactive = harness.agent("idle", json!({ "team": "m" })).await?;
        let revoked = harness.agent("lost", json!({ "team": "m" })).await?;
        let rejoined = harness.agent("twice", json!({ "team": "m" })).await?;
        let mut victim = harness.agent("red-1", json!({ "team": "red" })).await?;
        let live = harness.agent("live-1", json!({ "team": "live" })).await?;

        let own = target(&harness.admin, "own", json!({ "selectors": ["team=m"] }), "default", 3).await?;
        let other = target(&harness.admin, "other", json!({ "agents": ["red-1"] }), "default", 2).await?;
        let foreign = target(&red, "foreign", json!({ "agents": ["red-1"] }), "red", 2).await?;
        let deleted = target(&harness.admin, "deleted", json!({ "agents": ["red-1"] }), "default", 2).await?;
        // The attacker had the first version of this one.
        let mut before =
            target(&harness.admin, "before", json!({ "agents": ["mallory"] }), "default", 1).await?;
        attacker.hold(&[own.id, before.id]).await?;
        attacker
            .send_reports(&[attacker.report(before.id, before.newest(), Transition::Applied, 1_760_000_000)])
            .await?;
        harness.target("before", json!({ "agents": ["red-1"] })).await?;
        attacker.hold(&[own.id]).await?;
        before.versions.push(submit(&harness.admin, "before", "default", 2).await?);
        victim.hold(&[other.id, foreign.id, before.id, deleted.id]).await?;
        for stack in [&other, &foreign, &before] {
            victim
                .send_reports(&[victim.report(stack.id, stack.newest(), Transition::Healthy, 1_760_000_000)])
                .await?;
        }
        harness.delete("deleted").await?;

        let mut world = Self {
            load: Load::start(&harness, &replica, live).await?,
            harness,
            replica,
            own,
            other,
            before,
            foreign,
            deleted,
            attacker,
            superseded,
            inactive,
            revoked,
            rejoined,
        };
        world.disable().await?;
        Ok(world)
    }

    /// Brings the other agents of the attacker into their states.
    async fn disable(&mut self) -> Result<()> {
        let admin = &self.harness.admin;
        let newer = json!({ "count": 2, "instance": brokkr_api::InstanceId::generate() });
        let opened =
            self.superseded.caller().send(Method::POST, &self.superseded.path("session"), &newer).await?;
        opened.error_for_status()?;
        let status = json!({ "status": "INACTIVE" });
        let patched = admin.send(Method::PATCH, "agents/idle", &status).await?;
        anyhow::ensure!(patched.status().is_success(), "{}", patched.text().await?);
        for name in ["lost", "twice"] {
            admin.request(Method::DELETE, &format!("agents/{name}/keys")).send().await?.error_for_status()?;
        }
        let path = "agents/twice/join-tokens";
        let token: JoinToken = read(admin.send(Method::POST, path, &json!({})).await?).await?;
        register(&self.harness.without_credential(), &token.token, &Key::generate()?)
            .await?
            .error_for_status()?;
        Ok(())
    }

    /// Returns what belongs to others and does not change by the load.
    pub async fn bystanders(&self) -> Result<Vec<String>> {
        let mut connection = self.harness.database.connect().await?;
        let quiet: Vec<uuid::Uuid> =
            [&self.other, &self.before, &self.foreign, &self.deleted].map(|stack| stack.id.0).to_vec();
        let mine: Vec<uuid::Uuid> =
            [&self.attacker, &self.superseded, &self.inactive, &self.revoked, &self.rejoined]
                .map(|agent| agent.id.0)
                .to_vec();
        // The stack that the attacker had may get reports from it about the version that it had.
        let rows = sqlx::query_scalar(
            "SELECT 'status ' || to_jsonb(s)::text FROM stack_status s WHERE stack_id = ANY($1) AND agent_id <> ALL($2)
             UNION ALL SELECT 'event ' || to_jsonb(e)::text FROM events e
                 WHERE stack_id = ANY($1) AND (agent_id <> ALL($2) OR stack_id <> $3)
             UNION ALL SELECT 'target ' || to_jsonb(t)::text FROM stack_targets t WHERE stack_id = ANY($1)
             UNION ALL SELECT 'stack ' || to_jsonb(s)::text FROM stacks s WHERE id = ANY($1)
             UNION ALL SELECT 'hold ' || to_jsonb(h)::text FROM agent_holds h WHERE agent_id <> ALL($2) AND stack_id = ANY($1)
             UNION ALL SELECT 'agent ' || a.name || a.status || a.labels::text FROM agents a WHERE id <> ALL($2)
             UNION ALL SELECT 'message ' || to_jsonb(d)::text FROM webhook_deliveries d
             UNION ALL SELECT 'on hold ' || coalesce(held_cause::text, '') FROM installation WHERE held_since IS NOT NULL
             ORDER BY 1",
        )
        .bind(quiet)
        .bind(mine)
        .bind(self.before.id.0)
        .fetch_all(&mut connection)
        .await?;
        Ok(rows)
    }

    /// Returns the markers in a text that the attacker must not read.
    pub fn leaks(&self, text: &str) -> Vec<String> {
        let secret = [(&self.other, 1), (&self.before, 2), (&self.foreign, 1), (&self.deleted, 1)];
        let markers = secret.iter().flat_map(|(stack, first)| {
            (*first..=stack.versions.len()).map(|version| marker(stack.name, version))
        });
        markers.filter(|marker| text.contains(marker)).collect()
    }

    /// Ends the load, and returns how many requests of others were answered. Fails if one of them failed.
    pub async fn stop(self) -> Result<usize> {
        self.load.stop.store(true, Ordering::Relaxed);
        for task in self.load.tasks {
            task.await??;
        }
        self.replica.stop().await;
        Ok(self.load.done.load(Ordering::Relaxed))
    }
}

pub fn marker(stack: &str, version: usize) -> String {
    format!("marker-{stack}-{version}-end")
}

async fn submit(caller: &Caller, stack: &str, namespace: &str, version: usize) -> Result<SequenceId> {
    let yaml = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {stack}\n  namespace: {namespace}\ndata:\n  value: {}\n",
        marker(stack, version)
    );
    let request = caller.request(Method::POST, &format!("stacks/{stack}/deployment-objects")).body(yaml);
    Ok(read::<DeploymentObject>(caller.write(request).await?).await?.sequence_id)
}

async fn target(
    caller: &Caller,
    name: &'static str,
    targets: Value,
    namespace: &str,
    versions: usize,
) -> Result<Target> {
    caller.send(Method::PUT, &format!("stacks/{name}"), &json!({})).await?.error_for_status()?;
    let stack: Stack =
        read(caller.send(Method::PUT, &format!("stacks/{name}/targets"), &targets).await?).await?;
    let mut stored = Vec::new();
    for version in 1..=versions {
        stored.push(submit(caller, name, namespace, version).await.context(name)?);
    }
    Ok(Target { id: stack.id, name, versions: stored })
}

impl Load {
    async fn start(harness: &Harness, replica: &Server, mut live: Agent) -> Result<Self> {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let busy = target(&harness.admin, "busy", json!({ "agents": ["live-1"] }), "default", 1).await?;
        live.hold(&[busy.id]).await?;
        let (admin, ended, count) = (harness.admin.without_waiting(), Arc::clone(&stop), Arc::clone(&done));
        let submitting = tokio::spawn(async move {
            let mut version = 2;
            while !ended.load(Ordering::Relaxed) {
                submit(&admin, "busy", "default", version).await?;
                version += 1;
                count.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        });
        let (addresses, ended, count) =
            ([harness.server.address, replica.address], Arc::clone(&stop), Arc::clone(&done));
        let living = tokio::spawn(async move {
            let mut second = 1_760_000_000;
            while !ended.load(Ordering::Relaxed) {
                for address in addresses {
                    let polled = crate::harness::polled(live.poll_request_at(address)).await?;
                    // A replica that has not read the agent's list yet asks for it, and the agent polls again.
                    if polled.status == 428 {
                        continue;
                    }
                    anyhow::ensure!(polled.status == 200, "{}", String::from_utf8_lossy(&polled.body));
                    let newest = polled.envelope()?.stacks[0].sequence_id;
                    second += 1;
                    let report = live.report(busy.id, newest, Transition::Healthy, second);
                    let path = live.path("reports");
                    let sent =
                        live.at(address).send(Method::POST, &path, &json!({ "reports": [report] })).await?;
                    anyhow::ensure!(sent.status().is_success(), "{}", sent.text().await?);
                    count.fetch_add(2, Ordering::Relaxed);
                }
            }
            Ok(())
        });
        Ok(Self { stop, done, tasks: vec![submitting, living] })
    }
}

//! Two replicas and three projects with live agents, and the agents that an attacker controls.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use brokkr_api::objects::DeploymentObject;
use brokkr_api::protocol::header;
use brokkr_api::report::Transition;
use brokkr_api::stacks::Stack;
use brokkr_api::tokens::{JoinToken, Role};
use brokkr_api::{AgentId, PositionToken, SequenceId, StackId};
use brokkr_broker::args::webhooks::WebhookArgs;
use brokkr_testkit::Postgres;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::load::Load;
use super::replica::Replica;
use crate::harness::{Agent, Caller, Harness, Key, polled, position, read, register};

const SECRET_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const AT: i64 = 1_760_000_000;

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
    /// Sets up the world; the attempts and the load go to the replicas below.
    pub harness: Harness,
    pub replicas: [Replica; 2],
    pub load: Load,
    /// The stack of the attacker, and of one of the victims.
    pub own: Target,
    /// Stacks that the attacker had: held by it, no longer held, and deleted and purged while it held it.
    pub before: Target,
    pub left: Target,
    pub purged: Target,
    /// Stacks of others: in the project of the attacker, in other projects, without a grant, and deleted.
    pub other: Target,
    pub foreign: [Target; 2],
    pub not_granted: Target,
    pub deleted: Target,
    /// Agents of others: with the same stack as the attacker, and in two other projects.
    pub victims: [Agent; 3],
    /// The agents of the attacker: in good standing, with an older session, INACTIVE, revoked, with the key from before it
    /// joined again, one that reports too much, and one whose key is to be changed.
    pub attacker: Agent,
    pub superseded: Agent,
    pub inactive: Agent,
    pub revoked: Agent,
    pub rejoined: Agent,
    pub flooding: Agent,
    pub keyed: Agent,
    /// A position that the broker has issued.
    pub issued: PositionToken,
    /// Assertions for reading that a replica accepted before the key was revoked.
    accepted: HashMap<(AgentId, u16), String>,
}

impl World {
    pub async fn start() -> Result<Self> {
        let webhooks = WebhookArgs {
            secret_key: Some(SECRET_KEY.into()),
            webhook_networks: vec!["127.0.0.0/8".parse()?],
            webhook_any_port: true,
            ..WebhookArgs::default()
        };
        // On a server of its own: an open transaction of another test would make refusals wait.
        let harness = Harness::open_with(Arc::new(Postgres::start().await?), webhooks).await?;
        let database = &harness.database;
        let replicas =
            tokio::try_join!(Replica::start(database, SECRET_KEY), Replica::start(database, SECRET_KEY))?;
        let replicas = [replicas.0, replicas.1];
        let at = [replicas[0].address, replicas[1].address];
        let admin = &harness.admin;
        let red = project(&harness, "red").await?;
        let blue = project(&harness, "blue").await?;

        let mine = async |name: &str| harness.agent(name, json!({ "team": "m" })).await;
        let (mut attacker, superseded, inactive) =
            (mine("mallory").await?, mine("older").await?, mine("idle").await?);
        let (revoked, rejoined) = (mine("lost").await?, mine("twice").await?);
        let (flooding, keyed) = (mine("flooding").await?, mine("keyed").await?);
        let mut peer = harness.agent("peer", json!({ "team": "m" })).await?;
        let mut red_agent = harness.agent("red-1", json!({ "team": "red" })).await?;
        let mut blue_agent = harness.agent("blue-1", json!({ "team": "blue" })).await?;

        hook(admin, json!({ "stacks": ["other-secret-name", "deleted-secret-name"] })).await?;
        hook(&red, json!({})).await?;
        let own = target(admin, "own", json!({ "selectors": ["team=m"] }), "default", 3).await?;
        let other = target(admin, "other-secret-name", json!({ "agents": ["red-1"] }), "default", 2).await?;
        let deleted =
            target(admin, "deleted-secret-name", json!({ "agents": ["red-1"] }), "default", 2).await?;
        let foreign = [
            target(&red, "red-secret-name", json!({ "agents": ["red-1"] }), "red", 2).await?,
            target(&blue, "blue-secret-name", json!({ "agents": ["blue-1"] }), "blue", 2).await?,
        ];
        let not_granted =
            target(&blue, "ungranted-secret-name", json!({ "selectors": ["team=m"] }), "blue", 1).await?;
        // The attacker had the first versions of these.
        let to_attacker = json!({ "agents": ["mallory"] });
        let mut before = target(admin, "before", to_attacker.clone(), "default", 1).await?;
        let mut left = target(admin, "left", to_attacker.clone(), "default", 1).await?;
        let purged = target(admin, "purged", to_attacker, "default", 1).await?;
        attacker.hold(&[own.id, before.id, left.id, purged.id]).await?;
        for stack in [&before, &left, &purged] {
            report(&attacker, stack, Transition::Applied).await?;
            for address in at {
                let path = format!("deployment-objects/{}", stack.newest());
                attacker.at(address).get(&path).await?.error_for_status()?;
            }
        }
        attacker.hold(&[own.id, before.id, purged.id]).await?;
        for stack in [&mut before, &mut left] {
            harness.target(stack.name, json!({ "agents": ["red-1"] })).await?;
            stack.versions.push(submit(admin, stack.name, "default", 2).await?);
        }
        peer.hold(&[own.id]).await?;
        report(&peer, &own, Transition::Healthy).await?;
        red_agent.hold(&[other.id, foreign[0].id, before.id, left.id, deleted.id]).await?;
        for stack in [&other, &foreign[0], &before] {
            report(&red_agent, stack, Transition::Healthy).await?;
        }
        blue_agent.hold(&[foreign[1].id]).await?;
        report(&blue_agent, &foreign[1], Transition::Healthy).await?;
        harness.delete(deleted.name).await?;
        harness.delete(purged.name).await?;
        let because = json!({ "reason": "it has secrets" });
        let purging = admin.send(Method::POST, &format!("stacks/{}/purge", purged.id), &because).await?;
        anyhow::ensure!(purging.status().is_success(), "{}", purging.text().await?);

        let mut load = Load::default();
        for (user, project, name) in [(admin, "default", "busy-default"), (&blue, "blue", "busy-blue")] {
            let labels = json!({ "team": project, "live": project });
            let mut live = harness.agent(&format!("live-{project}"), labels).await?;
            let selectors = json!({ "selectors": [format!("live={project}")] });
            let stack = target(user, name, selectors, project, 1).await?;
            live.hold(&[stack.id]).await?;
            load.add(user, live, stack, project, at);
        }

        let issued = polled(attacker.poll_request_at(at[0])).await?.position.context("a position")?;
        let mut world = Self {
            replicas,
            load,
            own,
            before,
            left,
            purged,
            other,
            foreign,
            not_granted,
            deleted,
            victims: [peer, red_agent, blue_agent],
            attacker,
            superseded,
            inactive,
            revoked,
            rejoined,
            flooding,
            keyed,
            issued,
            accepted: HashMap::new(),
            harness,
        };
        world.disable().await?;
        Ok(world)
    }

    /// Brings the other agents of the attacker into their states, through one of the replicas under attack.
    async fn disable(&mut self) -> Result<()> {
        for agent in [&self.revoked, &self.rejoined] {
            let credential = agent.key.sign(&agent.claims())?;
            for replica in &self.replicas {
                let caller = Caller::new(replica.address, Some(credential.clone()));
                caller.get(&agent.path("targets")).await?.error_for_status()?;
                self.accepted.insert((agent.id, replica.address.port()), credential.clone());
            }
        }
        let admin = self.harness.admin.at(self.replicas[0].address);
        let newer = json!({ "count": 2, "instance": brokkr_api::InstanceId::generate() });
        let older = self.superseded.at(self.replicas[0].address);
        older.send(Method::POST, &self.superseded.path("session"), &newer).await?.error_for_status()?;
        admin
            .send(Method::PATCH, "agents/idle", &json!({ "status": "INACTIVE" }))
            .await?
            .error_for_status()?;
        admin.request(Method::DELETE, "agents/lost/keys").send().await?.error_for_status()?;
        let path = "agents/twice/join-tokens";
        let token: JoinToken = read(admin.send(Method::POST, path, &json!({})).await?).await?;
        let nobody = Caller::new(self.replicas[0].address, None);
        let joined = register(&nobody, &token.token, &Key::generate()?).await?.error_for_status()?;
        // Both replicas have to know all of this.
        let now = position(&joined).context("a position")?;
        for replica in &self.replicas {
            let request: RequestBuilder =
                self.harness.admin.at(replica.address).request(Method::GET, "agents");
            request.header(header::POSITION, now.to_string()).send().await?.error_for_status()?;
        }
        Ok(())
    }

    pub fn accepted_before(&self, agent: &Agent, replica: &Replica) -> Result<String> {
        self.accepted.get(&(agent.id, replica.address.port())).cloned().context("an assertion from before")
    }

    /// The agents of the attacker.
    pub fn own_agents(&self) -> impl Iterator<Item = &Agent> {
        let others =
            [&self.superseded, &self.inactive, &self.revoked, &self.rejoined, &self.flooding, &self.keyed];
        std::iter::once(&self.attacker).chain(others)
    }

    /// The stacks that never targeted the attacker.
    pub fn others(&self) -> impl Iterator<Item = &Target> {
        [&self.other, &self.deleted, &self.not_granted].into_iter().chain(&self.foreign)
    }

    /// Returns the names and contents in a text that the attacker must not read.
    pub fn leaks(&self, text: &str) -> Vec<String> {
        let names = self.others().map(|stack| stack.name.to_owned());
        let contents =
            |stack: &Target| (1..=stack.versions.len()).map(|version| marker(stack.name, version)).collect();
        let others = self.others().flat_map(|stack| -> Vec<String> { contents(stack) });
        let had = [marker(self.before.name, 2), marker(self.left.name, 1), marker(self.left.name, 2)];
        let secrets = names.chain(others).chain(had).chain([marker(self.purged.name, 1)]);
        secrets.filter(|secret| text.contains(secret)).collect()
    }
}

fn marker(stack: &str, version: usize) -> String {
    format!("marker-{stack}-{version}-end")
}

/// Creates a project that may use the agents of its team, and returns its owner.
async fn project(harness: &Harness, name: &str) -> Result<Caller> {
    let owner = harness.project(name, Role::Owner).await?;
    let grant = json!({ "project": name, "selector": format!("team={name}"), "namespaces": [name], "kinds": ["*"],
        "account": format!("{name}/brokkr-{name}") });
    harness.admin.send(Method::PUT, &format!("grants/{name}"), &grant).await?.error_for_status()?;
    Ok(owner)
}

/// Creates a webhook. Nothing answers it: only its messages matter.
async fn hook(owner: &Caller, filter: Value) -> Result<()> {
    let wanted = json!({ "name": "hook", "url": "https://127.0.0.1:9/", "filter": filter });
    let made = owner.send(Method::POST, "webhooks", &wanted).await?;
    anyhow::ensure!(made.status().is_success(), "{}", made.text().await?);
    Ok(())
}

async fn report(agent: &Agent, stack: &Target, transition: Transition) -> Result<()> {
    let report = agent.report(stack.id, stack.newest(), transition, AT);
    agent.send_reports(&[report]).await?.error_for_status()?;
    Ok(())
}

pub async fn submit(caller: &Caller, stack: &str, namespace: &str, version: usize) -> Result<SequenceId> {
    let yaml = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: some\n  namespace: {namespace}\ndata:\n  value: {}\n",
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

//! After random changes, the index finds the same rows as the database, in every state of every stack.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use brokkr_api::fleet::FleetMatrix;
use brokkr_api::objects::DeploymentObject;
use brokkr_api::page::Page;
use brokkr_api::report::Transition;
use brokkr_api::status::{StackStatus, State};
use brokkr_api::{Problem, SequenceId, StackId};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::settled;
use crate::harness::{Agent, Harness, YAML};

const STACKS: [&str; 3] = ["web", "api", "db"];
/// A stack that is being deleted.
const DELETED: &str = "gone";
/// The first agents hold it.
const HOLDERS: usize = 2;
const SELECTORS: [&str; 4] = ["*", "env=prod", "env!=prod", "env"];
const STATES: [State; 9] = [
    State::Pending,
    State::Applied,
    State::Healthy,
    State::Degraded,
    State::Failed,
    State::Removing,
    State::Blocked,
    State::Removed,
    State::Unknown,
];
const TRANSITIONS: [Transition; 7] = [
    Transition::Applied,
    Transition::Healthy,
    Transition::Degraded,
    Transition::Failed,
    Transition::Repaired,
    Transition::Blocked,
    Transition::Removed,
];

struct History {
    harness: Harness,
    random: SmallRng,
    agents: Vec<(String, Agent)>,
    joined: usize,
    stacks: Vec<StackId>,
    versions: Vec<SequenceId>,
    deleted: StackId,
    marker: SequenceId,
    second: i64,
}

impl History {
    async fn begin(seed: u64) -> Result<Self> {
        let harness = Harness::open().await?;
        let (mut stacks, mut versions) = (Vec::new(), Vec::new());
        for name in STACKS {
            stacks.push(harness.stack(name, json!({ "selectors": ["*"] })).await?.id);
            versions.push(harness.submit(name, YAML).await?.sequence_id);
        }
        let random = SmallRng::seed_from_u64(seed);
        let (agents, deleted, marker) = (Vec::new(), StackId::generate(), SequenceId(0));
        let second = 1_700_000_000;
        let mut history =
            Self { harness, random, agents, joined: 0, stacks, versions, deleted, marker, second };
        for _ in 0..6 {
            history.join().await?;
        }
        history.begin_deletion().await?;
        Ok(history)
    }

    fn labels(&mut self) -> Value {
        ["{}", r#"{"env":"prod"}"#, r#"{"env":"dev"}"#]
            .choose(&mut self.random)
            .and_then(|labels| serde_json::from_str(labels).ok())
            .unwrap_or_default()
    }

    async fn join(&mut self) -> Result<()> {
        let (name, labels) = (format!("shop-{}", self.joined), self.labels());
        self.joined += 1;
        let agent = self.harness.agent(&name, labels).await?;
        self.agents.push((name, agent));
        Ok(())
    }

    /// Sends a change, and confirms the number of stacks that it removes.
    async fn patch(&self, name: &str, body: &Value) -> Result<()> {
        let path = format!("agents/{name}");
        let response = self.harness.admin.send(Method::PATCH, &path, body).await?;
        if response.status() != StatusCode::CONFLICT {
            response.error_for_status()?;
            return Ok(());
        }
        let expect = response.json::<Problem>().await?.expect.context("a number")?;
        let path = format!("{path}?expect={expect}");
        self.harness.admin.send(Method::PATCH, &path, body).await?.error_for_status()?;
        Ok(())
    }

    async fn change(&mut self) -> Result<()> {
        let at = self.random.random_range(0..self.agents.len());
        let number = self.random.random_range(0..STACKS.len());
        let name = self.agents[at].0.clone();
        match self.random.random_range(0..24) {
            0 => self.join().await?,
            1 if at >= HOLDERS => {
                let (name, _) = self.agents.remove(at);
                for path in [format!("agents/{name}/keys"), format!("agents/{name}")] {
                    let request = self.harness.admin.request(Method::DELETE, &path);
                    self.harness.admin.write(request).await?.error_for_status()?;
                }
            }
            2 => {
                let labels = self.labels();
                self.patch(&name, &json!({ "labels": labels })).await?;
            }
            3 => {
                let status = if self.random.random_bool(0.5) { "ACTIVE" } else { "INACTIVE" };
                self.patch(&name, &json!({ "status": status })).await?;
            }
            4 => {
                let yaml = YAML.replace("greeting", &format!("greeting-{}", self.second));
                self.versions[number] = self.harness.submit(STACKS[number], &yaml).await?.sequence_id;
            }
            5 => {
                let selector = *SELECTORS.choose(&mut self.random).context("selectors")?;
                self.harness.target(STACKS[number], json!({ "selectors": [selector] })).await?;
            }
            6 if at >= HOLDERS => {
                let held = self.stacks[number];
                // A stack that does not target the agent is not confirmed.
                let body = json!({ "stacks": [held] });
                let agent = &self.agents[at].1;
                agent.caller().send(Method::PUT, &agent.path("holds"), &body).await?;
                agent.caller().send(Method::PUT, &agent.path("holds"), &json!({ "stacks": [] })).await?;
            }
            7 | 8 => {
                let agent = &self.agents[at].1;
                let transition =
                    if self.random.random_bool(0.7) { Transition::Removed } else { Transition::Blocked };
                let report = agent.report(self.deleted, self.marker, transition, self.second);
                agent.send_reports(&[report]).await?;
            }
            _ => self.report(at, number).await?,
        }
        self.second += 1;
        Ok(())
    }

    /// Begins the deletion of a stack in waves. It never ends: two agents hold the stack, and the first wave takes a day.
    async fn begin_deletion(&mut self) -> Result<()> {
        let stack = self.harness.stack(DELETED, json!({ "selectors": ["*"] })).await?.id;
        let version = self.harness.submit(DELETED, YAML).await?.sequence_id;
        settled(&self.harness.server.broker).await?;
        for (_, agent) in &mut self.agents[..HOLDERS] {
            agent.hold(&[stack]).await?;
            let report = agent.report(stack, version, Transition::Healthy, self.second);
            agent.send_reports(&[report]).await?.error_for_status()?;
        }
        let path = format!("stacks/{DELETED}?waves=1,100%25&soak_seconds=86400");
        let admin = &self.harness.admin;
        let response = admin.write(admin.request(Method::DELETE, &path)).await?.error_for_status()?;
        let marker: DeploymentObject = response.json().await?;
        (self.deleted, self.marker) = (stack, marker.sequence_id);
        Ok(())
    }

    async fn report(&mut self, at: usize, number: usize) -> Result<()> {
        let transition = TRANSITIONS.choose(&mut self.random).context("transitions")?.clone();
        // Sometimes of an older version, which is not stored over a newer one.
        let version = SequenceId(self.versions[number].0 - self.random.random_range(0..2));
        let agent = &self.agents[at].1;
        let report = agent.report(self.stacks[number], version, transition, self.second);
        // Reports about a stack that does not reach the agent may be refused.
        agent.send_reports(&[report]).await?;
        Ok(())
    }

    async fn compare(&self) -> Result<()> {
        settled(&self.harness.server.broker).await?;
        let admin = &self.harness.admin;
        for stack in STACKS.into_iter().chain([DELETED]) {
            let mut all = BTreeSet::new();
            for state in STATES {
                let path = format!("stacks/{stack}/status?limit=500&state={state}");
                let stored: Page<StackStatus> = admin.get_json(&path).await?;
                let found: Page<StackStatus> =
                    admin.get_json(&format!("{path}&sort=-name&count=true")).await?;
                let names = |page: &Page<StackStatus>| -> Vec<String> {
                    page.items.iter().map(|row| row.agent_name.clone()).collect()
                };
                let mut expected = names(&stored);
                expected.reverse();
                assert_eq!(names(&found), expected, "{stack} {state}");
                assert_eq!(found.total, Some(expected.len() as u64), "{stack} {state}");
                all.extend(expected);
            }
            let every: Page<StackStatus> =
                admin.get_json(&format!("stacks/{stack}/status?limit=500")).await?;
            assert_eq!(every.items.len(), all.len(), "each row is in one state");
        }
        let (by_env, whole): (FleetMatrix, FleetMatrix) =
            (admin.get_json("fleet/matrix?by=env").await?, admin.get_json("fleet/matrix").await?);
        for (row, sum) in by_env.rows.iter().zip(&whole.rows) {
            assert_eq!(row.stack_id, sum.stack_id);
            let mut cells = brokkr_api::fleet::FleetCell::default();
            row.cells.iter().for_each(|cell| cells.add(cell));
            assert_eq!(cells, sum.cells[0], "the columns add up");
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_index_agrees_with_the_database_after_random_changes() -> Result<()> {
    let mut history = History::begin(brokkr_testkit::seed()).await?;
    for _ in 0..5 {
        for _ in 0..30 {
            history.change().await?;
        }
        history.compare().await?;
    }
    // A replica that loads everything has the same.
    let replica = history.harness.replica().await?;
    settled(&replica.broker).await?;
    let there = history.harness.admin.at(replica.address);
    let (here, there): (FleetMatrix, FleetMatrix) = (
        history.harness.admin.get_json("fleet/matrix?by=env").await?,
        there.get_json("fleet/matrix?by=env").await?,
    );
    assert_eq!((here.columns, here.rows), (there.columns, there.rows));
    replica.stop().await;
    Ok(())
}

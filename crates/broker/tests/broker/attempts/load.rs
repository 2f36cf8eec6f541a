//! Live agents that poll and report at both replicas, and users who submit, until the end of the test.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::report::Transition;
use brokkr_api::{AgentId, StackId};
use reqwest::Method;
use serde_json::json;
use tokio::task::JoinHandle;

use super::world::{Target, submit};
use crate::harness::{Agent, Caller, polled};

/// An agent polls at most twenty times a second at each replica.
const PAUSE: Duration = Duration::from_millis(60);

#[derive(Default)]
pub struct Load {
    pub agents: Vec<AgentId>,
    pub stacks: Vec<StackId>,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<Result<()>>>,
}

impl Load {
    /// Adds a live agent, and a user who submits versions of its stack.
    pub fn add(
        &mut self,
        user: &Caller,
        agent: Agent,
        stack: Target,
        namespace: &'static str,
        at: [SocketAddr; 2],
    ) {
        self.agents.push(agent.id);
        self.stacks.push(stack.id);
        let (stop, answered) = (Arc::clone(&self.stop), Arc::clone(&self.answered));
        let (users, name) = (at.map(|address| user.at(address)), stack.name);
        self.tasks.push(tokio::spawn(async move {
            let mut version = 2;
            while !stop.load(Ordering::Relaxed) {
                submit(&users[version % 2], name, namespace, version).await?;
                version += 1;
                answered.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
            Ok(())
        }));
        let (stop, answered) = (Arc::clone(&self.stop), Arc::clone(&self.answered));
        self.tasks.push(tokio::spawn(async move {
            let mut second = 1_760_000_000;
            while !stop.load(Ordering::Relaxed) {
                second += 1;
                for address in at {
                    answered.fetch_add(
                        poll_and_report(&agent, &stack, address, second).await?,
                        Ordering::Relaxed,
                    );
                }
                tokio::time::sleep(PAUSE).await;
            }
            Ok(())
        }));
    }

    /// Ends the load, and returns how many requests were answered, and why the first one failed.
    pub async fn stop(self) -> (usize, Option<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let mut failure = None;
        for task in self.tasks {
            let ended = task.await.map_err(anyhow::Error::from).flatten();
            failure = failure.or_else(|| ended.err().map(|error| format!("{error:#}")));
        }
        (self.answered.load(Ordering::Relaxed), failure)
    }
}

/// Returns the number of answered requests.
async fn poll_and_report(agent: &Agent, stack: &Target, address: SocketAddr, second: i64) -> Result<usize> {
    let polled = polled(agent.poll_request_at(address)).await?;
    // A replica that has not read the agent's list yet asks for it, and the agent polls again.
    if polled.status == 428 {
        return Ok(1);
    }
    anyhow::ensure!(polled.status == 200, "a live agent: {}", String::from_utf8_lossy(&polled.body));
    let envelope = polled.envelope()?;
    let newest = envelope.stacks.iter().find(|target| target.stack_id == stack.id);
    let newest = newest.context("a live agent gets its stack")?.sequence_id;
    let report = agent.report(stack.id, newest, Transition::Healthy, second);
    let body = json!({ "reports": [report] });
    let sent = agent.at(address).send(Method::POST, &agent.path("reports"), &body).await?;
    anyhow::ensure!(sent.status().is_success(), "a live agent: {}", sent.text().await?);
    Ok(2)
}

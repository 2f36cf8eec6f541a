//! A place for one situation: a fleet with one agent in the shared cluster with real nodes, and a stack in a namespace of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brokkr_testkit::nodes::images::TEST_PROGRAM;
use brokkr_testkit::nodes::skipped;
use brokkr_testkit::{Agent, Attempt, Cluster, Fleet, Output, eventually, unique};
use serde_json::Value;

pub const DEADLINE: Duration = Duration::from_secs(120);

/// A fleet with one agent in the cluster with real nodes, and a namespace for one stack.
pub struct Site {
    pub fleet: Fleet,
    pub agent: Agent,
    pub cluster: Arc<Cluster>,
    pub namespace: String,
}

impl Site {
    /// Returns none where there cannot be real nodes.
    pub async fn start(name: &str) -> Result<Option<Self>> {
        if skipped()? {
            return Ok(None);
        }
        let cluster = Cluster::shared_real().await?;
        let fleet = Fleet::start().await?;
        let agent = fleet.join("shop", &[("env", "test")], &cluster).await?;
        Ok(Some(Self { fleet, agent, cluster, namespace: unique(name) }))
    }

    /// Submits the stack `web`: its namespace and these objects.
    pub async fn submit(&self, objects: &str) -> Result<Instant> {
        let namespace = &self.namespace;
        let yaml =
            format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n---\n{objects}");
        self.fleet.submit("web", "env=test", &yaml.replace("NAMESPACE", namespace)).await?;
        Ok(Instant::now())
    }

    /// Waits until the status of the stack has this state and reason.
    pub async fn shows(&self, state: &str, reason: &str) -> Result<Value> {
        let what = format!("the state {state} with the reason {reason:?}");
        eventually(DEADLINE, &what, async || match self.status().await {
            Ok(row) if row["state"] == state && is_reason(&row["reason"], reason) => Attempt::Done(row),
            other => Attempt::NotYet(format!("{other:#?}")),
        })
        .await
    }

    pub async fn status(&self) -> Result<Value> {
        let rows = self.fleet.brokkr_json(&["status", "web"]).await?;
        rows["items"].get(0).cloned().context("the stack is on no agent")
    }

    pub async fn why(&self) -> Result<String> {
        Ok(self.fleet.brokkr(["why", "web"]).await?.stdout)
    }

    pub async fn wait(&self, arguments: &[&str]) -> Result<Output> {
        self.fleet.brokkr(["wait", "web"].iter().chain(arguments)).await
    }

    /// Returns the transitions that the agent has reported, oldest first.
    pub async fn transitions(&self) -> Result<Vec<String>> {
        let events = self.fleet.events().await?;
        let items = events["items"].as_array().context("no events")?;
        let mut transitions: Vec<String> =
            items.iter().filter_map(|event| Some(event["transition"].as_str()?.to_owned())).collect();
        transitions.reverse();
        Ok(transitions)
    }
}

/// While a container keeps exiting, Kubernetes alternates between two words.
fn is_reason(found: &Value, expected: &str) -> bool {
    found == expected || expected == "CrashLoopBackOff" && found == "Error"
}

pub fn deployment(container: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: NAMESPACE}}\n\
         spec: {{replicas: 1, selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}}, \
         spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: app, {container}}}]}}}}}}\n"
    )
}

pub fn runs(arguments: &str) -> String {
    format!("image: '{TEST_PROGRAM}', args: [{arguments}]")
}

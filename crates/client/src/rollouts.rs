//! Rollouts, by the sequence id of their version.

use std::time::Duration;

use brokkr_api::SequenceId;
use brokkr_api::page::Page;
use brokkr_api::rollouts::{CommandRollout, Rollout, RolloutPolicies, RolloutPolicy, Share};
use http::Method;

use crate::page::{Pair, given};
use crate::{Client, PageQuery, Result};

/// How a submitted version is rolled out. What is absent comes from the policies of the stack, its project and the installation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutOptions {
    /// The sizes of the waves.
    pub waves: Vec<Share>,
    pub soak: Option<Duration>,
    /// Release the version to every agent at once, for this reason.
    pub now: Option<String>,
}

impl RolloutOptions {
    pub(crate) fn pairs(&self) -> Vec<Pair> {
        let waves: Vec<String> = self.waves.iter().map(ToString::to_string).collect();
        given([
            (!waves.is_empty()).then(|| ("waves", waves.join(","))),
            self.soak.map(|soak| ("soak_seconds", soak.as_secs().to_string())),
            self.now.as_ref().map(|_| ("now", "true".to_owned())),
            self.now.clone().map(|reason| ("reason", reason)),
        ])
    }
}

/// What a rollout policy is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyScope {
    Installation,
    Project(String),
    Stack(String),
}

impl Client {
    /// Reads rollouts, newest first: of one stack or of all, and only those that have not ended if `active`.
    pub async fn rollouts(
        &self,
        stack: Option<&str>,
        active: bool,
        page: &PageQuery,
    ) -> Result<Page<Rollout>> {
        let stack = stack.map(|stack| ("stack", stack.to_owned()));
        let pairs = given([stack, active.then(|| ("active", "true".to_owned()))]);
        self.page(&["rollouts"], &pairs, page).await
    }

    pub async fn rollout(&self, sequence_id: SequenceId) -> Result<Rollout> {
        self.send(self.read(&["rollouts", &sequence_id.to_string()])).await?.json()
    }

    /// Reads the policies of the installation and the project, and of a stack.
    pub async fn rollout_policies(&self, stack: Option<&str>) -> Result<RolloutPolicies> {
        let read = match stack {
            Some(stack) => self.read(&["stacks", stack, "rollout-policy"]),
            None => self.read(&["rollout-policy"]),
        };
        self.send(read).await?.json()
    }

    /// Sets a policy; an empty one removes it.
    pub async fn put_rollout_policy(
        &self,
        scope: &PolicyScope,
        policy: &RolloutPolicy,
    ) -> Result<RolloutPolicy> {
        let request = match scope {
            PolicyScope::Installation => self.write(Method::PUT, &["rollout-policy"]),
            PolicyScope::Project(project) => {
                self.write(Method::PUT, &["projects", project, "rollout-policy"])
            }
            PolicyScope::Stack(stack) => self.write(Method::PUT, &["stacks", stack, "rollout-policy"]),
        };
        self.send(request.json(policy)?).await?.json()
    }

    /// Pauses, resumes, promotes, skips, approves, denies, stops or aborts a rollout.
    pub async fn command_rollout(
        &self,
        sequence_id: SequenceId,
        command: &str,
        request: &CommandRollout,
    ) -> Result<Rollout> {
        let call = self.write(Method::POST, &["rollouts", &sequence_id.to_string(), command]);
        self.send(call.json(request)?).await?.json()
    }
}

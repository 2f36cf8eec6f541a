//! Fetches the health rules that the target state names, stores them in the cluster, and puts them into force.
//!
//! Waits for another target state. After a failure it retries with back-off, for as long as the target state names rules that are
//! not in force; meanwhile, the rules before stay in force.

use std::time::Duration;

use brokkr_api::AgentId;
use brokkr_api::ids::Checksum;
use brokkr_client::{Client as Broker, ClientError};
use tokio::sync::mpsc;

use crate::backoff::Backoff;
use crate::health_rules::store::RuleStore;
use crate::health_rules::{BadRules, HealthRules, RuleScope, WantedRules, parse};
use crate::observe::Change;
use crate::own_objects::RequestError;

const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

pub struct RuleFetcher {
    pub broker: Broker,
    pub agent: AgentId,
    pub store: RuleStore,
    pub rules: HealthRules,
    /// Tells the reconciler which kinds have to be evaluated again.
    pub changes: mpsc::Sender<Change>,
}

#[derive(Debug, thiserror::Error)]
enum RuleError {
    #[error("failed to fetch the health rules from the broker")]
    Fetch(#[source] ClientError),
    #[error(transparent)]
    Bad(BadRules),
    #[error("failed to store the health rules in the agent's namespace")]
    Store(#[source] RequestError),
}

impl RuleFetcher {
    pub async fn run(self) {
        let mut requests = self.rules.wanted();
        let mut failures = 0;
        loop {
            let wanted = requests.borrow_and_update().clone();
            let done = match &wanted {
                Some(wanted) => self.update(wanted).await,
                None => Ok(()),
            };
            let retry = match done {
                Ok(()) => {
                    failures = 0;
                    None
                }
                Err(error) => {
                    failures += 1;
                    let pause = BACKOFF.jittered(failures);
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "failed to update the health rules; retrying in {pause:?}");
                    Some(pause)
                }
            };
            let pause = async {
                match retry {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = requests.changed() => if changed.is_err() { return },
                () = pause => {}
            }
        }
    }

    /// Makes the rules in force those that are wanted. A scope that fails does not keep the others from it.
    async fn update(&self, wanted: &WantedRules) -> Result<(), RuleError> {
        let known = self.rules.checksums();
        let mut result = Ok(());
        for (scope, checksum) in &wanted.named {
            if known.get(scope) != Some(checksum) {
                result = result.and(self.fetch(*scope, *checksum).await);
            }
        }
        let is_over = |scope: &RuleScope| {
            let stays = matches!(scope, RuleScope::Stack(stack) if wanted.unnamed.contains(stack));
            !stays && !wanted.named.contains_key(scope)
        };
        for scope in known.into_keys().filter(is_over) {
            result = result.and(self.forget(scope).await);
        }
        result
    }

    async fn forget(&self, scope: RuleScope) -> Result<(), RuleError> {
        self.store.forget(scope).await.map_err(RuleError::Store)?;
        tracing::info!(?scope, "health rules were removed");
        let changed = self.rules.set(scope, None);
        let _ = self.changes.send(Change::HealthRules(changed)).await;
        Ok(())
    }

    async fn fetch(&self, scope: RuleScope, checksum: Checksum) -> Result<(), RuleError> {
        let bytes = self.broker.agent_health_rules(self.agent, checksum).await.map_err(RuleError::Fetch)?;
        let set = parse(&bytes, checksum).map_err(RuleError::Bad)?;
        self.store.store(scope, checksum, &bytes).await.map_err(RuleError::Store)?;
        tracing::info!(?scope, rules = set.rules.len(), "health rules are in force");
        let changed = self.rules.set(scope, Some(set));
        let _ = self.changes.send(Change::HealthRules(changed)).await;
        Ok(())
    }
}

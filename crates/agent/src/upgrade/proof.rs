//! The checks of the new version before it takes over. They write nothing, open no session, and are not seen as presence.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use brokkr_api::upgrades::{ProofCheck, UpgradeReason};
use brokkr_client::{AgentIdentity, Client as Broker, Credential};
use brokkr_install::installed::Installed;
use kube::Client;

use super::home::Home;
use super::reporter::{BACKOFF, shortened};
use crate::broker_link::identity;
use crate::broker_link::memory::Memory;
use crate::fence;
use crate::health_rules::store::RuleStore;
use crate::inventory::Records;
use crate::start::one_line;
use crate::version::VERSION;

pub struct Proof<'a> {
    pub client: &'a Client,
    pub home: &'a Home,
    /// Without a credential.
    pub broker: &'a Broker,
}

enum Failure {
    /// It may pass later.
    Check(ProofCheck, anyhow::Error),
    /// Only the owner of the cluster can change it.
    Final(UpgradeReason),
}

impl Proof<'_> {
    /// Repeats the checks until they pass, but not for longer than this.
    pub async fn run(&self, patience: Duration) -> Result<(), UpgradeReason> {
        let (started, mut failures) = (Instant::now(), 0);
        loop {
            let (check, error) = match self.once().await {
                Ok(()) => return Ok(()),
                Err(Failure::Final(reason)) => return Err(reason),
                Err(Failure::Check(check, error)) => (check, error),
            };
            let message = shortened(one_line(&error));
            failures += 1;
            let pause = BACKOFF.delay(failures);
            if started.elapsed() + pause >= patience {
                return Err(UpgradeReason::NotProved { check, message });
            }
            tracing::warn!(%check, "failed a check of the upgrade: {message}; retrying in {pause:?}");
            tokio::time::sleep(pause).await;
        }
    }

    async fn once(&self) -> Result<(), Failure> {
        let identity = self.read_state().await.map_err(|error| Failure::Check(ProofCheck::State, error))?;
        let agent = identity.agent_id;
        let broker = self.broker.with_credential(Credential::Agent(identity));
        let offer = broker.upgrade_offer(agent).await.context("reach the broker");
        offer.map_err(|error| Failure::Check(ProofCheck::Broker, error))?;
        self.compare_installation().await?;
        let namespace = &self.home.namespace;
        fence::ensure_active(self.client, namespace, agent)
            .await
            .map_err(|error| Failure::Check(ProofCheck::Fence, error))
    }

    /// Reads everything that a start reads, and fails if something of it cannot be read.
    async fn read_state(&self) -> anyhow::Result<AgentIdentity> {
        let namespace = &self.home.namespace;
        let identity = identity::joined(self.client, namespace).await?.identity;
        Memory::new(self.client, namespace)
            .newest_session()
            .await
            .context("read the agent's stored state")?;
        let records = Records::new(self.client.clone(), namespace, identity.agent_id);
        records.check().await.context("read the records")?;
        let rules = RuleStore::new(self.client, namespace, identity.agent_id);
        rules.load().await.context("read the health rules")?;
        Ok(identity)
    }

    async fn compare_installation(&self) -> Result<(), Failure> {
        let installed = self.home.installed().await.context("read the ConfigMap of the admission policy");
        let installed = installed.map_err(|error| Failure::Check(ProofCheck::Fence, error))?;
        let installed = Installed(&installed);
        if installed.is_current() {
            return Ok(());
        }
        let command = installed.command(&self.home.namespace, VERSION);
        Err(Failure::Final(UpgradeReason::InstallationDiffers { command }))
    }
}

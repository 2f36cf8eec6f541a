//! The new version after it has taken over: it confirms the upgrade once it has compared everything.

use std::time::Duration;

use anyhow::bail;
use brokkr_api::UpgradeId;
use brokkr_api::upgrades::UpgradeStep;

use super::decide::may_take_over;
use super::home::Home;
use super::reporter::{Reporter, report};
use crate::admin::Admin;
use crate::broker_link::upgrade_signals::UpgradeSignals;
use crate::version::VERSION;

/// How often the new version looks whether it has compared everything.
const LOOK: Duration = Duration::from_secs(1);

pub struct Candidate {
    pub home: Home,
    pub reporter: Reporter,
    pub admin: Admin,
    pub signals: UpgradeSignals,
}

/// Fails if the upgrade was undone while this process proved itself: then it must not raise the session count.
pub async fn ensure_may_take_over(home: &Home) -> anyhow::Result<()> {
    match home.find().await? {
        Some(found) if may_take_over(VERSION, &found.deployed, &found.stored) => Ok(()),
        Some(found)
            if !found.deployed.is_under_way() && found.stored.end_beside(&found.deployed).is_none() =>
        {
            // The owner of the cluster has decided for this version meanwhile.
            Ok(())
        }
        _ => bail!("the upgrade of the agent was undone"),
    }
}

impl Candidate {
    /// Returns when the upgrade is confirmed, which `Incumbent` reports: never, if another process supersedes this one.
    pub async fn confirm(&self) {
        let id = self.upgrade_id().await;
        self.report(id, UpgradeStep::TakenOver).await;
        loop {
            let counts = self.admin.counts().await;
            if counts.is_some_and(|counts| counts.has_compared_everything()) {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
        // A version that cannot report to the broker after it has compared everything does not end the one before it.
        self.report(id, UpgradeStep::TakenOver).await;
        while let Err(error) = self.remove_previous().await {
            tracing::warn!("failed to confirm the upgrade of the agent: {error:#}; retrying in {LOOK:?}");
            tokio::time::sleep(LOOK).await;
        }
        tracing::info!(version = VERSION, "the upgrade of the agent is confirmed");
        self.signals.set_under_way(false);
        self.admin.set_confirmed(true);
    }

    async fn report(&self, id: Option<UpgradeId>, step: UpgradeStep) {
        if let Some(id) = id {
            self.reporter.send_until_received(&report(id, step, None)).await;
        }
    }

    /// Returns the id of the upgrade; none if it was deleted.
    async fn upgrade_id(&self) -> Option<UpgradeId> {
        loop {
            match self.home.find().await {
                Ok(found) => {
                    let found = found?;
                    return found.stored.attempt_at(&found.deployed).map(|attempt| attempt.id);
                }
                Err(error) => tracing::warn!(%error, "failed to read the upgrade of the agent; retrying"),
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn remove_previous(&self) -> anyhow::Result<()> {
        let Some(found) = self.home.find().await? else { bail!("the Deployment is gone") };
        if !found.deployed.is_under_way() {
            // Undone: Kubernetes ends this process. Otherwise, an earlier request has confirmed it.
            if found.stored.end_beside(&found.deployed).is_some() {
                bail!("the upgrade was undone");
            }
            return Ok(());
        }
        self.home.change(&found.deployment, &found.deployed.confirmed()).await?;
        Ok(())
    }
}

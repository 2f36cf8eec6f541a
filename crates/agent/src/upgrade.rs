//! The agent replaces itself by another version, if the owner of the cluster allows it
//! (`docs/decisions/0017-agent-upgrades.md`).
//!
//! | file        | contents                                                                             |
//! |-------------|--------------------------------------------------------------------------------------|
//! | `role`      | what a process is, from its version and the Deployment (pure)                        |
//! | `decide`    | what it does next (pure)                                                             |
//! | `offer`     | checks of an offered image (pure)                                                    |
//! | `pods`      | why the Pod of the new version does not run (pure)                                   |
//! | `home`      | the Deployment, and the ConfigMaps in which the two processes store what they know   |
//! | `proof`     | the checks of the new version before it takes over                                   |
//! | `candidate` | the new version: proves itself, takes over, and confirms the upgrade                 |
//! | `incumbent` | the version that serves: begins an upgrade, watches it, and restores its image       |
//! | `watch`     | how the former version watches and restores                                          |
//! | `reporter`  | reports to the broker                                                                |

pub mod candidate;
pub mod decide;
pub mod home;
pub mod incumbent;
pub mod offer;
pub mod pods;
pub mod proof;
pub mod reporter;
pub mod role;
pub mod watch;

use std::time::Duration;

use brokkr_api::upgrades::UpgradeReason;
use brokkr_client::Client as Broker;
use brokkr_install::installed::Installed;
use brokkr_install::start::Hop;
use kube::Client;

use crate::admin::Admin;
use crate::own_objects::RequestError;
use crate::start::Start;
use crate::version::VERSION;
use decide::{FirstStep, first_step};
use home::{Found, Home};
use proof::Proof;
use reporter::BACKOFF;
use role::{ProofResult, Verdict};

/// What a process needs to find out whether it may serve.
pub struct Entry<'a> {
    pub client: &'a Client,
    pub home: &'a Home,
    /// Without a credential.
    pub broker: &'a Broker,
    pub start: &'a Start,
    pub admin: &'a Admin,
    /// How long an upgrade may take.
    pub timeout: Duration,
    /// How long a confirmed successor has to end this process.
    pub return_after: Duration,
}

/// What a process is that may serve.
#[derive(Clone, Copy, Debug)]
pub struct Entered {
    /// The new version of an upgrade that is not confirmed.
    pub is_candidate: bool,
    /// The owner of the cluster allows upgrades.
    pub may_upgrade: bool,
}

impl Entry<'_> {
    /// Waits until this process may serve, if ever.
    pub async fn enter(&self) -> Entered {
        let found = self
            .start
            .retry_until_done(Hop::Rights, "find out whether it is being upgraded", || async {
                Ok(find_if_allowed(self.home).await?)
            })
            .await;
        let Some(found) = found else { return Entered { is_candidate: false, may_upgrade: false } };
        let is_candidate = match first_step(VERSION, &found.deployed, &found.stored) {
            FirstStep::Serve => false,
            FirstStep::StandBy => {
                self.admin.starting("wait for the end of the upgrade");
                watch::stand_by(self.home, &found.deployed.image, self.timeout, self.return_after).await;
                false
            }
            FirstStep::Prove => {
                self.admin.starting("prove itself");
                let proof = Proof { client: self.client, home: self.home, broker: self.broker };
                match proof.run(self.timeout / 2).await {
                    Ok(()) => self.conclude(&found, Verdict::TakesOver).await,
                    Err(reason) => self.refuse(&found, reason).await,
                }
                true
            }
            FirstStep::Refuse(reason) => self.refuse(&found, reason).await,
            FirstStep::Wait => self.wait_for_the_end().await,
        };
        Entered { is_candidate, may_upgrade: true }
    }

    /// Stores why this process does not serve. The former one reads it, and restores its image.
    async fn refuse(&self, found: &Found, reason: UpgradeReason) -> ! {
        tracing::error!("this version does not take over: {reason}");
        self.conclude(found, Verdict::Refuses { reason }).await;
        self.wait_for_the_end().await
    }

    async fn conclude(&self, found: &Found, verdict: Verdict) {
        let result = ProofResult { image: found.deployed.image.clone(), verdict };
        let mut failures = 0;
        while let Err(error) = self.home.store_result(&result).await {
            failures += 1;
            let pause = BACKOFF.delay(failures);
            tracing::warn!(
                "failed to store the result of the upgrade: {:#}; retrying in {pause:?}",
                anyhow::Error::new(error)
            );
            tokio::time::sleep(pause).await;
        }
    }

    async fn wait_for_the_end(&self) -> ! {
        self.admin.starting("be replaced by the former version");
        std::future::pending().await
    }
}

/// Returns what the API server knows about upgrades; none if the owner of the cluster allows none.
async fn find_if_allowed(home: &Home) -> Result<Option<Found>, RequestError> {
    let installed = home.installed().await?;
    if Installed(&installed).repository().is_none() {
        return Ok(None);
    }
    match home.find().await {
        // Nothing can be upgraded or restored without this permission, and the stacks must not wait for it.
        Err(error) if error.is(403) => {
            tracing::warn!(
                "the agent may not read its Deployment; to allow upgrades, run `brokkr-agent install` again"
            );
            Ok(None)
        }
        found => found,
    }
}

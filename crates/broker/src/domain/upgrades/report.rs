//! What agents report about upgrades: which reports are news, and what they count as in the rollout.

use std::collections::{HashMap, HashSet};

use brokkr_api::AgentId;
use brokkr_api::report::Transition;
use brokkr_api::upgrades::{UpgradeReason, UpgradeStep};
use jiff::Timestamp;

use crate::domain::rollout::survey::{Contacts, Raises};
use crate::domain::rollout::verdict::VersionReport;

/// The last step that an agent has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedStep {
    pub step: UpgradeStep,
    /// The version of the process that has reported it.
    pub version: String,
    pub reason: Option<UpgradeReason>,
    /// By the agent's clock.
    pub reported_at: Timestamp,
    /// By the broker's clock.
    pub received_at: Timestamp,
}

/// What the database knows about the agents of an upgrade.
#[derive(Clone, Debug)]
pub struct UpgradeEvidence<'a> {
    pub raises: Raises,
    pub reports: HashMap<AgentId, ReportedStep>,
    /// The agents whose session is one of the version.
    pub at_version: HashSet<AgentId>,
    pub contacts: &'a Contacts,
    /// Since when the agents have been looked at without a pause.
    pub watched_since: Timestamp,
}

impl ReportedStep {
    /// Returns whether the owner of the cluster has to do something before the agent can have the version. That says nothing about
    /// the version.
    #[must_use]
    pub fn needs_owner(&self) -> bool {
        let differs = matches!(self.reason, Some(UpgradeReason::InstallationDiffers { .. }));
        self.step == UpgradeStep::Refused || self.step == UpgradeStep::Restored && differs
    }

    /// Returns whether a report of this step, at this time of the agent, is news. Others are repeated, or have arrived late.
    #[must_use]
    pub fn precedes(&self, step: UpgradeStep, reported_at: Timestamp) -> bool {
        match self.step {
            // Agents report this after the upgrade is confirmed. Should one go back nevertheless, that counts.
            UpgradeStep::Reconciled => step == UpgradeStep::Restored && reported_at > self.reported_at,
            // It may be offered again.
            UpgradeStep::Restored | UpgradeStep::Refused => reported_at > self.reported_at,
            UpgradeStep::Begun | UpgradeStep::TakenOver => step > self.step,
        }
    }
}

/// Returns whether the upgrade is offered again to an agent that opens a session with another version after this step: it was
/// interrupted, or its owner may have allowed it meanwhile. What has failed is not tried again.
#[must_use]
pub fn is_offered_again(step: UpgradeStep, reason: Option<&UpgradeReason>) -> bool {
    match step {
        UpgradeStep::Begun | UpgradeStep::TakenOver => true,
        UpgradeStep::Refused => matches!(reason, Some(UpgradeReason::NotAllowed { .. })),
        UpgradeStep::Reconciled | UpgradeStep::Restored => false,
    }
}

/// Returns what an agent has said about the version, in the terms of a rollout of a stack, so that the same verdicts apply. `has` is
/// whether its session is one of this version.
#[must_use]
pub fn version_report(reported: Option<&ReportedStep>, version: &str, has: bool) -> Option<VersionReport> {
    let (transition, since) = match reported {
        // Its owner has installed the version.
        Some(ReportedStep { step: UpgradeStep::Refused, .. }) | None if has => {
            (Transition::Healthy, Timestamp::MIN)
        }
        None => return None,
        Some(report) if report.needs_owner() => return None,
        Some(report) => {
            let transition = match report.step {
                UpgradeStep::Reconciled if report.version == version => Transition::Healthy,
                UpgradeStep::Restored => Transition::Failed,
                _ => Transition::Applied,
            };
            (transition, report.received_at)
        }
    };
    Some(VersionReport {
        transition,
        since,
        bad_before: false,
        awaits_approval: false,
        waits_for_wave: false,
    })
}

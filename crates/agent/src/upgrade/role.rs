//! What a process is in an upgrade of the agent: a pure function of its own version and the annotations of the Deployment.

use brokkr_api::UpgradeId;
use brokkr_api::upgrades::UpgradeReason;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What the Deployment says about the version of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeployedVersion {
    pub image: String,
    /// The annotation `brokkr.io/agent-version`.
    pub agent_version: Option<String>,
    /// The annotations `brokkr.io/previous-…`, which exist while an upgrade is neither confirmed nor undone.
    pub previous_image: Option<String>,
    pub previous_version: Option<String>,
}

impl DeployedVersion {
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.previous_image.is_some()
    }

    /// Returns the change that begins an upgrade, as the fence requires it.
    #[must_use]
    pub fn begun(&self, image: &str, version: &str) -> Self {
        Self {
            image: image.to_owned(),
            agent_version: Some(version.to_owned()),
            previous_image: Some(self.image.clone()),
            previous_version: self.agent_version.clone(),
        }
    }

    /// Returns the change that confirms an upgrade.
    #[must_use]
    pub fn confirmed(&self) -> Self {
        Self { previous_image: None, previous_version: None, ..self.clone() }
    }

    /// Returns the change that restores the former image; none if no upgrade is under way.
    #[must_use]
    pub fn restored(&self) -> Option<Self> {
        let image = self.previous_image.clone()?;
        Some(Self { image, agent_version: self.previous_version.clone(), ..Self::default() })
    }
}

/// What the processes of an upgrade store in the cluster. A value about another image than the deployed one is of an earlier upgrade.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredUpgrade {
    /// Written before the Deployment.
    pub attempt: Option<Attempt>,
    /// Written by the new process.
    pub result: Option<ProofResult>,
    /// Written before the former image is restored.
    pub end: Option<End>,
}

/// An upgrade that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub id: UpgradeId,
    pub image: String,
    /// The version of the process that began it. The annotation of the Deployment may be absent, or not be right.
    pub from: String,
}

/// What the new process has found out about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProofResult {
    pub image: String,
    pub verdict: Verdict,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Verdict {
    /// Written before it raises the session count.
    TakesOver,
    Refuses {
        reason: UpgradeReason,
    },
}

/// How an upgrade ended, if not with the new version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub image: String,
    pub reason: UpgradeReason,
    pub at: Timestamp,
    /// Whether the broker has acknowledged it.
    pub is_reported: bool,
}

impl StoredUpgrade {
    /// Returns the upgrade to the deployed image.
    #[must_use]
    pub fn attempt_at(&self, deployed: &DeployedVersion) -> Option<&Attempt> {
        self.attempt.as_ref().filter(|attempt| attempt.image == deployed.image)
    }

    /// Returns the upgrade that has brought this version and is confirmed. Only then may the broker count it as healthy: before, the
    /// former image may be restored.
    #[must_use]
    pub fn completed_by(&self, own: &str, deployed: &DeployedVersion) -> Option<&Attempt> {
        let is_here = deployed.agent_version.as_deref() == Some(own);
        self.attempt_at(deployed).filter(|_| is_here && !deployed.is_under_way())
    }

    /// Returns what the process with the deployed image has found out.
    #[must_use]
    pub fn verdict_on(&self, deployed: &DeployedVersion) -> Option<&Verdict> {
        self.result.as_ref().filter(|result| result.image == deployed.image).map(|result| &result.verdict)
    }

    /// Returns the end of the last upgrade. It is written before the Deployment, so it counts only if another image is deployed.
    #[must_use]
    pub fn end_beside(&self, deployed: &DeployedVersion) -> Option<&End> {
        self.end.as_ref().filter(|end| !deployed.is_under_way() && end.image != deployed.image)
    }
}

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// No upgrade is under way.
    Incumbent,
    /// The new version, which is not confirmed.
    Candidate,
    /// The former version, which restores its image if the new one fails.
    Watching,
    /// Its image does not contain the version that the Deployment says.
    Foreign,
}

/// Returns the role of a process with this version.
#[must_use]
pub fn role(own: &str, deployed: &DeployedVersion, stored: &StoredUpgrade) -> Role {
    if !deployed.is_under_way() {
        return Role::Incumbent;
    }
    let from = stored.attempt_at(deployed).map(|attempt| attempt.from.as_str());
    let previous = from.or(deployed.previous_version.as_deref());
    match previous {
        _ if deployed.agent_version.as_deref() == Some(own) => Role::Candidate,
        Some(previous) if previous != own => Role::Foreign,
        // If nothing says which version was before, this is it: without it, nothing could restore its image.
        _ => Role::Watching,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "registry.example/brokkr-agent:1";
    const NEW: &str = "registry.example/brokkr-agent@sha256:22";

    fn deployed(version: Option<&str>) -> DeployedVersion {
        DeployedVersion {
            image: OLD.to_owned(),
            agent_version: version.map(ToOwned::to_owned),
            ..DeployedVersion::default()
        }
    }

    fn begun_by(from: &str) -> StoredUpgrade {
        let attempt = Attempt { id: UpgradeId(7), image: NEW.to_owned(), from: from.to_owned() };
        StoredUpgrade { attempt: Some(attempt), ..StoredUpgrade::default() }
    }

    #[test]
    fn the_role_is_that_of_the_table() {
        let before = deployed(Some("0.1.0"));
        let under_way = before.begun(NEW, "0.2.0");
        let none = StoredUpgrade::default();
        for own in ["0.1.0", "0.2.0", "0.3.0"] {
            assert_eq!(role(own, &before, &none), Role::Incumbent);
            assert_eq!(role(own, &under_way.confirmed(), &none), Role::Incumbent);
        }
        assert_eq!(role("0.2.0", &under_way, &none), Role::Candidate);
        assert_eq!(role("0.1.0", &under_way, &none), Role::Watching);
        assert_eq!(role("0.3.0", &under_way, &none), Role::Foreign);
    }

    #[test]
    fn the_process_that_began_an_upgrade_is_known_without_its_annotation() {
        let under_way = deployed(None).begun(NEW, "0.2.0");
        assert_eq!(role("0.1.0", &under_way, &begun_by("0.1.0")), Role::Watching);
        assert_eq!(role("0.3.0", &under_way, &begun_by("0.1.0")), Role::Foreign);
        assert_eq!(role("0.1.0", &under_way, &StoredUpgrade::default()), Role::Watching);
        // The owner had set the image by hand, and left the annotation.
        let under_way = deployed(Some("0.1.5")).begun(NEW, "0.2.0");
        assert_eq!(role("0.1.0", &under_way, &begun_by("0.1.0")), Role::Watching);
    }

    #[test]
    fn a_restore_is_the_reverse_of_the_beginning() {
        for version in [None, Some("0.1.0")] {
            let before = deployed(version);
            assert_eq!(before.begun(NEW, "0.2.0").restored(), Some(before.clone()));
            assert_eq!(before.restored(), None, "nothing is under way");
            assert_eq!(before.begun(NEW, "0.2.0").confirmed().restored(), None, "only the owner goes back");
        }
    }

    #[test]
    fn only_a_confirmed_upgrade_is_completed_and_only_by_its_version() {
        let (under_way, stored) = (deployed(Some("0.1.0")).begun(NEW, "0.2.0"), begun_by("0.1.0"));
        let confirmed = under_way.confirmed();
        assert_eq!(stored.completed_by("0.2.0", &confirmed), stored.attempt.as_ref());
        assert_eq!(
            stored.completed_by("0.2.0", &under_way),
            None,
            "its image may be replaced by the former one"
        );
        assert_eq!(stored.completed_by("0.1.0", &confirmed), None, "the former process, before it ends");
        let by_hand = DeployedVersion { image: OLD.to_owned(), ..confirmed };
        assert_eq!(stored.completed_by("0.2.0", &by_hand), None, "another image was set by hand");
    }
}

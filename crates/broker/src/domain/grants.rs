//! Decides what projects may do on agents. No other part of the broker decides this; the agent checks it
//! again before it writes to its cluster.
//!
//! The project `default` may do everything before its first grant. From then on, like every other project, it is
//! restricted: it may do only what its grants allow, and without a grant nothing. If several grants of a project cover an agent, the oldest determines the account that the
//! agent acts as. Grants with the same account add up; those with another account are ignored on that agent.

use std::collections::BTreeSet;
use std::sync::Arc;

use brokkr_api::envelope::Grant;
use brokkr_api::{GrantId, Selector};

use super::facts::{AgentFacts, HealthRuleFacts};
use super::upgrades::UpgradeFacts;
use super::windows::Windows;

/// One grant of a project on a set of agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantFacts {
    /// Ordered by time of creation.
    pub id: GrantId,
    pub project: String,
    pub selector: Selector,
    pub allows: Arc<Grant>,
}

/// The rules of the installation: all grants, when agents may begin, how the health of custom kinds is read, and what agents are
/// upgraded to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub grants: Vec<GrantFacts>,
    pub windows: Windows,
    pub health_rules: Option<HealthRuleFacts>,
    /// The upgrades that agents are or may be offered, oldest first.
    pub upgrades: Vec<UpgradeFacts>,
    /// Projects that are not restricted to their grants. A project that is missing here may do less, never more.
    pub unrestricted: BTreeSet<String>,
}

/// All grants of one project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectGrants {
    /// The project is not restricted: the agent's own role is the limit.
    Unlimited,
    /// Ordered by id.
    Listed(Vec<GrantFacts>),
}

/// The rights of a project on one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Right {
    /// Everything that the agent's own role allows.
    Own,
    Granted(Arc<Grant>),
    Nothing,
}

impl ProjectGrants {
    #[must_use]
    pub fn new(restricted: bool, mut grants: Vec<GrantFacts>) -> Self {
        if grants.is_empty() && !restricted {
            return Self::Unlimited;
        }
        grants.sort_by_key(|grant| grant.id);
        Self::Listed(grants)
    }

    #[must_use]
    pub fn on(&self, agent: &AgentFacts) -> Right {
        let Self::Listed(grants) = self else { return Right::Own };
        let mut covering = grants.iter().filter(|grant| agent.matches(&grant.selector));
        let Some(first) = covering.next() else { return Right::Nothing };
        let mut allows = Arc::clone(&first.allows);
        for grant in covering.filter(|grant| grant.allows.account == first.allows.account) {
            let sum = Arc::make_mut(&mut allows);
            add(&mut sum.namespaces, &grant.allows.namespaces);
            add(&mut sum.kinds, &grant.allows.kinds);
        }
        Right::Granted(allows)
    }

    /// Returns whether a stack of the project may reach the agent.
    #[must_use]
    pub fn cover(&self, agent: &AgentFacts) -> bool {
        match self {
            Self::Unlimited => true,
            Self::Listed(grants) => grants.iter().any(|grant| agent.matches(&grant.selector)),
        }
    }
}

fn add(list: &mut Vec<String>, more: &[String]) {
    list.extend_from_slice(more);
    list.sort();
    list.dedup();
}

impl Right {
    /// Returns the grant for the agent. `Nothing` becomes a grant with empty lists.
    #[must_use]
    pub fn into_grant(self) -> Option<Grant> {
        match self {
            Self::Own => None,
            Self::Granted(grant) => Some(Arc::unwrap_or_clone(grant)),
            Self::Nothing => Some(Grant::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restricted_project_without_a_grant_may_do_nothing() {
        assert_eq!(ProjectGrants::new(false, Vec::new()), ProjectGrants::Unlimited);
        assert_eq!(ProjectGrants::new(true, Vec::new()), ProjectGrants::Listed(Vec::new()));
    }

    #[test]
    fn a_grant_limits_even_a_project_that_is_not_restricted() {
        let allows = Arc::new(Grant::default());
        let selector = "*".parse().unwrap();
        let grant = GrantFacts { id: GrantId::generate(), project: "default".into(), selector, allows };
        assert_eq!(ProjectGrants::new(false, vec![grant.clone()]), ProjectGrants::Listed(vec![grant]));
    }
}

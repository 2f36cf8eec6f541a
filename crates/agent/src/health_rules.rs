//! The health rules of the installation and of stacks, which decide the health of custom kinds.
//!
//! The watches and the requests read them when they reduce an object. They are fetched by `broker_link`, and stored in the cluster, so
//! that they hold after a restart without the broker.
//!
//! | file    | contents                             |
//! |---------|--------------------------------------|
//! | `store` | the rules in the agent's namespace   |

pub mod store;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use brokkr_api::StackId;
use brokkr_api::health_rules::HealthRule;
use brokkr_api::ids::Checksum;
use tokio::sync::watch;

use crate::model::Uid;

/// What rules are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuleScope {
    Installation,
    Stack(StackId),
}

/// The rules of one scope.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleSet {
    /// The checksum of the bytes that the broker sent.
    pub checksum: Checksum,
    pub rules: Arc<[HealthRule]>,
}

/// The rules that the target state names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedRules {
    pub named: BTreeMap<RuleScope, Checksum>,
    /// Known stacks that the target state does not name: their rules stay.
    pub unnamed: BTreeSet<StackId>,
}

/// The rules in force. Clones share them.
#[derive(Clone)]
pub struct HealthRules {
    known: Arc<RwLock<Known>>,
    wanted: watch::Sender<Option<WantedRules>>,
}

#[derive(Default)]
struct Known {
    sets: BTreeMap<RuleScope, RuleSet>,
    /// For stacks with rules of their own: these, then those of the installation.
    of_stacks: HashMap<Uid, Arc<[HealthRule]>>,
    of_others: Arc<[HealthRule]>,
}

impl Default for HealthRules {
    fn default() -> Self {
        Self { known: Arc::default(), wanted: watch::Sender::new(None) }
    }
}

impl HealthRules {
    /// Returns the rules for objects of this stack, in the order in which they are tried.
    #[must_use]
    pub fn of(&self, stack: Option<&Uid>) -> Arc<[HealthRule]> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let own = stack.and_then(|stack| known.of_stacks.get(stack));
        Arc::clone(own.unwrap_or(&known.of_others))
    }

    /// Replaces the rules of a scope. Returns the rules that are no longer in force, and those that are now.
    pub fn set(&self, scope: RuleScope, set: Option<RuleSet>) -> Vec<HealthRule> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let before = match set.clone() {
            Some(set) => known.sets.insert(scope, set),
            None => known.sets.remove(&scope),
        };
        known.combine();
        before.into_iter().chain(set).flat_map(|set| set.rules.to_vec()).collect()
    }

    /// Returns the checksums of the rules in force.
    #[must_use]
    pub fn checksums(&self) -> BTreeMap<RuleScope, Checksum> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.sets.iter().map(|(scope, set)| (*scope, set.checksum)).collect()
    }

    /// Requests the rules that the target state names.
    pub fn want(&self, wanted: WantedRules) {
        self.wanted.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(&wanted);
            *known = Some(wanted);
            is_new
        });
    }

    /// Returns what is wanted, to be waited for; none before the first target state.
    #[must_use]
    pub fn wanted(&self) -> watch::Receiver<Option<WantedRules>> {
        self.wanted.subscribe()
    }
}

impl Known {
    fn combine(&mut self) {
        self.of_others =
            self.sets.get(&RuleScope::Installation).map(|set| Arc::clone(&set.rules)).unwrap_or_default();
        let stacks = self.sets.iter().filter_map(|(scope, set)| match scope {
            RuleScope::Installation => None,
            RuleScope::Stack(stack) => Some((stack, set)),
        });
        let combined = |set: &RuleSet| set.rules.iter().chain(self.of_others.iter()).cloned().collect();
        self.of_stacks = stacks.map(|(stack, set)| (Uid::from(*stack), combined(set))).collect();
    }
}

/// Parses rules as the broker sends them, if they have this checksum.
pub fn parse(bytes: &[u8], checksum: Checksum) -> Result<RuleSet, BadRules> {
    if Checksum::of(bytes) != checksum {
        return Err(BadRules::Damaged);
    }
    let rules: Vec<HealthRule> = serde_json::from_slice(bytes).map_err(BadRules::Unreadable)?;
    Ok(RuleSet { checksum, rules: rules.into() })
}

/// Why rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadRules {
    #[error("the health rules do not have the checksum that the target state names")]
    Damaged,
    #[error("this agent cannot parse the health rules")]
    Unreadable(#[source] serde_json::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(kind: &str) -> RuleSet {
        let text =
            format!(r#"[{{"groups":["a.example.com"],"kinds":["{kind}"],"ready":[{{"condition":"Up"}}]}}]"#);
        parse(text.as_bytes(), Checksum::of(text.as_bytes())).unwrap()
    }

    fn kinds(rules: &HealthRules, stack: StackId) -> Vec<String> {
        rules.of(Some(&stack.into())).iter().flat_map(|rule| rule.kinds.clone()).collect()
    }

    #[test]
    fn f6_the_rules_of_a_stack_come_before_those_of_the_installation() {
        let (one, other) = (StackId::generate(), StackId::generate());
        let rules = HealthRules::default();
        assert!(kinds(&rules, one).is_empty());
        rules.set(RuleScope::Stack(one), Some(set("Own")));
        rules.set(RuleScope::Installation, Some(set("All")));
        assert_eq!(
            (kinds(&rules, one), kinds(&rules, other)),
            (vec!["Own".into(), "All".into()], vec!["All".into()])
        );
        let changed = rules.set(RuleScope::Stack(one), None);
        assert_eq!(changed.len(), 1, "objects of these kinds are evaluated again");
        assert_eq!(kinds(&rules, one), ["All"]);
    }

    #[test]
    fn rules_with_another_checksum_are_refused() {
        assert!(matches!(parse(b"[]", Checksum::of(b"[{}]")), Err(BadRules::Damaged)));
        assert!(matches!(parse(b"[{}]", Checksum::of(b"[{}]")), Err(BadRules::Unreadable(_))));
    }
}

//! Label → agents, and selector → stacks: so that neither a poll nor a change looks at the whole fleet.

use std::collections::{HashMap, HashSet};

use brokkr_api::selector::{Requirement, Selector};
use brokkr_api::{AgentId, Labels, StackId};

/// Agents by the key and value of their labels.
#[derive(Debug, Default)]
pub struct AgentsByLabel {
    by_key: HashMap<String, HashMap<String, HashSet<AgentId>>>,
}

impl AgentsByLabel {
    pub fn insert(&mut self, agent: AgentId, labels: &Labels) {
        for (key, value) in labels {
            self.by_key.entry(key.clone()).or_default().entry(value.clone()).or_default().insert(agent);
        }
    }

    pub fn remove(&mut self, agent: AgentId, labels: &Labels) {
        for (key, value) in labels {
            let Some(values) = self.by_key.get_mut(key) else { continue };
            if let Some(agents) = values.get_mut(value) {
                agents.remove(&agent);
                if agents.is_empty() {
                    values.remove(value);
                }
            }
            if values.is_empty() {
                self.by_key.remove(key);
            }
        }
    }

    /// Agents that may match the selector: those of its rarest positive term. None if it has no such term,
    /// and only a look at every agent would tell.
    pub fn candidates(&self, selector: &Selector) -> Option<Vec<AgentId>> {
        let sets = selector.requirements().iter().filter_map(|requirement| self.of(requirement));
        let rarest = sets.min_by_key(|sets| sets.iter().map(|set| set.len()).sum::<usize>())?;
        Some(rarest.into_iter().flatten().copied().collect())
    }

    fn of(&self, requirement: &Requirement) -> Option<Vec<&HashSet<AgentId>>> {
        match requirement {
            Requirement::In { key, values } => {
                let by_value = self.by_key.get(key);
                Some(values.iter().filter_map(|value| by_value?.get(value)).collect())
            }
            Requirement::Exists { key } => {
                Some(self.by_key.get(key).into_iter().flat_map(HashMap::values).collect())
            }
            Requirement::NotIn { .. } | Requirement::Absent { .. } => None,
        }
    }
}

/// Stacks by one positive term of each of their selectors.
#[derive(Debug, Default)]
pub struct StacksBySelector {
    by_pair: HashMap<(String, String), HashSet<StackId>>,
    by_key: HashMap<String, HashSet<StackId>>,
    /// Selectors without a positive term, `*` among them: every agent looks at these.
    others: HashSet<StackId>,
}

/// Where a selector is filed.
enum Place<'a> {
    Pairs(&'a str, &'a [String]),
    Key(&'a str),
    Others,
}

fn place(selector: &Selector) -> Place<'_> {
    let pairs = selector.requirements().iter().filter_map(|requirement| match requirement {
        Requirement::In { key, values } => Some((key, values)),
        _ => None,
    });
    if let Some((key, values)) = pairs.min_by_key(|(_, values)| values.len()) {
        return Place::Pairs(key, values);
    }
    let key = selector.requirements().iter().find_map(|requirement| match requirement {
        Requirement::Exists { key } => Some(key),
        _ => None,
    });
    key.map_or(Place::Others, |key| Place::Key(key))
}

impl StacksBySelector {
    pub fn insert<'a>(&mut self, stack: StackId, selectors: impl IntoIterator<Item = &'a Selector>) {
        for selector in selectors {
            match place(selector) {
                Place::Pairs(key, values) => {
                    for value in values {
                        self.by_pair.entry((key.to_owned(), value.clone())).or_default().insert(stack);
                    }
                }
                Place::Key(key) => {
                    self.by_key.entry(key.to_owned()).or_default().insert(stack);
                }
                Place::Others => {
                    self.others.insert(stack);
                }
            }
        }
    }

    /// Takes the stack out of everywhere that these selectors had put it.
    pub fn remove<'a>(&mut self, stack: StackId, selectors: impl IntoIterator<Item = &'a Selector>) {
        for selector in selectors {
            match place(selector) {
                Place::Pairs(key, values) => {
                    for value in values {
                        let pair = (key.to_owned(), value.clone());
                        if self.by_pair.get_mut(&pair).is_some_and(|set| set.remove(&stack) && set.is_empty())
                        {
                            self.by_pair.remove(&pair);
                        }
                    }
                }
                Place::Key(key) => {
                    if self.by_key.get_mut(key).is_some_and(|set| set.remove(&stack) && set.is_empty()) {
                        self.by_key.remove(key);
                    }
                }
                Place::Others => {
                    self.others.remove(&stack);
                }
            }
        }
    }

    /// Stacks with a selector that may match these labels.
    pub fn candidates<'a>(&'a self, labels: &'a Labels) -> impl Iterator<Item = StackId> + 'a {
        let pairs = labels
            .iter()
            .filter_map(|(key, value)| self.by_pair.get(&(key.clone(), value.clone())))
            .flatten();
        let keys = labels.keys().filter_map(|key| self.by_key.get(key)).flatten();
        pairs.chain(keys).chain(&self.others).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn candidates_contain_every_match_both_ways_and_nothing_stays_after_removal() {
        let fleet = [labels(&[("env", "prod")]), labels(&[("env", "dev"), ("gpu", "")]), labels(&[])];
        let texts = ["env=prod", "env in (dev,prod)", "gpu", "!gpu", "env!=prod", "*", "env=dev,gpu,!old"];
        let selectors: Vec<Selector> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let agents: Vec<AgentId> = fleet.iter().map(|_| AgentId::generate()).collect();
        let stacks: Vec<StackId> = selectors.iter().map(|_| StackId::generate()).collect();
        let (mut by_label, mut by_selector) = (AgentsByLabel::default(), StacksBySelector::default());
        for (agent, labels) in agents.iter().zip(&fleet) {
            by_label.insert(*agent, labels);
        }
        for (stack, selector) in stacks.iter().zip(&selectors) {
            by_selector.insert(*stack, [selector]);
        }
        for (stack, selector) in stacks.iter().zip(&selectors) {
            let candidates = by_label.candidates(selector);
            for (agent, labels) in agents.iter().zip(&fleet) {
                let matches = selector.matches(labels);
                let found = candidates.as_ref().is_none_or(|agents| agents.contains(agent));
                assert!(!matches || found, "{selector} finds the agent {labels:?}");
                let found = by_selector.candidates(labels).any(|candidate| candidate == *stack);
                assert!(!matches || found, "{labels:?} finds the stack {selector}");
            }
        }
        for (stack, selector) in stacks.iter().zip(&selectors) {
            by_selector.remove(*stack, [selector]);
        }
        assert!(fleet.iter().all(|labels| by_selector.candidates(labels).next().is_none()));
        assert!(by_selector.by_pair.is_empty() && by_selector.by_key.is_empty());
        for (agent, labels) in agents.iter().zip(&fleet) {
            by_label.remove(*agent, labels);
        }
        assert!(by_label.by_key.is_empty());
    }
}

//! Which selectors nearly match an agent, which labels keep them from matching, and which label changes would
//! help.

use brokkr_api::selector::{Requirement, Selector};

use super::super::facts::{AgentFacts, StackFacts};

/// How many of the selectors that nearly match are listed; the nearest comes first.
pub(super) const NEAR_MISSES: usize = 3;

/// Returns each selector with its unmet requirements, the nearest first.
fn misses<'a>(agent: &AgentFacts, stack: &'a StackFacts) -> Vec<(Vec<&'a Requirement>, &'a Selector)> {
    let missed = |selector: &'a Selector| -> Vec<&'a Requirement> {
        let all = selector.requirements().iter();
        all.filter(|requirement| !requirement.holds(|key| agent.labels.get(key))).collect()
    };
    let selectors = stack.selectors.iter().map(|target| &target.selector);
    let mut misses: Vec<_> = selectors.map(|selector| (missed(selector), selector)).collect();
    misses.sort_by_key(|(missing, _)| missing.len());
    misses
}

pub(super) fn near_misses(agent: &AgentFacts, stack: &StackFacts) -> Vec<String> {
    if stack.selectors.is_empty() {
        let others = stack.targets.len();
        return vec![if others == 0 {
            "the stack has no targets".to_owned()
        } else {
            format!("the stack targets {others} other agents by name, and none by selector")
        }];
    }
    let shown = misses(agent, stack).into_iter().take(NEAR_MISSES).map(|(missing, selector)| {
        let missing: Vec<String> = missing.iter().map(|requirement| miss(agent, requirement)).collect();
        format!("selector {selector} does not match: {}", missing.join("; "))
    });
    shown.collect()
}

fn miss(agent: &AgentFacts, requirement: &Requirement) -> String {
    let key = key(requirement);
    match agent.labels.get(key) {
        Some(value) => format!("it requires {requirement}, but the agent has {key}={value}"),
        None => format!("it requires {requirement}, but the agent has no label {key}"),
    }
}

fn key(requirement: &Requirement) -> &str {
    match requirement {
        Requirement::In { key, .. }
        | Requirement::NotIn { key, .. }
        | Requirement::Exists { key }
        | Requirement::Absent { key } => key,
    }
}

/// Returns the command that labels the agent so that the nearest selector matches; none if that selector
/// requires a label without naming a value.
pub(super) fn labelling(agent: &AgentFacts, stack: &StackFacts) -> Option<String> {
    let (missing, _) = misses(agent, stack).into_iter().next()?;
    let changes: Option<Vec<String>> = missing
        .into_iter()
        .map(|requirement| match requirement {
            Requirement::In { key, values } => values.first().map(|value| format!("{key}={value}")),
            Requirement::NotIn { key, .. } | Requirement::Absent { key } => Some(format!("{key}-")),
            Requirement::Exists { .. } => None,
        })
        .collect();
    let changes = changes.filter(|changes| !changes.is_empty())?;
    Some(format!("brokkr agent label {} {}", agent.name, changes.join(" ")))
}

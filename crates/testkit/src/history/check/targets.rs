//! S6: the targets of a stack are those of the last acknowledged change.

use std::collections::BTreeSet;

use brokkr_api::selector::Selector;

use super::super::record::{Acknowledgement, Change, History, Operation};
use super::super::truth::{StackRow, Truth};
use super::ReportViolation;

/// S6: an acknowledgement shows the requested targets, and the stored ones are those of a change that no acknowledged change
/// followed. Of concurrent changes, each may be the last; a change with an unknown outcome may be made at any time.
pub(super) fn acknowledged_targets_are_stored(
    history: &History,
    truth: &Truth,
    violation: &mut ReportViolation<'_>,
) {
    for operation in &history.operations {
        let Change::Target { stack, selectors: requested } = &operation.change else { continue };
        if let Some((Acknowledgement::Targets { selectors, .. }, _)) = operation.acknowledged()
            && set(selectors) != set(requested)
        {
            violation("S6", format!("{stack}: the targets {requested:?} were acknowledged as {selectors:?}"));
        }
    }
    // A deleted stack targets nothing any more.
    for stack in truth.stacks.iter().filter(|stack| !stack.deleted) {
        let candidates = candidates(history, stack);
        let stored = set(&stack.selectors);
        if !candidates.is_empty() && !candidates.contains(&stored) {
            violation(
                "S6",
                format!(
                    "{} has the targets {stored:?}, not the last acknowledged {candidates:?}",
                    stack.name
                ),
            );
        }
    }
}

/// Returns the sets of targets that the stack may have in the end; none if no recorded change is about it.
fn candidates(history: &History, stack: &StackRow) -> Vec<BTreeSet<String>> {
    let changes: Vec<(&[String], &Operation)> = history
        .operations
        .iter()
        .filter(|operation| !operation.refused() && is_about(operation, stack))
        .filter_map(|operation| match &operation.change {
            Change::Target { selectors, .. } => Some((selectors.as_slice(), operation)),
            _ => None,
        })
        .collect();
    let end = |operation: &Operation| operation.acknowledged().map(|(_, ended)| ended);
    let is_followed =
        |ended: u64| changes.iter().any(|(_, other)| end(other).is_some() && other.began() > ended);
    let last = changes.iter().filter(|(_, operation)| !end(operation).is_some_and(is_followed));
    let mut candidates: Vec<_> = last.map(|(selectors, _)| set(selectors)).collect();
    if !changes.is_empty() && changes.iter().all(|(_, operation)| end(operation).is_none()) {
        candidates.push(BTreeSet::new());
    }
    candidates
}

/// Returns whether a change may be about this stack, and is not known to be about another that had the same name.
fn is_about(operation: &Operation, stack: &StackRow) -> bool {
    operation.change.stack() == Some(&stack.name)
        && match operation.acknowledged() {
            Some((Acknowledgement::Targets { stack: changed, .. }, _)) => *changed == stack.id,
            _ => true,
        }
}

/// Returns the selectors without their order and spelling.
fn set(selectors: &[String]) -> BTreeSet<String> {
    let spelled =
        |text: &String| text.parse::<Selector>().map_or_else(|_| text.clone(), |one| one.to_string());
    selectors.iter().map(spelled).collect()
}

//! S10: a refused change is not made, and every refusal has a reason in the history.

use std::collections::HashSet;

use brokkr_api::ErrorCode;
use brokkr_api::ids::Checksum;

use super::super::record::{Change, History, Operation};
use super::super::truth::Truth;
use super::ReportViolation;

/// S10: nothing of a refused submission exists. Its contents are its own, so another submission does not explain them.
pub(super) fn refused_changes_are_not_made(
    history: &History,
    truth: &Truth,
    violation: &mut ReportViolation<'_>,
) {
    let stored: HashSet<Checksum> = truth.objects.iter().map(|row| row.content).collect();
    for operation in history.operations.iter().filter(|operation| operation.refused()) {
        if let Change::Submit { stack, content } = &operation.change
            && stored.contains(content)
        {
            violation("S10", format!("{stack}: the submission {} was refused, but exists", operation.key));
        }
    }
}

/// S10: a refusal is one that the state at that time allows, considering every change that may have been made by then.
pub(super) fn refusals_are_explained(history: &History, violation: &mut ReportViolation<'_>) {
    for operation in &history.operations {
        let Some((refusal, ended)) = operation.refusal() else { continue };
        if !is_explained(history, operation, refusal.code, ended) {
            violation(
                "S10",
                format!("nothing explains the refusal of {:?}: {}", operation.change, refusal.text),
            );
        }
    }
}

fn is_explained(history: &History, refused: &Operation, code: Option<ErrorCode>, ended: u64) -> bool {
    let (Some(code), Some(stack)) = (code, refused.change.stack()) else { return false };
    // The changes of the stack that may have been made before the refusal.
    let others = || {
        history.operations.iter().filter(move |other| {
            other.change.stack() == Some(stack) && !other.refused() && other.began() <= ended
        })
    };
    let deleted = || others().any(|other| matches!(other.change, Change::Delete { .. }));
    match (&refused.change, code) {
        // Deleting a deleted stack again is no error.
        (Change::Delete { .. }, _) => false,
        (_, ErrorCode::BRK2001 | ErrorCode::BRK2008) => deleted(),
        (Change::Submit { .. } | Change::RollBack { .. }, ErrorCode::BRK2011) => {
            others().any(|other| matches!(other.change, Change::RollBack { .. }))
        }
        (Change::RollBack { .. }, ErrorCode::BRK2013) => {
            // With two contents, one of them is not the current one. Only what was acknowledged before counts.
            let earlier = others().filter(|other| {
                other.acknowledged().is_some_and(|(_, acknowledged)| acknowledged < refused.began())
            });
            let contents: HashSet<Checksum> = earlier.filter_map(|other| Some(other.object()?.2)).collect();
            contents.len() < 2 || deleted()
        }
        (Change::Target { selectors, .. }, ErrorCode::BRK2009) => others().any(|other| {
            let Change::Target { selectors: before, .. } = &other.change else { return false };
            before.iter().any(|selector| !selectors.contains(selector))
        }),
        _ => false,
    }
}

//! Converts errors of the YAML library to problems.
//!
//! Only the messages of its scanner are passed on: they are fixed sentences about syntax and cannot quote the input.
//! All others are replaced.

use serde_saphyr::{Error, ExternalMessageSource};

use crate::error::Problem;

/// Returns the problem, and the line at which the library found it.
pub(crate) fn problem_of(error: &Error) -> (Problem, Option<u64>) {
    let error = error.without_snippet();
    let line = error.location().map(|location| location.line()).filter(|line| *line > 0);
    (problem(error), line)
}

fn problem(error: &Error) -> Problem {
    let over = |what| Problem::OverBudget { what };
    let syntax = |message: &str| Problem::Syntax { message: message.to_owned() };
    match error {
        Error::DuplicateMappingKey { key, .. } => Problem::DuplicateKey { key: key.clone() },
        Error::NonFiniteFloat { .. } => Problem::NotFinite,
        Error::Budget { breach, .. } => over(breach_of(breach)),
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. } => over("the expanded aliases"),
        Error::UnknownAnchor { .. } => {
            syntax("an alias refers to an anchor that this document does not define")
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => syntax("an anchor contains itself"),
        Error::MergeValueNotMapOrSeqOfMaps { .. } => {
            syntax("`<<` must merge a mapping or a sequence of mappings")
        }
        Error::Eof { .. } => syntax("the text ends in the middle of a value"),
        Error::IOError { .. } => syntax("the text is not UTF-8"),
        Error::ExternalMessage { source, msg, .. }
            if matches!(**source, ExternalMessageSource::Parser(_)) =>
        {
            syntax(msg)
        }
        _ => syntax("a value here cannot be expressed as JSON"),
    }
}

fn breach_of(breach: &serde_saphyr::budget::BudgetBreach) -> &'static str {
    use serde_saphyr::budget::BudgetBreach;
    match breach {
        BudgetBreach::Depth { .. } => "the levels of nesting",
        BudgetBreach::Aliases { .. }
        | BudgetBreach::Anchors { .. }
        | BudgetBreach::MergeKeys { .. }
        | BudgetBreach::RecordedAnchorEvents { .. }
        | BudgetBreach::RecordedAnchorBytes { .. } => "the anchors and aliases",
        BudgetBreach::ScalarBytes { .. } => "the strings, with aliases expanded,",
        _ => "the values, with aliases expanded,",
    }
}

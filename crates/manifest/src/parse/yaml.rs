//! What the YAML library said, in our words.
//!
//! Its messages are let through only where they cannot contain a piece of the input: those of its scanner are
//! fixed sentences about syntax. Everything else is said anew here.

use serde_saphyr::{Error, ExternalMessageSource};

use crate::error::Problem;

/// The problem, and the line on which the library noticed it.
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
        | Error::AliasReplayCounterOverflow { .. } => over("the aliases, once expanded,"),
        Error::UnknownAnchor { .. } => {
            syntax("an alias refers to an anchor that this document does not define")
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => syntax("an anchor contains itself"),
        Error::MergeValueNotMapOrSeqOfMaps { .. } => {
            syntax("`<<` must merge a mapping or a sequence of mappings")
        }
        Error::Eof { .. } => syntax("it ends in the middle of a value"),
        Error::IOError { .. } => syntax("it is not text in UTF-8"),
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

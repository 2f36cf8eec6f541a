//! Which reports of a batch can be stored, under which project, and which of them is the newest of its stack.

use std::collections::{HashMap, HashSet};

use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{ConditionKind, NOTES, Report, Transition};
use brokkr_api::suspensions::LONGEST_PATCH;
use brokkr_api::{AgentId, EventId, SequenceId, StackId};
use jiff::Timestamp;

use super::claims::clamped;
use super::error_groups::{ErrorGroup, error_group};

const LONGEST_TEXT: usize = 4096;
/// A patch, and the name of its field.
const LONGEST_EDIT: usize = LONGEST_PATCH + 64;
/// The longest transition, reason or condition that a newer agent may introduce.
const LONGEST_WORD: usize = 64;
/// Agents report six conditions. A broken agent must not fill the database.
const CONDITIONS: usize = 20;

/// A report of an agent with the project of its stack, and the group of errors that it belongs to.
#[derive(Clone, Debug)]
pub struct Filed {
    pub agent: AgentId,
    pub project: String,
    pub report: Report,
    /// Its own time was in the future and was replaced, so a copy would get another one.
    pub clamped: bool,
    /// Set for failures only.
    pub group: Option<ErrorGroup>,
}

impl Filed {
    #[must_use]
    pub fn new(agent: AgentId, project: String, report: Report) -> Self {
        let is_failure =
            matches!(report.transition, Transition::Failed | Transition::Degraded | Transition::Blocked);
        let group = is_failure.then(|| error_group(&report));
        Self { agent, project, report, clamped: false, group }
    }
}

/// The reports of one request, ready to be stored.
#[derive(Clone, Debug)]
pub struct FiledBatch {
    pub agent: AgentId,
    pub filed: Vec<Filed>,
    /// The versions that the agent has applied as a target.
    pub applied: Vec<(StackId, SequenceId)>,
}

/// The oldest time that is stored: PostgreSQL cannot store every time that an agent can send.
const OLDEST: Timestamp = Timestamp::UNIX_EPOCH;

/// Replaces implausible times, and keeps the order of the reports.
pub fn clamp_times(filed: &mut [Filed], now: Timestamp) {
    filed.sort_by_key(|filed| filed.report.at);
    for (rank, filed) in filed.iter_mut().enumerate() {
        filed.report.at = filed.report.at.max(OLDEST);
        if let Some(at) = clamped(filed.report.at, now, rank) {
            (filed.report.at, filed.clamped) = (at, true);
        }
    }
}

/// Returns the reports that can be stored, and the ids of those that cannot. One bad report must not block the others:
/// the agent would send the same batch forever.
#[must_use]
pub fn sift(agent: AgentId, reports: Vec<Report>) -> (Vec<Report>, Vec<EventId>) {
    let (mut kept, mut refused) = (Vec::with_capacity(reports.len()), Vec::new());
    // A report that is repeated in one batch is stored once.
    let mut seen = HashSet::new();
    for mut report in reports {
        if report.derived_id(agent) != report.id || !is_word(&report.transition) {
            refused.push(report.id);
        } else if seen.insert(report.id) {
            trim(&mut report);
            kept.push(report);
        }
    }
    (kept, refused)
}

fn is_word(transition: &Transition) -> bool {
    !matches!(transition, Transition::Other(word) if !fits(word))
}

fn fits(word: &str) -> bool {
    (1..=LONGEST_WORD).contains(&word.len()) && word.chars().all(|character| character.is_ascii_graphic())
}

/// Shortens long texts, mentions dropped reports, and removes what PostgreSQL cannot store. The id stays
/// valid: it does not depend on texts.
fn trim(report: &mut Report) {
    trim_reason(&mut report.reason);
    if report.dropped > 0 {
        let gap = format!("(gap: the agent dropped {} earlier reports of this stack)", report.dropped);
        let text = if report.message.is_empty() { gap } else { format!("{} {gap}", report.message) };
        report.message = Message::new(text);
    }
    report.message = report.message.clipped(LONGEST_TEXT);
    report.objects.truncate(NOTES);
    for note in &mut report.objects {
        note.object.parts_mut().for_each(clip);
        trim_reason(&mut note.reason);
        note.message = note.message.clipped(LONGEST_TEXT);
    }
    report.conditions.truncate(CONDITIONS);
    report
        .conditions
        .retain(|condition| !matches!(&condition.kind, ConditionKind::Other(word) if !fits(word)));
    for condition in &mut report.conditions {
        trim_reason(&mut condition.reason);
        condition.message = condition.message.clipped(LONGEST_TEXT);
    }
}

/// Drops details that are too long, or that have a NUL, which `jsonb` refuses.
fn trim_reason(reason: &mut Reason) {
    if let Reason::Other(word) = reason {
        word.retain(|character| character.is_ascii_graphic());
        word.truncate(LONGEST_WORD);
    }
    let longest = if matches!(reason, Reason::Edited { .. }) { LONGEST_EDIT } else { LONGEST_TEXT };
    let details = reason.details().map(|details| details.to_string());
    if details.is_some_and(|details| details.len() > longest || details.contains("\\u0000")) {
        *reason = reason.without_details();
    }
}

fn clip(text: &mut String) {
    text.retain(|character| character != '\0');
    text.truncate(text.floor_char_boundary(LONGEST_TEXT));
}

/// Returns the newest of these reports for each agent and stack.
#[must_use]
pub fn newest_of_each_stack<'a>(reports: impl Iterator<Item = &'a Filed>) -> Vec<&'a Filed> {
    let mut newest: HashMap<(AgentId, StackId), &Filed> = HashMap::new();
    for filed in reports {
        let last = newest.entry((filed.agent, filed.report.stack_id)).or_insert(filed);
        if (filed.report.sequence_id, filed.report.at) >= (last.report.sequence_id, last.report.at) {
            *last = filed;
        }
    }
    newest.into_values().collect()
}

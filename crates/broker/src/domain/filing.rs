//! What of a batch of reports can be stored, under which project, and what of it is the last word about a stack.

use std::collections::{HashMap, HashSet};

use brokkr_api::report::{NOTES, Report, Transition};
use brokkr_api::{AgentId, EventId, StackId};

use super::reason::{Grouped, grouped};

const LONGEST_TEXT: usize = 4096;
/// An agent says six. One that is broken must not fill the database.
const CONDITIONS: usize = 20;

/// A report with the project of its stack, and the group of errors that it belongs to.
#[derive(Clone, Debug)]
pub struct Filed {
    pub project: String,
    pub report: Report,
    /// Only where something is wrong.
    pub group: Option<Grouped>,
}

impl Filed {
    #[must_use]
    pub fn new(project: String, report: Report) -> Self {
        let wrong =
            matches!(report.transition, Transition::Failed | Transition::Degraded | Transition::Blocked);
        let group = wrong.then(|| grouped(&report));
        Self { project, report, group }
    }
}

/// What can be stored of the batch, and the ids of what cannot. One report must not hold up the others:
/// the agent would send the same batch for ever.
#[must_use]
pub fn sift(agent: AgentId, reports: Vec<Report>) -> (Vec<Report>, Vec<EventId>) {
    let (mut kept, mut refused) = (Vec::with_capacity(reports.len()), Vec::new());
    // Twice in one batch is once.
    let mut seen = HashSet::new();
    for mut report in reports {
        if report.derived_id(agent) != report.id {
            refused.push(report.id);
        } else if seen.insert(report.id) {
            trim(&mut report);
            kept.push(report);
        }
    }
    (kept, refused)
}

/// Shortens what is too long, names a gap, and leaves out what PostgreSQL cannot store. The id does not depend on texts.
fn trim(report: &mut Report) {
    clip(&mut report.reason);
    if report.dropped > 0 {
        let gap =
            format!("(gap: {} earlier reports of this stack were dropped by the agent)", report.dropped);
        report.message = if report.message.is_empty() { gap } else { format!("{} {gap}", report.message) };
    }
    clip(&mut report.message);
    report.objects.truncate(NOTES);
    for note in &mut report.objects {
        clip(&mut note.object);
        clip(&mut note.reason);
        clip(&mut note.message);
    }
    report.conditions.truncate(CONDITIONS);
    for condition in &mut report.conditions {
        clip(&mut condition.reason);
        clip(&mut condition.message);
    }
}

fn clip(text: &mut String) {
    text.retain(|character| character != '\0');
    text.truncate(text.floor_char_boundary(LONGEST_TEXT));
}

/// The last word about each stack.
#[must_use]
pub fn newest_of_each_stack<'a>(reports: impl Iterator<Item = &'a Filed>) -> Vec<&'a Filed> {
    let mut newest: HashMap<StackId, &Filed> = HashMap::new();
    for filed in reports {
        let last = newest.entry(filed.report.stack_id).or_insert(filed);
        if (filed.report.sequence_id, filed.report.at) >= (last.report.sequence_id, last.report.at) {
            *last = filed;
        }
    }
    newest.into_values().collect()
}

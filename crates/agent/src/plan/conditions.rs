//! What is said of a stack at a glance: six conditions, always all of them, in one order.
//!
//! Pure: what is known is filled into a [`ConditionInputs`], and the conditions follow from it. The time of a
//! condition changes only together with its status, so that "not ready for an hour" stays true however often
//! the message changes in that hour.

#[cfg(test)]
mod tests;

use brokkr_api::SequenceId;
use brokkr_api::report::{Condition, ConditionKind, ConditionStatus};
use brokkr_manifest::Key;
use jiff::Timestamp;

use super::report::{LONGEST_MESSAGE, clip};
use crate::model::Stage;

/// So many fields of a fight are named; the rest are counted.
const NAMED_FIELDS: usize = 5;

/// What the conditions follow from.
#[derive(Clone, Debug)]
pub struct ConditionInputs<'a> {
    /// As they were told last.
    pub previous: &'a [Condition],
    /// The deployment object that is desired.
    pub sequence: SequenceId,
    pub content: ContentState<'a>,
    pub stage: Stage,
    /// What stands in the way of writing it, the most telling first.
    pub failures: &'a [ObjectProblem<'a>],
    /// Resources that are ready, of `total`.
    pub ready: u32,
    pub total: u32,
    /// The worst of those that are not.
    pub worst: Option<ObjectProblem<'a>>,
    /// Changed by others and not put back yet.
    pub drifted: &'a [&'a Key],
    pub contested: &'a [Contest<'a>],
    /// What a prune or removal waits for.
    pub prune: Option<Problem<'a>>,
    pub now: Timestamp,
}

/// How far the content came.
#[derive(Clone, Copy, Debug)]
pub enum ContentState<'a> {
    /// Not fetched yet; with why, if there is a reason that lasts.
    NotYet(Option<Problem<'a>>),
    Read,
    /// Damaged, unreadable, outside the grant: it will not be applied.
    Refused(Problem<'a>),
}

/// One resource and what is wrong with it.
#[derive(Clone, Copy, Debug)]
pub struct ObjectProblem<'a> {
    pub key: &'a Key,
    pub reason: &'a str,
    pub message: &'a str,
}

#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    pub reason: &'a str,
    pub message: &'a str,
}

/// A resource that somebody else changes as often as it is put back.
#[derive(Clone, Copy, Debug)]
pub struct Contest<'a> {
    pub key: &'a Key,
    /// The rival field manager; none if the server does not tell.
    pub manager: Option<&'a str>,
    /// `.spec.replicas`
    pub fields: &'a [String],
    /// Repairs within the last minute.
    pub times: u32,
}

/// What one condition says, before its time is known.
struct ConditionText(ConditionStatus, String, String);

/// All six, in the order of their kinds.
#[must_use]
pub fn conditions(view: &ConditionInputs<'_>) -> Vec<Condition> {
    let texts = [
        (ConditionKind::Accepted, accepted(view)),
        (ConditionKind::Applied, applied(view)),
        (ConditionKind::Ready, ready(view)),
        (ConditionKind::Drifted, drifted(view)),
        (ConditionKind::Contested, contested(view)),
        (ConditionKind::PrunePending, prune_pending(view)),
    ];
    texts
        .into_iter()
        .map(|(kind, ConditionText(status, reason, message))| Condition {
            kind,
            status,
            reason,
            message: clip(&message, LONGEST_MESSAGE),
            sequence_id: view.sequence,
            since: since(view, kind, status),
        })
        .collect()
}

fn since(view: &ConditionInputs<'_>, kind: ConditionKind, status: ConditionStatus) -> Timestamp {
    let before = view.previous.iter().find(|condition| condition.kind == kind);
    before.filter(|before| before.status == status).map_or(view.now, |before| before.since)
}

fn accepted(view: &ConditionInputs<'_>) -> ConditionText {
    match view.content {
        _ if leaving(view) => yes("Removal", "the removal is content_state"),
        ContentState::Read => yes("Valid", "the content is valid and content_state"),
        ContentState::Refused(why) => no(why.reason_or("Refused"), why.message),
        ContentState::NotYet(Some(why)) => unknown(why.reason_or("NotFetched"), why.message),
        ContentState::NotYet(None) => unknown("NotFetched", "the content is being fetched"),
    }
}

fn applied(view: &ConditionInputs<'_>) -> ConditionText {
    if leaving(view) {
        return no("Removing", "the stack is being removed");
    }
    if let ContentState::Refused(why) = view.content {
        return no(why.reason_or("Refused"), "the content was refused; what was applied before stays");
    }
    match view.stage {
        Stage::Steady => yes("Applied", "everything is written"),
        Stage::Prune if view.failures.is_empty() => match view.prune {
            Some(why) => no(why.reason_or("PrunePending"), why.message),
            None => no("Pruning", "written; what no longer belongs is being deleted"),
        },
        _ if !view.failures.is_empty() => {
            let first = view.failures[0];
            no(first.reason_or("Failed"), &and_more(&first.sentence(), view.failures.len() - 1))
        }
        stage => {
            let (reason, message) = on_its_way(stage);
            no(reason, message)
        }
    }
}

fn on_its_way(stage: Stage) -> (&'static str, &'static str) {
    match stage {
        Stage::Announce => ("Announcing", "the broker is being told that this stack is held here"),
        Stage::Fetch => ("Fetching", "the content is being fetched"),
        Stage::Inspect | Stage::Intend => ("Preparing", "what is there already is being looked at"),
        Stage::Prerequisites => ("WaitingForGround", "namespaces and definitions come first"),
        Stage::Validate => ("Validating", "a dry run of what changed is under way"),
        Stage::Apply => ("Applying", "resources are being written"),
        Stage::Stopped => ("Stopped", "it stopped, and is tried again from the start later"),
        Stage::Prune | Stage::Settle | Stage::Steady | Stage::Remove | Stage::Done => {
            ("Settling", "written; the record is being completed")
        }
    }
}

/// Of a deployment object that is not applied yet, nothing can be ready (F6).
fn ready(view: &ConditionInputs<'_>) -> ConditionText {
    if leaving(view) {
        return no("Removing", "the stack is being removed");
    }
    if view.stage != Stage::Steady {
        return no("NotApplied", "not everything of this deployment object is written yet");
    }
    match view.worst {
        None => yes("Ready", &format!("{}/{} resources ready", view.ready, view.total)),
        Some(worst) => {
            let unready = usize::try_from(view.total.saturating_sub(view.ready)).unwrap_or(usize::MAX);
            no(worst.reason_or("NotReady"), &and_more(&worst.sentence(), unready.saturating_sub(1)))
        }
    }
}

fn drifted(view: &ConditionInputs<'_>) -> ConditionText {
    let Some(first) = view.drifted.first() else {
        return no("NoDrift", "nothing was changed by others");
    };
    let more = view.drifted.len() - 1;
    // The repair may be refused: then that is what people have to know.
    match view.failures.iter().find(|failure| view.drifted.contains(&failure.key)) {
        Some(failure) => {
            let sentence = format!("{}: cannot be put back: {}", failure.key.for_people(), failure.message);
            yes(failure.reason_or("RepairFailed"), &and_more(&sentence, more))
        }
        None => {
            let sentence = format!("{}: changed by others, not put back yet", first.for_people());
            yes("Changed", &and_more(&sentence, more))
        }
    }
}

fn contested(view: &ConditionInputs<'_>) -> ConditionText {
    match view.contested {
        [] => no("Uncontested", "nobody fights over a field"),
        [first, rest @ ..] => yes("FieldsContested", &and_more(&first.sentence(), rest.len())),
    }
}

fn prune_pending(view: &ConditionInputs<'_>) -> ConditionText {
    match view.prune {
        None => no("NothingToPrune", "nothing waits to be deleted"),
        Some(why) => yes(why.reason_or("PrunePending"), why.message),
    }
}

fn leaving(view: &ConditionInputs<'_>) -> bool {
    matches!(view.stage, Stage::Remove | Stage::Done)
}

fn yes(reason: &str, message: &str) -> ConditionText {
    ConditionText(ConditionStatus::True, reason.to_owned(), message.to_owned())
}

fn no(reason: &str, message: &str) -> ConditionText {
    ConditionText(ConditionStatus::False, reason.to_owned(), message.to_owned())
}

fn unknown(reason: &str, message: &str) -> ConditionText {
    ConditionText(ConditionStatus::Unknown, reason.to_owned(), message.to_owned())
}

fn and_more(sentence: &str, more: usize) -> String {
    if more == 0 { sentence.to_owned() } else { format!("{sentence} (and {more} more)") }
}

/// A reason is never empty: programs select by it.
fn or<'a>(reason: &'a str, otherwise: &'a str) -> &'a str {
    if reason.is_empty() { otherwise } else { reason }
}

impl<'a> Problem<'a> {
    fn reason_or(&self, otherwise: &'a str) -> &'a str {
        or(self.reason, otherwise)
    }
}

impl<'a> ObjectProblem<'a> {
    fn reason_or(&self, otherwise: &'a str) -> &'a str {
        or(self.reason, otherwise)
    }

    /// `Deployment shop/web: 2/3 replicas ready`
    fn sentence(&self) -> String {
        format!("{}: {}", self.key.for_people(), self.message)
    }
}

impl Contest<'_> {
    /// `Deployment shop/web: kubectl-edit changes .spec.replicas (12 times in the last minute)`
    fn sentence(&self) -> String {
        let manager = self.manager.unwrap_or("somebody");
        let mut fields = self.fields.iter().take(NAMED_FIELDS).cloned().collect::<Vec<_>>().join(", ");
        if fields.is_empty() {
            fields = "it".to_owned();
        }
        let fields = and_more(&fields, self.fields.len().saturating_sub(NAMED_FIELDS));
        let times = if self.times == 1 { "once".to_owned() } else { format!("{} times", self.times) };
        format!("{}: {manager} changes {fields} ({times} in the last minute)", self.key.for_people())
    }
}

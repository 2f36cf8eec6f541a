//! The seven conditions of a stack. All of them are always present, in the same order.
//!
//! They are a pure function of [`ConditionInputs`]. The time of a condition changes only together with its
//! status, so that "not ready for an hour" stays true even if the message changes during that hour.

#[cfg(test)]
mod tests;

use brokkr_api::SequenceId;
use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{Condition, ConditionKind, ConditionStatus, ObjectNote};
use brokkr_manifest::Key;
use jiff::Timestamp;

use super::contest::Contested;
use super::drift;
use super::report::{LONGEST_MESSAGE, and_more};
use crate::model::{RecordedSuspension, Stage};

/// The input of the conditions.
#[derive(Clone, Debug)]
pub struct ConditionInputs<'a> {
    /// The conditions of the last report.
    pub previous: &'a [Condition],
    /// The sequence id of the desired deployment object.
    pub sequence: SequenceId,
    pub content: ContentState<'a>,
    pub stage: Stage,
    /// Failed requests, ordered by key. The conditions name the first one.
    pub failures: &'a [ObjectProblem<'a>],
    /// Resources that are ready, of `total`.
    pub ready: u32,
    pub total: u32,
    /// The unready resource to name.
    pub worst: Option<ObjectProblem<'a>>,
    /// Objects that others changed and that are not reverted yet.
    pub drifted: &'a [&'a Key],
    /// If drift is reported and not repaired: what others have changed.
    pub reported: Option<ReportedDrift<'a>>,
    /// The first contested object, and the number of contested objects.
    pub contested: Option<(&'a Contested<'a>, usize)>,
    /// What a prune or removal waits for.
    pub prune: Option<Problem<'a>>,
    /// The wave that a delivery waits for.
    pub unready_wave: Option<Problem<'a>>,
    pub suspensions: &'a [RecordedSuspension],
    pub now: Timestamp,
}

/// What others have changed in a stack whose drift is reported.
#[derive(Clone, Copy, Debug)]
pub enum ReportedDrift<'a> {
    /// Not all of it is read: what was reported before still counts.
    Unread,
    Read(&'a [ObjectNote]),
}

/// The state of the content.
#[derive(Clone, Copy, Debug)]
pub enum ContentState<'a> {
    /// Not fetched yet; with the problem, if there is one.
    NotYet(Option<Problem<'a>>),
    Read,
    /// Damaged, unreadable, outside the grant: it will not be applied.
    Refused(Problem<'a>),
}

/// One object and its problem.
#[derive(Clone, Copy, Debug)]
pub struct ObjectProblem<'a> {
    pub key: &'a Key,
    pub reason: &'a Reason,
    pub message: &'a Message,
}

#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    pub reason: &'a Reason,
    pub message: &'a Message,
}

/// Status, reason and message of one condition.
struct ConditionText(ConditionStatus, Reason, Message);

/// Returns all seven conditions, in the order of their kinds.
#[must_use]
pub fn conditions(view: &ConditionInputs<'_>) -> Vec<Condition> {
    let texts = [
        (ConditionKind::Accepted, accepted(view)),
        (ConditionKind::Applied, applied(view)),
        (ConditionKind::Ready, ready(view)),
        (ConditionKind::Drifted, drifted(view)),
        (ConditionKind::Contested, contested(view)),
        (ConditionKind::PrunePending, prune_pending(view)),
        (ConditionKind::Suspended, suspended(view)),
    ];
    texts
        .into_iter()
        .map(|(kind, ConditionText(status, reason, message))| Condition {
            status,
            reason,
            message: message.clipped(LONGEST_MESSAGE),
            sequence_id: view.sequence,
            since: since(view, &kind, status),
            kind,
        })
        .collect()
}

fn since(view: &ConditionInputs<'_>, kind: &ConditionKind, status: ConditionStatus) -> Timestamp {
    let before = view.previous.iter().find(|condition| condition.kind == *kind);
    before.filter(|before| before.status == status).map_or(view.now, |before| before.since)
}

fn accepted(view: &ConditionInputs<'_>) -> ConditionText {
    match view.content {
        _ if is_being_removed(view) => yes(Reason::Removal),
        ContentState::Read => yes(Reason::Valid),
        ContentState::Refused(problem) => {
            no_with(problem.reason_or(Reason::Refused), problem.message.clone())
        }
        ContentState::NotYet(Some(problem)) => {
            let reason = problem.reason_or(Reason::NotFetched);
            ConditionText(ConditionStatus::Unknown, reason, problem.message.clone())
        }
        ContentState::NotYet(None) => {
            let reason = Reason::NotFetched;
            ConditionText(ConditionStatus::Unknown, reason.clone(), reason.message())
        }
    }
}

fn applied(view: &ConditionInputs<'_>) -> ConditionText {
    if is_being_removed(view) {
        return no(Reason::Removing);
    }
    if let ContentState::Refused(problem) = view.content {
        return no_with(problem.reason_or(Reason::Refused), Reason::Refused.message());
    }
    match (view.stage, view.failures) {
        (Stage::Steady, _) => yes(Reason::Applied),
        (Stage::Prune, []) => match view.prune {
            Some(problem) => no_with(problem.reason_or(Reason::PrunePending), problem.message.clone()),
            None => no(Reason::Pruning),
        },
        (_, [first, rest @ ..]) => {
            no_with(first.reason.clone().or(Reason::Failed), and_more(first.sentence(), rest.len()))
        }
        (stage, []) => match view.unready_wave.filter(|_| stage == Stage::Apply) {
            Some(wave) => no_with(wave.reason.clone(), wave.message.clone()),
            None => no(in_progress(stage)),
        },
    }
}

fn in_progress(stage: Stage) -> Reason {
    match stage {
        Stage::Announce => Reason::Announcing,
        Stage::Fetch => Reason::Fetching,
        Stage::Inspect | Stage::Record => Reason::Preparing,
        Stage::Prerequisites => Reason::WaitingForPrerequisites,
        Stage::Validate => Reason::Validating,
        Stage::Apply => Reason::Applying,
        Stage::Stopped => Reason::Stopped,
        Stage::Suspended => Reason::Suspended,
        Stage::Prune | Stage::Finish | Stage::Steady | Stage::Remove | Stage::Done => Reason::Settling,
    }
}

/// F6: nothing counts as ready before the whole deployment object is applied.
fn ready(view: &ConditionInputs<'_>) -> ConditionText {
    if is_being_removed(view) {
        return no(Reason::Removing);
    }
    if view.stage != Stage::Steady {
        return no(Reason::NotApplied);
    }
    match view.worst {
        None => {
            let message = Message::new(format!("{}/{} resources ready", view.ready, view.total));
            ConditionText(ConditionStatus::True, Reason::Ready, message)
        }
        Some(worst) => {
            let unready = usize::try_from(view.total.saturating_sub(view.ready)).unwrap_or(usize::MAX);
            let message = and_more(worst.sentence(), unready.saturating_sub(1));
            no_with(worst.reason.clone().or(Reason::NotReady), message)
        }
    }
}

fn drifted(view: &ConditionInputs<'_>) -> ConditionText {
    match view.reported {
        None => {}
        Some(ReportedDrift::Unread) => {
            let known = view.previous.iter().find(|condition| condition.kind == ConditionKind::Drifted);
            return known.map_or_else(
                || no(Reason::NoDrift),
                |known| ConditionText(known.status, known.reason.clone(), known.message.clone()),
            );
        }
        Some(ReportedDrift::Read(changes)) => {
            let (reason, message) = drift::summary(changes);
            let status = if changes.is_empty() { ConditionStatus::False } else { ConditionStatus::True };
            return ConditionText(status, reason, message);
        }
    }
    let Some(first) = view.drifted.first() else { return no(Reason::NoDrift) };
    // The repair may be refused: then the refusal is the more useful reason.
    let (key, reason, what) = match view.failures.iter().find(|failure| view.drifted.contains(&failure.key)) {
        Some(failure) => {
            let reason = failure.reason.clone().or(Reason::RepairFailed);
            (failure.key, reason, Reason::RepairFailed.message_with(failure.message))
        }
        None => (*first, Reason::Changed, Reason::Changed.message()),
    };
    let message = and_more(format!("{}: {what}", key.display_name()), view.drifted.len() - 1);
    ConditionText(ConditionStatus::True, reason, message)
}

fn contested(view: &ConditionInputs<'_>) -> ConditionText {
    match view.contested {
        None => no(Reason::Uncontested),
        Some((first, count)) => {
            let message = and_more(first.message().to_string(), count.saturating_sub(1));
            ConditionText(ConditionStatus::True, first.reason(), message)
        }
    }
}

fn prune_pending(view: &ConditionInputs<'_>) -> ConditionText {
    match view.prune {
        None => no(Reason::NothingToPrune),
        Some(problem) => {
            let reason = problem.reason_or(Reason::PrunePending);
            ConditionText(ConditionStatus::True, reason, problem.message.clone())
        }
    }
}

fn suspended(view: &ConditionInputs<'_>) -> ConditionText {
    let objects: Option<Vec<String>> =
        view.suspensions.iter().map(|one| one.object.as_ref().map(ToString::to_string)).collect();
    match objects {
        Some(none) if none.is_empty() => no(Reason::NotSuspended),
        Some(objects) => {
            let message = Reason::Suspended.message_with(objects.join(", "));
            ConditionText(ConditionStatus::True, Reason::Suspended, message)
        }
        // One covers the whole stack.
        None => yes(Reason::Suspended),
    }
}

fn is_being_removed(view: &ConditionInputs<'_>) -> bool {
    matches!(view.stage, Stage::Remove | Stage::Done)
}

fn yes(reason: Reason) -> ConditionText {
    ConditionText(ConditionStatus::True, reason.clone(), reason.message())
}

fn no(reason: Reason) -> ConditionText {
    ConditionText(ConditionStatus::False, reason.clone(), reason.message())
}

fn no_with(reason: Reason, message: Message) -> ConditionText {
    ConditionText(ConditionStatus::False, reason, message)
}

impl Problem<'_> {
    /// Returns the reason, or `otherwise` if there is none: programs select by it, so it must not be empty.
    fn reason_or(&self, otherwise: Reason) -> Reason {
        self.reason.clone().or(otherwise)
    }
}

impl ObjectProblem<'_> {
    /// Returns a sentence such as `Deployment shop/web: 2/3 replicas ready`.
    fn sentence(&self) -> String {
        format!("{}: {}", self.key.display_name(), self.message)
    }
}

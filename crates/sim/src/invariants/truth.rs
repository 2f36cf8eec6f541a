//! Reports are true. J3: a receipt names an object as gone only if it is. J4: no stack is healthy while the agent cannot
//! see its objects, or cannot store its record. D2: a transient failure is not reported as a final one.

use brokkr_agent::resource::KindName;
use brokkr_api::StackId;
use brokkr_api::reason::Reason;
use brokkr_api::report::{ObjectNote, Report, Transition};

use jiff::SignedDuration;

use super::failures::Failures;
use crate::world::{Checked, World};

/// How long a watch may be refused before a stack must no longer be called healthy.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// Checks a report that is about to be stored.
pub fn check(world: &World, report: &Report, failures: &Failures) -> Checked {
    match report.transition {
        Transition::Removed => check_receipt(world, report),
        Transition::Failed => check_failed(world, report, failures),
        Transition::Healthy => match unwatched(world, report.stack_id, PATIENCE) {
            Some(why) => Err(format!("J4: {} is reported as healthy, although {why}", report.stack_id)),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn check_receipt(world: &World, report: &Report) -> Checked {
    let alive = report.objects.iter().find_map(|note| {
        let Reason::Gone { uid } = &note.reason else { return None };
        world.server.objects.iter().find(|(_, object)| object.uid.to_string() == *uid)
    });
    match alive {
        Some((key, object)) => Err(format!(
            "J3: the receipt of {} names {key} as gone, but {} lives on",
            report.sequence_id, object.uid
        )),
        None => Ok(()),
    }
}

fn check_failed(world: &World, report: &Report, failures: &Failures) -> Checked {
    let young = |note: &ObjectNote| failures.young(report.stack_id, note, world.now());
    let all: Option<Vec<_>> =
        report.objects.iter().map(|note| young(note).map(|why| format!("{} ({why})", note.object))).collect();
    match all.filter(|all| !all.is_empty()) {
        Some(all) => {
            Err(format!("D2: reported as failed ({}) because of {}", report.reason.code(), all.join(", ")))
        }
        None => Ok(()),
    }
}

/// Checks a settled state: the last report of a stack that the agent cannot see does not say that it is healthy.
pub fn check_settled(world: &World, stack: StackId) -> Checked {
    let is_healthy = world.broker.reported_state.get(&stack) == Some(&Transition::Healthy);
    let unrecorded = || world.records.is_refused(stack).then(|| "its record cannot be written".to_owned());
    let blindness = unwatched(world, stack, SignedDuration::ZERO).or_else(unrecorded);
    match blindness.filter(|_| is_healthy) {
        Some(why) => Err(format!("J4: the last report of {stack} says healthy, although {why}")),
        None => Ok(()),
    }
}

/// Returns which kind of this stack the agent has not been allowed to watch for this long, if any.
fn unwatched(world: &World, stack: StackId, patience: SignedDuration) -> Option<String> {
    let content = world.broker.desired(stack)?;
    let is_blind = |kind: &KindName| {
        let since = world.server.unwatchable.get(kind);
        since.is_some_and(|since| world.now().duration_since(*since) >= patience)
    };
    let kind = content.objects.values().map(|desired| desired.kind.name()).find(is_blind)?;
    Some(format!("the watch of {} is refused", kind.kind))
}

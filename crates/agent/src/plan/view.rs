//! Adds the conditions to every record that is written, and to its reports.

use brokkr_api::reason::Reason;
use brokkr_api::report::Transition;
use brokkr_manifest::Key;

use super::conditions::{ConditionInputs, ContentState, ObjectProblem, Problem, ReportedDrift, conditions};
use super::{contest, drift, readiness};
use crate::model::{FailureClass, Plan, Record, Situation, Stage, Step};

/// Adds the conditions, the grant and the session to the records of a plan.
pub(super) fn with_conditions(situation: &Situation<'_>, mut plan: Plan) -> Plan {
    for step in &mut plan.steps {
        if let Step::WriteRecord(record) = step {
            record.session = situation.session;
            // While the broker is unreachable, the recorded grant applies.
            record.grant.clone_from(&situation.goal.target.grant);
            record.drift = situation.goal.target.drift;
            situation.suspensions.refresh(&mut record.suspensions);
            let is_applied = record.applied == Some(record.sequence);
            let waited = situation.wave_clock.to_record();
            record.wait = waited.filter(|wait| !is_applied && wait.sequence == record.sequence);
            complete(situation, plan.stage, record);
        }
    }
    plan
}

fn complete(situation: &Situation<'_>, stage: Stage, record: &mut Record) {
    let (_, worst) =
        situation.goal.content.as_ref().map(|content| readiness::of(situation, content)).unwrap_or_default();
    let failures: Vec<ObjectProblem<'_>> = situation
        .progress
        .failures
        .objects
        .iter()
        .map(|(key, retry)| ObjectProblem {
            key,
            reason: &retry.failure.reason,
            message: &retry.failure.message,
        })
        .collect();
    let contested = contest::contests(situation);
    let drifted: Vec<&Key> = contest::drifted(situation).collect();
    let changes = drift::is_reported(situation).then(|| drift::changes(situation));
    // With this record, the delivery is complete.
    let settled = record.applied == Some(situation.goal.target.sequence_id) && record.removal.is_none();
    let outcome = record.outcome.as_ref();
    let view = ConditionInputs {
        previous: situation.record.map(|record| record.conditions.as_slice()).unwrap_or_default(),
        sequence: situation.goal.target.sequence_id,
        content: content_state(situation, stage, record),
        stage: if settled && stage != Stage::Prune { Stage::Steady } else { stage },
        failures: &failures,
        ready: record.ready,
        total: record.total,
        worst: worst.as_ref().map(|worst| ObjectProblem {
            key: &worst.key,
            reason: &worst.reason,
            message: &worst.message,
        }),
        drifted: &drifted,
        reported: changes
            .as_ref()
            .map(|changes| changes.as_deref().map_or(ReportedDrift::Unread, ReportedDrift::Read)),
        contested: contested.first().map(|first| (first, contested.len())),
        prune: outcome
            .filter(|outcome| {
                outcome.transition == Transition::Blocked
                    && !matches!(outcome.reason, Reason::Suspended | Reason::WaitingForWave { .. })
            })
            .map(|outcome| Problem { reason: &outcome.reason, message: &outcome.message }),
        unready_wave: outcome
            .filter(|outcome| {
                outcome.sequence == situation.goal.target.sequence_id
                    && matches!(outcome.reason, Reason::WaitingForWave { .. } | Reason::WaveNotReady { .. })
            })
            .map(|outcome| Problem { reason: &outcome.reason, message: &outcome.message }),
        suspensions: &record.suspensions,
        now: situation.now,
    };
    record.conditions = conditions(&view);
    let known =
        |id| situation.record.is_some_and(|record| record.reports.iter().any(|report| report.id == id));
    for report in record.reports.iter_mut().filter(|report| !known(report.id)) {
        report.conditions.clone_from(&record.conditions);
    }
}

fn content_state<'a>(situation: &'a Situation<'_>, stage: Stage, record: &'a Record) -> ContentState<'a> {
    if let Some(content) = &situation.goal.content {
        let written = content.objects.keys().any(|key| situation.progress.delivery.written.contains(key));
        let refused = record.outcome.as_ref().filter(|outcome| {
            stage == Stage::Stopped && !written && outcome.transition == Transition::Failed
        });
        return refused.map_or(ContentState::Read, |outcome| {
            ContentState::Refused(Problem { reason: &outcome.reason, message: &outcome.message })
        });
    }
    let Some(retry) = &situation.progress.failures.fetch else { return ContentState::NotYet(None) };
    let why = Problem { reason: &retry.failure.reason, message: &retry.failure.message };
    match retry.failure.class {
        FailureClass::Permanent => ContentState::Refused(why),
        _ => ContentState::NotYet(Some(why)),
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::SequenceId;
    use brokkr_api::envelope::Grant;
    use brokkr_api::report::{ConditionKind, ConditionStatus};
    use brokkr_health::HealthState;

    use super::*;
    use crate::plan::fixtures::{SEQUENCE, SESSION, Stack};

    #[test]
    fn f5_a_delivery_that_was_stopped_before_its_first_write_was_refused() {
        let mut stack = Stack::deployment();
        let outcome = stack.record.outcome.as_mut().unwrap();
        outcome.transition = Transition::Failed;
        let is_refused = |stack: &Stack, stage| {
            matches!(content_state(&stack.situation(1, 10), stage, &stack.record), ContentState::Refused(_))
        };
        assert!(is_refused(&stack, Stage::Stopped));
        assert!(!is_refused(&stack, Stage::Apply), "it is not stopped");
        stack.progress.delivery.written.insert(stack.key.clone());
        assert!(!is_refused(&stack, Stage::Stopped), "a part was written");
        stack.progress.delivery.written.clear();
        stack.record.outcome.as_mut().unwrap().transition = Transition::Applied;
        assert!(!is_refused(&stack, Stage::Stopped), "it has not failed");
    }

    #[test]
    fn every_record_that_is_written_names_this_run_and_the_current_grant() {
        let mut stack = Stack::deployment();
        let grant = Grant { namespaces: vec!["shop".into()], kinds: vec!["*".into()], account: None };
        stack.goal.target.grant = Some(grant.clone());
        let write = Step::WriteRecord(Box::new(stack.record.clone()));
        let plan = with_conditions(&stack.situation(1, 10), Plan::with(Stage::Steady, vec![write]));
        let [Step::WriteRecord(written)] = plan.steps.as_slice() else { panic!("{plan:?}") };
        assert_eq!((written.session, written.grant.as_ref()), (SESSION, Some(&grant)));
    }

    #[test]
    fn f5_a_complete_delivery_is_applied_whatever_stage_but_a_prune_writes_its_record() {
        let mut stack = Stack::of("", "ConfigMap");
        stack.is(HealthState::Ready, 0);
        let applied = |stack: &Stack, stage| {
            let mut record = stack.record.clone();
            complete(&stack.situation(1, 10), stage, &mut record);
            let mut conditions = record.conditions.into_iter();
            conditions.find(|condition| condition.kind == ConditionKind::Applied).map(|found| found.status)
        };
        assert_eq!(applied(&stack, Stage::Finish), Some(ConditionStatus::True));
        assert_eq!(applied(&stack, Stage::Prune), Some(ConditionStatus::False));
        stack.record.applied = Some(SequenceId(SEQUENCE.0 - 1));
        assert_eq!(applied(&stack, Stage::Finish), Some(ConditionStatus::False));
    }
}

//! The conditions that go with every record that is written, and with the reports in it.

use brokkr_api::report::Transition;
use brokkr_manifest::Key;

use super::conditions::{Contest, Obstacle, Taken, View, Waiting, conditions};
use super::steps::{Plan, Stage, Step};
use super::types::{FailureClass, Record, Situation};
use super::{readiness, steady};

/// Fills the conditions in.
pub(super) fn with_conditions(s: &Situation<'_>, mut plan: Plan) -> Plan {
    for step in &mut plan.steps {
        if let Step::WriteRecord(record) = step {
            complete(s, plan.stage, record);
        }
    }
    plan
}

fn complete(s: &Situation<'_>, stage: Stage, record: &mut Record) {
    let (_, worst) = s.goal.content.as_ref().map(|content| readiness::of(s, content)).unwrap_or_default();
    let failures: Vec<Obstacle<'_>> = s
        .progress
        .failures
        .iter()
        .map(|(key, standing)| Obstacle {
            key,
            reason: &standing.failure.reason,
            message: &standing.failure.message,
        })
        .collect();
    let contests = steady::contests(s);
    let contested: Vec<Contest<'_>> = contests
        .iter()
        .map(|contest| Contest {
            key: contest.key,
            manager: contest.rival.map(|rival| rival.manager.as_str()),
            fields: contest.rival.map(|rival| rival.fields.as_slice()).unwrap_or_default(),
            times: contest.rounds,
        })
        .collect();
    let drifted: Vec<&Key> = steady::drifted(s).collect();
    // What this very record tells of is applied with it.
    let settled = record.applied == Some(s.goal.target.sequence_id) && record.removal.is_none();
    let outcome = record.outcome.as_ref();
    let view = View {
        previous: s.record.map(|record| record.conditions.as_slice()).unwrap_or_default(),
        sequence: s.goal.target.sequence_id,
        content: taken(s, stage, record),
        stage: if settled && stage != Stage::Prune { Stage::Steady } else { stage },
        failures: &failures,
        ready: record.ready,
        total: record.total,
        worst: worst.as_ref().map(|worst| Obstacle {
            key: &worst.key,
            reason: &worst.reason,
            message: &worst.message,
        }),
        drifted: &drifted,
        contested: &contested,
        prune: outcome
            .filter(|outcome| outcome.transition == Transition::Blocked)
            .map(|outcome| Waiting { reason: &outcome.reason, message: &outcome.message }),
        now: s.now,
    };
    record.conditions = conditions(&view);
    let known = |id| s.record.is_some_and(|record| record.reports.iter().any(|report| report.id == id));
    for report in record.reports.iter_mut().filter(|report| !known(report.id)) {
        report.conditions.clone_from(&record.conditions);
    }
}

fn taken<'a>(s: &'a Situation<'_>, stage: Stage, record: &'a Record) -> Taken<'a> {
    if let Some(content) = &s.goal.content {
        let written = content.objects.keys().any(|key| s.progress.written.contains(key));
        let refused = record.outcome.as_ref().filter(|outcome| {
            stage == Stage::Stopped && !written && outcome.transition == Transition::Failed
        });
        return refused.map_or(Taken::Read, |outcome| {
            Taken::Refused(Waiting { reason: &outcome.reason, message: &outcome.message })
        });
    }
    let Some(standing) = &s.progress.fetch else { return Taken::NotYet(None) };
    let why = Waiting { reason: &standing.failure.reason, message: &standing.failure.message };
    match standing.failure.class {
        FailureClass::Permanent => Taken::Refused(why),
        _ => Taken::NotYet(Some(why)),
    }
}

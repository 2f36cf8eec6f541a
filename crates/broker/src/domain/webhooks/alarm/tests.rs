//! Example histories of failures and drift, and properties of any history.

use proptest::prelude::*;

use super::*;

const GRACE: Duration = Duration::from_secs(300);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// Runs a history and returns when the problem began to last and when it was over, with the number of reports. Time
/// advances to each check that the alarm schedules.
fn run(kind: AlarmKind, history: &[(i64, Transition)], until: i64) -> Vec<(i64, &'static str, u32)> {
    let (mut alarm, mut changes) = (Alarm::Quiet, Vec::new());
    let mut take = |alarm: &mut Alarm, observation: Observation<'_>, second: i64| {
        let before = std::mem::replace(alarm, step(kind, *alarm, observation, at(second), GRACE));
        match (before, *alarm) {
            (Alarm::Quiet | Alarm::Pending(_), Alarm::Lasting(episode)) => {
                changes.push((second, "lasts", episode.count));
            }
            (Alarm::Lasting(episode), Alarm::Quiet) => changes.push((second, "over", episode.count)),
            _ => {}
        }
    };
    let time_passes = |alarm: &mut Alarm, to: i64, take: &mut dyn FnMut(&mut Alarm, Observation<'_>, i64)| {
        while let Some(check) = next_check(kind, *alarm, GRACE) {
            let second = check.duration_since(at(0)).as_secs();
            if second > to {
                break;
            }
            let before = *alarm;
            take(alarm, Observation::Time, second);
            assert_ne!(before, *alarm, "a scheduled check changes the state");
        }
    };
    for (second, transition) in history {
        time_passes(&mut alarm, *second - 1, &mut take);
        take(&mut alarm, Observation::Reported(transition), *second);
    }
    time_passes(&mut alarm, until, &mut take);
    changes
}

#[test]
fn f7_a_failure_lasts_after_the_grace_until_a_good_report() {
    use Transition::{Applied, Degraded, Failed, Healthy};
    // Resolved within the grace period: it never lasts.
    assert_eq!(run(AlarmKind::Failure, &[(0, Failed), (299, Healthy)], 9999), []);
    // Retried every minute for an hour: it begins to last once.
    let mut retried: Vec<_> = (0..60).map(|minute| (minute * 60, Failed)).collect();
    retried.push((3600, Applied));
    assert_eq!(run(AlarmKind::Failure, &retried, 9999), [(300, "lasts", 6), (3600, "over", 60)]);
    // Reported once, and never again.
    assert_eq!(run(AlarmKind::Failure, &[(0, Degraded)], 9999), [(300, "lasts", 1)]);
    // Applied does not mean ready.
    let history = [(0, Degraded), (400, Applied), (500, Healthy)];
    assert_eq!(run(AlarmKind::Failure, &history, 9999), [(300, "lasts", 1), (500, "over", 1)]);
    // A second failure after the first was resolved: a new episode.
    let history = [(0, Failed), (400, Healthy), (500, Failed), (900, Healthy)];
    let changes: Vec<_> =
        run(AlarmKind::Failure, &history, 9999).into_iter().map(|(second, ..)| second).collect();
    assert_eq!(changes, [300, 400, 800, 900]);
}

#[test]
fn f7_drift_lasts_while_it_is_repaired_again_and_again() {
    use Transition::{Healthy, Removed, Repaired};
    assert_eq!(run(AlarmKind::Drift, &[(0, Repaired)], 9999), [], "repaired once, and not changed again");
    assert_eq!(run(AlarmKind::Drift, &[(0, Repaired), (299, Repaired)], 9999), []);
    let repeated: Vec<_> = (0..20).map(|minute| (minute * 60, Repaired)).collect();
    assert_eq!(run(AlarmKind::Drift, &repeated, 9999), [(300, "lasts", 6), (19 * 60 + 300, "over", 20)]);
    // A healthy report does not end drift.
    let history = [(0, Repaired), (200, Healthy), (250, Repaired), (400, Repaired), (500, Removed)];
    assert_eq!(run(AlarmKind::Drift, &history, 9999), [(400, "lasts", 3), (500, "over", 3)]);
}

proptest! {
    #[test]
    fn f7_in_any_history_a_problem_lasts_and_is_over_in_turn(
        history in prop::collection::vec((0i64..400, 0usize..7), 0..40), drift in any::<bool>(),
    ) {
        let all = Transition::KNOWN;
        let kind = if drift { AlarmKind::Drift } else { AlarmKind::Failure };
        let mut now = 0;
        let history: Vec<(i64, Transition)> = history
            .into_iter()
            .map(|(pause, which)| { now += pause; (now, all[which].clone()) })
            .collect();
        let changes = run(kind, &history, now + 10_000);
        for (index, (_, what, _)) in changes.iter().enumerate() {
            prop_assert_eq!(*what, if index % 2 == 0 { "lasts" } else { "over" });
        }
        if drift {
            prop_assert_eq!(changes.len() % 2, 0, "drift ends by itself");
        }
    }
}

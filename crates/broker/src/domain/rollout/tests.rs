//! The rules one by one, and the sizes of the built-in policy.

use std::time::Duration;

use brokkr_api::report::Transition;
use brokkr_api::rollouts::{Pending, RolloutFigures, RolloutPolicy, RolloutState, Share, StopReason, Wave};
use jiff::{SignedDuration, Timestamp};

use super::command::Command;
use super::policy::{Kind, Policy, resolve};
use super::survey::{Survey, WaveFigures};
use super::verdict::{Contact, Verdict, VersionReport, verdict};
use super::{Decision, Rollout};

fn built_in() -> Policy {
    resolve(&[], Kind::Version).expect("staged")
}

/// A fleet in which every agent is connected and all verdicts are good.
fn survey(members: u64, released: u64) -> Survey {
    Survey {
        figures: RolloutFigures { members, released, healthy: released, ..RolloutFigures::default() },
        wave: WaveFigures { members, released, candidates: members - released, ..WaveFigures::default() },
        candidates: (1..=members - released).collect(),
        ..Survey::default()
    }
}

/// Rolls out to a fleet in which everything goes well; returns the sizes at which it soaked.
fn waves_of(members: u64) -> Vec<u64> {
    let mut rollout = Rollout::new(built_in());
    let (mut released, mut soaked) = (0, Vec::new());
    for _ in 0..1000 {
        match rollout.step(&mut survey(members, released), Duration::from_secs(10)) {
            Some(Decision::Release(count)) => released += count,
            Some(Decision::Wait(Pending::Soak { .. })) if soaked.last() != Some(&released) => {
                soaked.push(released);
            }
            Some(Decision::Complete) => return soaked,
            _ => {}
        }
    }
    panic!("it never completes: {rollout:?}");
}

#[test]
fn the_built_in_waves_fit_any_size_of_the_fleet() {
    assert_eq!(waves_of(1), Vec::<u64>::new());
    assert_eq!(waves_of(2), [1]);
    assert_eq!(waves_of(10), [1, 5]);
    assert_eq!(waves_of(1000), [1, 10, 100, 500]);
    assert_eq!(waves_of(1_000_000), [1, 10_000, 100_000, 500_000]);
}

#[test]
fn a_narrower_policy_wins_field_by_field_and_the_last_wave_is_everybody() {
    let of_stack = RolloutPolicy {
        waves: Some(vec![Wave { selector: Some("ring=0".parse().unwrap()), size: Share::ALL, gate: None }]),
        ..RolloutPolicy::default()
    };
    let of_installation = RolloutPolicy {
        soak_seconds: Some(0),
        max_bad_percent: Some(5),
        waves: Some(Vec::new()),
        ..RolloutPolicy::default()
    };
    let policy = resolve(&[of_stack.clone(), of_installation], Kind::Version).unwrap();
    assert_eq!((policy.soak, policy.max_bad_percent, policy.waves.len()), (Some(Duration::ZERO), 5, 2));
    assert_eq!(policy.waves[1], Wave::of(Share::ALL));
    let at_once = RolloutPolicy { staged: Some(false), ..RolloutPolicy::default() };
    assert_eq!(resolve(&[at_once.clone(), of_stack.clone()], Kind::Version), None);
    assert!(resolve(&[of_stack, at_once], Kind::Version).is_some(), "waves that a narrower policy names");
    assert_eq!(resolve(&[], Kind::Version), Some(built_in()));
    let first = resolve(&[], Kind::First).unwrap();
    assert_eq!(first.soak, Some(Duration::ZERO), "a first version does not soak");
}

#[test]
fn one_bad_agent_of_few_stops_the_rollout_and_two_percent_of_many_do_not() {
    let mut rollout = Rollout::new(built_in());
    let mut few = survey(1000, 10);
    (few.figures.bad, few.figures.healthy) = (1, 9);
    let stop = Decision::Stop(StopReason::TooManyBad { bad: 1, allowed: 0 });
    assert_eq!(rollout.clone().step(&mut few, Duration::ZERO), Some(stop));
    let mut many = survey(1000, 100);
    (many.figures.bad, many.figures.healthy) = (2, 98);
    assert!(!matches!(rollout.step(&mut many, Duration::ZERO), Some(Decision::Stop(_))));
}

#[test]
fn no_more_agents_begin_than_are_healthy_nor_than_the_limit() {
    let mut rollout = Rollout::new(built_in());
    rollout.wave = 3;
    let mut waiting = survey(1000, 20);
    (waiting.figures.in_flight, waiting.figures.healthy) = (8, 12);
    assert_eq!(rollout.clone().step(&mut waiting, Duration::ZERO), Some(Decision::Release(4)));
    waiting.figures.in_flight = 12;
    let limit = Decision::Wait(Pending::InFlight { limit: 12 });
    assert_eq!(rollout.clone().step(&mut waiting, Duration::ZERO), Some(limit));
    let mut late = survey(1000, 400);
    assert_eq!(rollout.step(&mut late, Duration::ZERO), Some(Decision::Release(100)), "ten percent");
}

#[test]
fn only_watched_time_soaks_and_only_while_the_agents_are_healthy() {
    let mut rollout = Rollout::new(built_in());
    let first = || survey(10, 1);
    rollout.step(&mut first(), Duration::from_secs(3600));
    assert_eq!((rollout.state, rollout.soaked), (RolloutState::Soaking, Duration::ZERO), "it begins to soak");
    rollout.step(&mut first(), Duration::from_secs(10));
    assert_eq!(rollout.soaked, Duration::from_secs(10));
    let mut degraded = first();
    (degraded.figures.healthy, degraded.figures.in_flight) = (0, 1);
    rollout.step(&mut degraded, Duration::from_secs(10));
    assert_eq!((rollout.state, rollout.soaked), (RolloutState::Running, Duration::ZERO), "it starts over");
}

#[test]
fn h4_an_agent_that_was_silent_before_its_release_is_owed_and_one_that_falls_silent_later_is_bad() {
    let second = |second: i64| Timestamp::from_second(1_000_000 + second).unwrap();
    let (released, now) = (second(0), second(400));
    let judged = |contact, report: Option<&VersionReport>| verdict(released, contact, report, now);
    assert_eq!(judged(Contact::Silent(None), None), Verdict::Owed);
    assert_eq!(judged(Contact::Silent(Some(second(-1))), None), Verdict::Owed);
    assert_eq!(judged(Contact::Silent(Some(second(1))), None), Verdict::Bad);
    assert_eq!(judged(Contact::Present(None), None), Verdict::InFlight);
    let report = |transition, since, bad_before| VersionReport {
        transition,
        since: second(since),
        bad_before,
        awaits_approval: false,
        waits_for_wave: false,
    };
    // It may be gone: nothing it said before counts, but it is not bad yet.
    let healthy = report(Transition::Healthy, 1, false);
    assert_eq!(judged(Contact::Late(second(2)), Some(&healthy)), Verdict::InFlight);
    assert_eq!(judged(Contact::Late(second(1)), None), Verdict::InFlight);
    assert_eq!(judged(Contact::Late(second(-1)), None), Verdict::Owed, "it was gone before");
    let silent = Contact::Silent(Some(second(-1)));
    assert_eq!(judged(silent, Some(&report(Transition::Healthy, 1, false))), Verdict::Healthy, "it is back");
    assert_eq!(judged(silent, Some(&report(Transition::Applied, 1, false))), Verdict::InFlight, "it is back");
    let silent = Contact::Silent(Some(second(2)));
    assert_eq!(judged(silent, Some(&report(Transition::Healthy, 1, false))), Verdict::Bad, "it is lost");
    assert_eq!(judged(silent, Some(&report(Transition::Applied, 1, false))), Verdict::Bad, "it has begun");
    assert_eq!(judged(silent, Some(&report(Transition::Applied, 1, true))), Verdict::Excused);
    let present = |report: &VersionReport| judged(Contact::Present(None), Some(report));
    assert_eq!(present(&report(Transition::Failed, 399, false)), Verdict::Bad);
    assert_eq!(present(&report(Transition::Failed, 399, true)), Verdict::Excused);
    assert_eq!(present(&report(Transition::Degraded, 341, false)), Verdict::InFlight);
    assert_eq!(present(&report(Transition::Degraded, 340, false)), Verdict::Bad);
    let blocked = VersionReport { awaits_approval: true, ..report(Transition::Blocked, 1, false) };
    assert_eq!(present(&blocked), Verdict::Waiting);
    // A wave inside the stack may wait for longer than an agent may otherwise be without a verdict.
    let waits = VersionReport { waits_for_wave: true, ..report(Transition::Blocked, 1, false) };
    let hours = second(5 * 3600);
    assert_eq!(verdict(released, Contact::Present(None), Some(&waits), hours), Verdict::InFlight);
    assert_eq!(verdict(released, Contact::Silent(Some(second(2))), Some(&waits), hours), Verdict::Bad);
    // A moment of trouble long after the release is no lateness.
    let hour = second(3600);
    let degraded = report(Transition::Degraded, 3590, false);
    assert_eq!(verdict(released, Contact::Present(None), Some(&degraded), hour), Verdict::InFlight);
    let late = report(Transition::Applied, 1, true);
    assert_eq!(verdict(released, Contact::Present(None), Some(&late), hour), Verdict::Excused);
    // Without a verdict for fifteen minutes, since it could begin.
    let later = released + SignedDuration::from_mins(15);
    assert_eq!(verdict(released, Contact::Present(None), None, later), Verdict::Bad);
    assert_eq!(verdict(released, Contact::Present(Some(second(60))), None, later), Verdict::InFlight);
}

#[test]
fn each_command_is_possible_only_in_certain_states() {
    let figures = RolloutFigures { members: 1000, released: 10, bad: 3, ..RolloutFigures::default() };
    let mut rollout = Rollout::new(built_in());
    let stop = || Command::Stop { reason: "no".into() };
    assert!(rollout.command(Command::Resume, &figures).is_err());
    assert!(rollout.command(Command::Skip, &figures).is_err());
    rollout.command(Command::Pause, &figures).unwrap();
    assert_eq!(rollout.step(&mut survey(1000, 10), Duration::ZERO), None, "a paused rollout does nothing");
    rollout.command(stop(), &figures).unwrap();
    assert_eq!(rollout.step(&mut survey(1000, 10), Duration::ZERO), None);
    rollout.command(Command::Resume, &figures).unwrap();
    assert_eq!(
        (rollout.state, rollout.accepted_bad),
        (RolloutState::Running, 3),
        "the bad so far are accepted"
    );
    rollout.command(Command::Promote, &figures).unwrap();
    assert_eq!(rollout.wave, 1);
    rollout.command(Command::Abort { reason: "no".into() }, &figures).unwrap();
    for command in [Command::Pause, Command::Resume, Command::Promote, stop()] {
        assert!(rollout.command(command, &figures).is_err(), "an ended rollout stays as it is");
    }
}

#[test]
fn a_rollout_that_lost_all_its_agents_does_not_complete() {
    let mut rollout = Rollout::new(built_in());
    assert_eq!(rollout.clone().step(&mut survey(0, 0), Duration::ZERO), Some(Decision::Complete));
    assert_eq!(rollout.step(&mut survey(10, 0), Duration::ZERO), Some(Decision::Release(1)));
    let decision = rollout.step(&mut survey(0, 0), Duration::ZERO);
    assert_eq!(decision, Some(Decision::Wait(Pending::Healthy { needed: 1 })));
}

#[test]
fn agents_that_were_bad_before_are_replaced_by_others_but_not_without_end() {
    let mut rollout = Rollout::new(built_in());
    let excused = |count: u64| {
        let mut survey = survey(1000, 0);
        (survey.figures.released, survey.figures.excused) = (count, count);
        survey.wave.candidates = 1000 - count;
        survey
    };
    for count in [1, 2, 11] {
        let decision = rollout.clone().step(&mut excused(count), Duration::ZERO);
        assert_eq!(decision, Some(Decision::Release(1)), "{count}");
    }
    let stop = Decision::Stop(StopReason::TooManyExcused { excused: 12 });
    assert_eq!(rollout.step(&mut excused(12), Duration::ZERO), Some(stop));
    rollout.command(Command::Resume, &excused(12).figures).unwrap();
    assert_eq!(rollout.step(&mut excused(12), Duration::ZERO), Some(Decision::Release(1)), "accepted");
}

#[test]
fn a_wave_without_an_agent_that_could_prove_the_version_blocks_no_other() {
    let ring = Wave { selector: Some("ring=0".parse().unwrap()), size: Share::ALL, gate: None };
    let policy =
        resolve(&[RolloutPolicy { waves: Some(vec![ring]), ..RolloutPolicy::default() }], Kind::Version);
    let rollout = Rollout::new(policy.unwrap());
    // No agent has the label, or all that have it are silent.
    let mut unmatched = survey(10, 0);
    unmatched.wave = WaveFigures::default();
    let mut owed = survey(10, 2);
    (owed.figures.healthy, owed.figures.owed) = (0, 2);
    owed.wave = WaveFigures { members: 2, ..WaveFigures::default() };
    for mut survey in [unmatched, owed] {
        let mut rollout = rollout.clone();
        let soak = Decision::Wait(Pending::Soak { left_seconds: 120 });
        assert_eq!(rollout.step(&mut survey, Duration::ZERO), Some(soak), "they may come back at once");
        let decision = rollout.step(&mut survey, Duration::from_secs(120));
        assert_eq!(decision, Some(Decision::BeginWave));
    }
    // The only agent has failed. It keeps trying: there is no other agent to protect.
    let mut only = Rollout::new(built_in());
    let mut bad = survey(1, 1);
    (bad.figures.bad, bad.figures.healthy, bad.wave.bad) = (1, 0, 1);
    let waits = Decision::Wait(Pending::Healthy { needed: 1 });
    assert_eq!(only.step(&mut bad, Duration::ZERO), Some(waits));
    assert_eq!(only.step(&mut survey(1, 1), Duration::ZERO), Some(Decision::Complete));
    // All are silent: those that return are asked first.
    let mut silent = survey(3, 3);
    (silent.figures.owed, silent.figures.healthy) = (3, 0);
    let decision = Rollout::new(built_in()).step(&mut silent, Duration::ZERO);
    assert_eq!(decision, Some(Decision::Wait(Pending::Healthy { needed: 1 })));
}

#[test]
fn a_policy_that_allows_many_bad_agents_needs_fewer_healthy_ones() {
    let policy = RolloutPolicy { max_bad_percent: Some(10), ..RolloutPolicy::default() };
    assert_eq!(resolve(&[policy], Kind::Version).unwrap().min_healthy_percent, 90);
}

#[test]
fn another_agent_proves_the_version_in_the_place_of_one_that_a_person_has_accepted() {
    let mut rollout = Rollout::new(built_in());
    let mut canary = survey(10, 1);
    (canary.figures.bad, canary.figures.healthy, canary.wave.bad) = (1, 0, 1);
    assert!(matches!(rollout.step(&mut canary, Duration::ZERO), Some(Decision::Stop(_))));
    rollout.command(Command::Resume, &canary.figures).unwrap();
    assert_eq!(rollout.step(&mut canary, Duration::ZERO), Some(Decision::Release(1)));
    let mut two = survey(10, 2);
    (two.figures.bad, two.figures.healthy, two.wave.bad) = (1, 1, 1);
    assert!(matches!(rollout.step(&mut two, Duration::ZERO), Some(Decision::Wait(Pending::Soak { .. }))));
}

#[test]
fn agents_that_may_be_gone_or_are_offline_do_not_make_a_wave_smaller() {
    let mut rollout = Rollout::new(built_in());
    rollout.step(&mut survey(10, 0), Duration::ZERO);
    // All others have missed some polls: they may be back in a moment.
    let mut late = survey(10, 1);
    late.wave = WaveFigures { members: 10, released: 1, late: 9, ..WaveFigures::default() };
    late.candidates.clear();
    let soak = rollout.step(&mut late, Duration::from_secs(10));
    assert!(matches!(soak, Some(Decision::Wait(Pending::Soak { .. }))), "{soak:?}");
    let waits = Decision::Wait(Pending::Late { agents: 9 });
    assert_eq!(rollout.step(&mut late, Duration::from_secs(120)), Some(waits));
    // The mark also covers an agent that is offline: it must not get what has failed on the only other one.
    let mut offline = survey(2, 2);
    (offline.figures.healthy, offline.figures.bad, offline.figures.owed) = (0, 1, 1);
    let stop = Decision::Stop(StopReason::TooManyBad { bad: 1, allowed: 0 });
    assert_eq!(Rollout::new(built_in()).step(&mut offline, Duration::ZERO), Some(stop));
}

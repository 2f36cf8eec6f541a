//! Tests of what a rollout waits for besides its agents: maintenance windows and approvals.

use brokkr_api::report::Transition;
use brokkr_api::rollouts::{Gate, RolloutPolicy, Share};
use brokkr_api::tokens::Role;
use brokkr_api::windows::Opening;
use jiff::{SignedDuration, Timestamp};

use super::command::Command;
use super::policy::{Kind, resolve};
use super::survey::Member;
use super::verdict::{Contact, VersionReport};
use super::*;
use crate::domain::windows::Lane;

const NIGHT: Lane = Lane(7);

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000_000).unwrap()
}

/// Returns the lanes of an agent with the same windows as when the rollout began.
fn both(lane: Lane) -> Lanes {
    Lanes { begun: Some(lane), now: Some(lane) }
}

fn rollout(waves: Vec<Wave>) -> Rollout {
    let policy = RolloutPolicy { waves: Some(waves), soak_seconds: Some(0), ..RolloutPolicy::default() };
    Rollout::new(resolve(&[policy], Kind::Version).unwrap())
}

/// A connected agent at a place; `lane` may begin only in its window.
fn member(place: u64, lane: Option<Lane>, opening: Opening) -> Member {
    let contact = Contact::Present(None);
    let lanes = lane.map(both).unwrap_or_default();
    Member { place, in_wave: true, lanes, opening, suspended: None, released_at: None, contact, report: None }
}

fn open() -> Opening {
    Opening::Open { since: None }
}

fn shut() -> Opening {
    Opening::Shut { until: Some(now() + SignedDuration::from_hours(1)) }
}

fn healthy(member: Member) -> Member {
    let (transition, since) = (Transition::Healthy, now());
    let report =
        VersionReport { transition, since, bad_before: false, awaits_approval: false, waits_for_wave: false };
    Member { released_at: Some(now()), report: Some(report), ..member }
}

fn survey(members: &[Member]) -> Survey {
    let mut survey = Survey::default();
    members.iter().for_each(|member| survey.add(member, now()));
    survey
}

#[test]
fn h8_only_lanes_that_are_open_are_raised_and_the_others_are_waited_for() {
    let mut rollout = rollout(vec![Wave::of(Share::ALL)]);
    let all = [member(1, None, open()), member(2, Some(NIGHT), shut())];
    assert_eq!(rollout.step(&mut survey(&all), Duration::ZERO), Some(Decision::Release(1)));
    assert_eq!(rollout.clauses, [Clause { selector: None, lanes: Lanes::default(), upto: 1 }]);
    let all = [healthy(member(1, None, open())), member(2, Some(NIGHT), shut())];
    let opens_at = Some(now() + SignedDuration::from_hours(1));
    let waits = Decision::Wait(Pending::Window { agents: 1, opens_at });
    assert_eq!(rollout.step(&mut survey(&all), Duration::ZERO), Some(waits), "not complete");
    let all = [healthy(member(1, None, open())), member(2, Some(NIGHT), open())];
    assert_eq!(rollout.step(&mut survey(&all), Duration::ZERO), Some(Decision::Release(1)));
    assert!(rollout.clauses.contains(&Clause { selector: None, lanes: both(NIGHT), upto: 2 }));
}

#[test]
fn h8_a_window_that_is_taken_from_some_agents_releases_nothing_to_the_others() {
    let mut rollout = rollout(vec![Wave::of(Share::ALL)]);
    let freed = Member { lanes: Lanes { now: None, ..both(NIGHT) }, ..member(2, None, open()) };
    let all = [member(1, Some(NIGHT), shut()), freed.clone()];
    assert_eq!(rollout.step(&mut survey(&all), Duration::ZERO), Some(Decision::Release(1)));
    assert!(rollout.clauses.iter().all(|clause| clause.lanes != both(NIGHT)), "{:?}", rollout.clauses);
    assert!(rollout.clauses.contains(&Clause { selector: None, lanes: freed.lanes, upto: 2 }));
    let all = [member(1, Some(NIGHT), shut()), healthy(freed)];
    let decision = rollout.step(&mut survey(&all), Duration::ZERO);
    assert!(matches!(decision, Some(Decision::Wait(Pending::Window { agents: 1, .. }))), "{decision:?}");
}

#[test]
fn h8_an_agent_that_may_not_begin_what_was_released_to_it_is_owed_and_has_time_when_it_may() {
    let released = |opening| Member { released_at: Some(now()), ..member(1, Some(NIGHT), opening) };
    let later = now() + SignedDuration::from_hours(1);
    let mut closed = Survey::default();
    closed.add(&released(shut()), later);
    assert_eq!((closed.figures.owed, closed.figures.bad), (1, 0));
    let mut opened = Survey::default();
    let contact = Contact::Present(Some(later));
    opened.add(&Member { contact, ..released(Opening::Open { since: Some(later) }) }, later);
    assert_eq!((opened.figures.in_flight, opened.figures.bad), (1, 0));
}

#[test]
fn a_wave_of_selected_agents_goes_on_without_those_that_may_not_begin_unless_it_has_proven_nothing() {
    let ring = Wave { selector: "ring=0".parse().ok(), ..Wave::of(Share::ALL) };
    let outside = Member { in_wave: false, ..member(3, None, open()) };
    let mut none_open = rollout(vec![ring.clone()]);
    let all = [member(1, Some(NIGHT), shut()), outside.clone()];
    let decision = none_open.step(&mut survey(&all), Duration::ZERO);
    assert!(matches!(decision, Some(Decision::Wait(Pending::Window { agents: 1, .. }))), "{decision:?}");
    let mut one_proven = rollout(vec![ring]);
    let all = [healthy(member(2, None, open())), member(1, Some(NIGHT), shut()), outside];
    assert_eq!(one_proven.step(&mut survey(&all), Duration::ZERO), Some(Decision::BeginWave));
}

#[test]
fn a_gate_is_answered_even_if_there_is_no_agent_or_every_agent_has_the_version() {
    let gate = Gate { approvals: 1, role: Role::Owner, not_author: false, timeout_seconds: None };
    let gated = Wave { gate: Some(gate), ..Wave::of(Share::ALL) };
    let mut rollout = rollout(vec![Wave::of(Share::Count(1)), gated]);
    let decision = rollout.step(&mut survey(&[]), Duration::ZERO);
    assert_eq!(decision, Some(Decision::Wait(Pending::Healthy { needed: 1 })), "targets may be set later");
    let one = [member(1, None, open())];
    assert_eq!(rollout.step(&mut survey(&one), Duration::ZERO), Some(Decision::Release(1)));
    // The other members were deactivated, so this is every agent.
    let every = [healthy(member(1, None, open()))];
    let waits = Decision::Wait(Pending::Gate { given: 0, needed: 1 });
    assert_eq!(rollout.step(&mut survey(&every), Duration::ZERO), Some(waits));
    let figures = survey(&every).figures;
    rollout.command(Command::Approve { by: "ana".to_owned() }, &figures).unwrap();
    assert_eq!(rollout.step(&mut survey(&every), Duration::ZERO), Some(Decision::Complete));
}

#[test]
fn a_gate_holds_a_wave_back_while_bad_agents_still_stop_it() {
    let gate = Gate { approvals: 2, role: Role::Owner, not_author: false, timeout_seconds: Some(60) };
    let gated = Wave { gate: Some(gate), ..Wave::of(Share::ALL) };
    let mut rollout = rollout(vec![Wave::of(Share::Count(1)), gated]);
    let mut all = [healthy(member(1, None, open())), member(2, None, open())];
    let waits = |given| Some(Decision::Wait(Pending::Gate { given, needed: 2 }));
    let second = Duration::from_secs(1);
    assert_eq!(rollout.step(&mut survey(&all), second), waits(0));
    assert_eq!((rollout.state, rollout.wave), (RolloutState::Gated, 1));
    let approve = |by: &str| Command::Approve { by: by.to_owned() };
    let figures = survey(&all).figures;
    rollout.command(approve("ana"), &figures).unwrap();
    assert_eq!(rollout.step(&mut survey(&all), second), waits(1));
    let (mut late, mut skipped, mut bad) = (rollout.clone(), rollout.clone(), rollout.clone());

    rollout.command(approve("ben"), &figures).unwrap();
    assert_eq!(rollout.step(&mut survey(&all), second), Some(Decision::Release(1)));

    let stop = Decision::Stop(StopReason::GateTimedOut { wave: 2 });
    assert_eq!(late.step(&mut survey(&all), Duration::from_secs(60)), Some(stop));
    skipped.command(Command::Skip, &figures).unwrap();
    assert_eq!(skipped.step(&mut survey(&all), second), Some(Decision::Release(1)));

    let report = all[0].report.as_mut().unwrap();
    report.transition = Transition::Failed;
    let stop = Decision::Stop(StopReason::TooManyBad { bad: 1, allowed: 0 });
    assert_eq!(bad.step(&mut survey(&all), second), Some(stop));
}

//! Example histories of a group, and properties of any history.

use proptest::prelude::*;

use super::*;

const HOUR: u64 = 3600;
const TIMING: Timing = Timing {
    gather: Duration::from_secs(30),
    settle: Duration::from_secs(300),
    interval: Duration::from_secs(HOUR),
};

fn at(second: u64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + i64::try_from(second).unwrap()).unwrap()
}

/// Looks at the group every ten seconds. `failing` are the times from which so many agents fail. Returns the messages with
/// their times and numbers of agents.
fn run(failing: &[(u64, u32)], until: u64) -> Vec<(u64, &'static str, u32)> {
    let (mut group, mut messages) = (Group::default(), Vec::new());
    for second in (0..=until).step_by(10) {
        let agents = failing.iter().rev().find(|(from, _)| *from <= second).map_or(0, |(_, agents)| *agents);
        let (next, notice) = step(group, agents, at(second), TIMING, Uuid::nil());
        group = next;
        messages.extend(notice.map(|notice| match notice {
            Notice::Opened(alert) => (second, "opened", alert.agents),
            Notice::Updated { alert, .. } => (second, "updated", alert.agents),
            Notice::Resolved(alert) => (second, "resolved", alert.agents),
        }));
    }
    messages
}

#[test]
fn f7_many_agents_are_one_message_and_their_recovery_is_one() {
    let failing = [(0, 1), (10, 900), (20, 3000), (5000, 1200), (5010, 0)];
    assert_eq!(run(&failing, 20_000), [(30, "opened", 3000), (5310, "resolved", 3000)]);
}

#[test]
fn f7_an_alert_that_reaches_further_agents_is_updated_once_in_an_interval() {
    let failing: Vec<(u64, u32)> =
        (0..100).map(|minute| (minute * 60, 10 + u32::try_from(minute).unwrap())).collect();
    let messages = run(&failing, 7_000);
    assert_eq!(messages, [(30, "opened", 10), (3630, "updated", 70)]);
    // Fewer agents, or the same ones again, are no news.
    assert_eq!(run(&[(0, 50), (600, 10), (4000, 50)], 9_000), [(30, "opened", 50)]);
}

#[test]
fn f7_what_is_over_before_its_message_is_due_is_never_sent() {
    assert_eq!(run(&[(0, 5), (20, 0)], 9_000), []);
    // Over, and back within the settle time: one alert.
    assert_eq!(run(&[(0, 5), (100, 0), (350, 5)], 9_000), [(30, "opened", 5)]);
    // Back within the interval: it is reported when the interval is over, unless it has passed by then.
    let history = [(0, 5), (100, 0), (600, 5), (1000, 0), (2000, 5)];
    assert_eq!(run(&history, 9_000), [(30, "opened", 5), (400, "resolved", 5), (3630, "opened", 5)]);
}

#[test]
fn f7_a_flapping_agent_causes_at_most_two_messages_an_hour() {
    for period in [20, 60, 310, 400, 700, 1500, 3000] {
        let flapping: Vec<(u64, u32)> =
            (0..24 * HOUR / period).map(|turn| (turn * period, u32::try_from(turn % 2).unwrap())).collect();
        let messages = run(&flapping, 24 * HOUR);
        for (first, ..) in &messages {
            let within =
                messages.iter().filter(|(second, ..)| (*first..first + HOUR).contains(second)).count();
            assert!(within <= 2, "every {period} s: {messages:?}");
        }
    }
}

proptest! {
    #[test]
    fn f7_in_any_history_messages_alternate_are_spaced_and_the_last_one_is_true(
        changes in prop::collection::vec((0u64..2000, 0u32..4), 0..40),
    ) {
        let mut now = 0;
        let failing: Vec<(u64, u32)> =
            changes.into_iter().map(|(pause, agents)| { now += pause; (now, agents) }).collect();
        // Then nothing changes for long enough.
        let messages = run(&failing, now + 3 * HOUR);
        let mut open = false;
        for (_, what, agents) in &messages {
            prop_assert_eq!(*what == "opened", !open, "{:?}", &messages);
            prop_assert!(*agents > 0);
            open = *what != "resolved";
        }
        let last = failing.last().map_or(0, |(_, agents)| *agents);
        prop_assert_eq!(open, last > 0, "{:?}", &messages);
        for is_end in [false, true] {
            let times: Vec<u64> = messages.iter().filter(|(_, what, _)| (*what == "resolved") == is_end).map(|(second, ..)| *second).collect();
            prop_assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= HOUR), "{:?}", &messages);
        }
    }

    #[test]
    fn f7_a_state_that_is_stored_and_read_between_any_two_steps_sends_nothing_twice(agents in 1u32..9) {
        let (gathering, none) = step(Group::default(), agents, at(0), TIMING, Uuid::nil());
        prop_assert_eq!(none, None);
        let (open, notice) = step(gathering, agents, at(30), TIMING, Uuid::nil());
        prop_assert!(matches!(notice, Some(Notice::Opened(_))));
        // Whoever reads the state next, and whenever.
        for second in 30..3600 {
            prop_assert_eq!(step(open, agents, at(second), TIMING, Uuid::max()), (open, None));
        }
    }
}

#[test]
fn a_quiet_group_is_forgotten_when_nothing_has_to_wait_for_it() {
    let quiet = Group { problem_at: Some(at(0)), resolved_at: Some(at(100)), ..Group::default() };
    assert!(!is_forgotten(&quiet, at(HOUR), TIMING));
    assert!(is_forgotten(&quiet, at(HOUR + 100), TIMING));
    let gathering = Group { phase: Phase::Gathering { since: at(0) }, ..Group::default() };
    assert!(!is_forgotten(&gathering, at(99 * HOUR), TIMING));
}

//! What agents are offered, what their reports count as, and which upgrades exclude each other.

use brokkr_api::Selector;
use brokkr_api::report::Transition;
use brokkr_api::rollouts::RolloutPolicy;
use brokkr_api::upgrades::{NewAgentUpgrade, UpgradeReason, UpgradeStep};
use jiff::SignedDuration;

use super::report::{ReportedStep, is_offered_again, version_report};
use super::wanted::{check, is_version, may_overlap, policy};
use super::*;
use crate::domain::facts::AgentUpgradeFacts;
use crate::domain::fixtures;
use crate::domain::labels::Label;

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000_000 + second).unwrap()
}

/// An agent with this label `ring`, and upgrades allowed.
fn agent(ring: &str) -> AgentFacts {
    let upgrade = AgentUpgradeFacts { allowed_since: Some(time(0)), ..AgentUpgradeFacts::default() };
    let labels = [Label::new("ring", ring)].into_iter().collect();
    AgentFacts { labels, upgrade: upgrade.boxed(), ..fixtures::agent() }
}

fn reported(agent: &AgentFacts, id: i64, has_ended: bool) -> AgentFacts {
    let upgrade = AgentUpgradeFacts { reported: Some(UpgradeId(id)), has_ended, ..agent.upgrade() };
    AgentFacts { upgrade: upgrade.boxed(), ..agent.clone() }
}

/// An upgrade that is offered to all agents with these labels.
fn upgrade(id: i64, selector: Option<&str>) -> UpgradeFacts {
    UpgradeFacts {
        id: UpgradeId(id),
        image: "registry.example/agent@sha256:00".to_owned(),
        version: format!("1.0.{id}"),
        selector: selector.map(|selector| selector.parse().unwrap()),
        seed: seed(None),
        state: RolloutState::Running,
        clauses: vec![Clause { selector: None, lanes: Lanes::default(), upto: u64::MAX }],
        revision: 1,
        windows: Windows::default(),
    }
}

fn target_of(agent: &AgentFacts, upgrades: &[UpgradeFacts]) -> Option<i64> {
    target(agent, upgrades, &Windows::default()).map(|upgrade| upgrade.id.0)
}

#[test]
fn the_newest_upgrade_that_is_released_to_an_agent_is_its_target() {
    let upgrades = [
        upgrade(1, None),
        upgrade(2, Some("ring=0")),
        UpgradeFacts { clauses: Vec::new(), ..upgrade(3, None) },
    ];
    assert_eq!(target_of(&agent("0"), &upgrades), Some(2));
    assert_eq!(target_of(&agent("1"), &upgrades), Some(1));
    assert_eq!(target_of(&AgentFacts { upgrade: None, ..agent("0") }, &upgrades), None, "not allowed");
    assert_eq!(target_of(&AgentFacts { status: AgentStatus::Inactive, ..agent("0") }, &upgrades), None);
}

#[test]
fn an_upgrade_is_offered_up_to_its_mark_and_once_completed_to_all() {
    let one = agent("0");
    let at = place(one.id, seed(None));
    let up_to = |upto, state| UpgradeFacts {
        clauses: vec![Clause { selector: None, lanes: Lanes::default(), upto }],
        state,
        ..upgrade(1, None)
    };
    assert_eq!(target_of(&one, &[up_to(at, RolloutState::Soaking)]), Some(1));
    assert_eq!(target_of(&one, &[up_to(at - 1, RolloutState::Running)]), None);
    assert_eq!(target_of(&one, &[up_to(0, RolloutState::Completed)]), Some(1));
    for state in
        [RolloutState::Paused, RolloutState::Stopped, RolloutState::Aborted, RolloutState::Superseded]
    {
        assert_eq!(target_of(&one, &[up_to(at, state)]), None, "{state} takes the offer back");
    }
}

#[test]
fn an_agent_is_asked_until_it_begins_and_gets_the_offer_until_it_ends() {
    let (upgrades, windows) = ([upgrade(1, None), upgrade(2, None)], Windows::default());
    let ids = |agent: &AgentFacts| {
        let id = |one: Option<&UpgradeFacts>| one.map(|one| one.id.0);
        (id(wanted(agent, &upgrades, &windows)), id(offered(agent, &upgrades, &windows)))
    };
    let one = agent("0");
    assert_eq!(ids(&one), (Some(2), Some(2)));
    assert_eq!(ids(&reported(&one, 1, true)), (Some(2), Some(2)), "the end of an older one");
    assert_eq!(ids(&reported(&one, 2, false)), (None, Some(2)));
    assert_eq!(ids(&reported(&one, 2, true)), (None, None));
    assert_eq!(ids(&reported(&one, 3, true)), (None, None), "a newer one, which was withdrawn");
}

#[test]
fn freezes_of_the_installation_hold_for_upgrades_and_those_of_projects_do_not() {
    use brokkr_api::WindowId;
    use brokkr_api::windows::{Freeze, WindowRule};

    use crate::domain::windows::WindowFacts;
    let freeze = |project: Option<&str>| {
        let rule = WindowRule::Freeze(Freeze { from: time(0), until: time(60), reason: String::new() });
        let (id, selector) = (WindowId::generate(), Selector::everything());
        WindowFacts::new(id, "freeze".into(), project.map(ToOwned::to_owned), selector, rule)
    };
    let of_all = Windows::new(vec![freeze(None)]);
    let of_project = Windows::new(vec![freeze(Some("shop"))]);
    assert!(matches!(opening(&agent("0"), &of_all, time(10)), Opening::Shut { .. }));
    assert!(matches!(opening(&agent("0"), &of_all, time(70)), Opening::Open { .. }));
    assert!(matches!(opening(&agent("0"), &of_project, time(10)), Opening::Open { .. }));
    // A freeze that is set later is a lane of its own.
    assert_eq!(target_of(&agent("0"), &[upgrade(1, None)]), Some(1));
    assert!(!upgrade(1, None).reaches(&agent("0"), &of_all));
}

fn step(step: UpgradeStep, reason: Option<UpgradeReason>) -> ReportedStep {
    ReportedStep { step, version: "1.0.1".to_owned(), reason, reported_at: time(5), received_at: time(6) }
}

#[test]
fn late_and_repeated_reports_are_no_news() {
    use UpgradeStep::{Begun, Reconciled, Refused, Restored, TakenOver};
    for (last, next, later, is_news) in [
        (Begun, TakenOver, 0, true),
        (Begun, Restored, 0, true),
        (Begun, Begun, 1, false),
        (TakenOver, Begun, 1, false),
        (TakenOver, Reconciled, -1, true),
        (Reconciled, Begun, 1, false),
        (Reconciled, Restored, 1, true),
        (Reconciled, Restored, -1, false),
        (Restored, Begun, 0, false),
        (Restored, Begun, 1, true),
        (Refused, Refused, 0, false),
        (Refused, Refused, 1, true),
        (Refused, Reconciled, 1, true),
    ] {
        let at = time(5) + SignedDuration::from_secs(later);
        assert_eq!(step(last, None).precedes(next, at), is_news, "{next} after {last}");
    }
}

#[test]
fn reports_count_as_those_about_a_version() {
    use UpgradeStep::{Begun, Reconciled, Refused, Restored, TakenOver};
    let differs = UpgradeReason::InstallationDiffers { command: "brokkr-agent install".to_owned() };
    let not_started = UpgradeReason::NotStarted { message: "no such image".to_owned() };
    let transition = |report: &ReportedStep, version, has| {
        version_report(Some(report), version, has).map(|report| report.transition)
    };
    assert_eq!(transition(&step(Begun, None), "1.0.1", false), Some(Transition::Applied));
    assert_eq!(transition(&step(TakenOver, None), "1.0.1", true), Some(Transition::Applied));
    assert_eq!(transition(&step(Reconciled, None), "1.0.1", true), Some(Transition::Healthy));
    assert_eq!(
        transition(&step(Reconciled, None), "1.0.2", false),
        Some(Transition::Applied),
        "another version"
    );
    assert_eq!(transition(&step(Restored, Some(not_started)), "1.0.1", false), Some(Transition::Failed));
    assert_eq!(transition(&step(Restored, Some(differs)), "1.0.1", false), None, "the owner has to act");
    assert_eq!(transition(&step(Refused, None), "1.0.1", false), None);
    assert_eq!(
        transition(&step(Refused, None), "1.0.1", true),
        Some(Transition::Healthy),
        "the owner has acted"
    );
    assert_eq!(version_report(None, "1.0.1", false), None);
    let by_hand = version_report(None, "1.0.1", true).map(|report| report.transition);
    assert_eq!(by_hand, Some(Transition::Healthy), "it had the version already");
}

#[test]
fn what_was_interrupted_or_not_allowed_is_offered_again_and_what_failed_is_not() {
    let not_allowed = UpgradeReason::NotAllowed { allowed: None };
    let lower = UpgradeReason::LowerVersion { current: "2.0.0".to_owned() };
    assert!(is_offered_again(UpgradeStep::Begun, None));
    assert!(is_offered_again(UpgradeStep::Refused, Some(&not_allowed)));
    assert!(!is_offered_again(UpgradeStep::Refused, Some(&lower)));
    assert!(!is_offered_again(UpgradeStep::Restored, Some(&not_allowed)));
    assert!(!is_offered_again(UpgradeStep::Reconciled, None));
}

#[test]
fn upgrades_for_different_values_of_a_label_exclude_each_other() {
    let overlap = |one: &str, other: &str| {
        let [one, other] = [one, other].map(|text| text.parse::<Selector>().unwrap());
        let both = [may_overlap(Some(&one), Some(&other)), may_overlap(Some(&other), Some(&one))];
        assert_eq!(both[0], both[1]);
        both[0]
    };
    assert!(!overlap("env=dev", "env=prod"));
    assert!(!overlap("env in (dev,test)", "env notin (dev,test)"));
    assert!(!overlap("!env", "env=dev"));
    assert!(overlap("env in (dev,test)", "env=test,site=shop"));
    assert!(overlap("env=dev", "site=shop"));
    assert!(overlap("*", "env=dev"));
    assert!(may_overlap(None, Some(&"env=dev".parse().unwrap())));
}

#[test]
fn an_image_needs_a_digest_and_a_version_three_numbers() {
    let image = format!("registry.example:5000/brokkr/agent@sha256:{}", "0a".repeat(32));
    let request = |image: &str, version: &str| NewAgentUpgrade {
        image: image.to_owned(),
        version: version.to_owned(),
        selector: None,
        policy: RolloutPolicy::default(),
    };
    check(&request(&image, "1.2.3")).unwrap();
    let upper = image.to_uppercase();
    for bad in ["agent:1.2.3", "@sha256:00", "agent@sha256:00", &upper, &format!("a b{image}")] {
        assert!(check(&request(bad, "1.2.3")).is_err(), "{bad}");
    }
    for good in ["0.0.1", "1.2.3-rc.1", "1.2.3-rc.1+build.5", "10.20.30+x"] {
        assert!(is_version(good), "{good}");
    }
    for unordered in ["1.2.3-rc.1", "1.2.3+build.5", "1.2.100000"] {
        assert!(check(&request(&image, unordered)).is_err(), "the fence of agents refuses {unordered}");
    }
    for bad in
        ["", "1", "1.2", "1.2.3.4", "01.2.3", "v1.2.3", "1.2.x", "1.2.3-", "1.2.3-a..b", "1.2.3+", "latest"]
    {
        assert!(!is_version(bad), "{bad}");
    }
    let at_once = RolloutPolicy { staged: Some(false), ..RolloutPolicy::default() };
    assert!(check(&NewAgentUpgrade { policy: at_once.clone(), ..request(&image, "1.2.3") }).is_err());
    assert_eq!(policy(&RolloutPolicy::default(), &at_once).unwrap().waves.len(), 5, "still in waves");
}

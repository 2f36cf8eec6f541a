//! Which agents a step of an upgrade wakes, and what its agents count as.

use std::collections::{HashMap, HashSet};

use brokkr_api::AgentId;
use brokkr_api::agents::AgentStatus;
use brokkr_api::ids::Checksum;
use brokkr_api::rollouts::RolloutState;
use brokkr_api::upgrades::{UpgradeReason, UpgradeStep};
use jiff::SignedDuration;

use super::*;
use crate::domain::facts::{AgentUpgradeFacts, SessionFacts};
use crate::domain::grants::Rules;
use crate::domain::labels::LabelSet;
use crate::domain::release::Clause;
use crate::domain::rollout::survey::{Contacts, Raises};
use crate::domain::upgrades::seed;
use crate::domain::windows::{Lanes, Windows};
use crate::index::Changes;

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000_000).unwrap()
}

fn agent(id: AgentId, number: usize, is_allowed: bool) -> AgentFacts {
    let allowed_since = is_allowed.then_some(Timestamp::UNIX_EPOCH);
    AgentFacts {
        id,
        name: format!("agent-{number}"),
        status: AgentStatus::Active,
        labels: LabelSet::default(),
        labels_changed_at: Timestamp::UNIX_EPOCH,
        public_key: [0; 32],
        session: SessionFacts::default(),
        new_key_wanted: false,
        upgrade: AgentUpgradeFacts { allowed_since, ..AgentUpgradeFacts::default() }.boxed(),
        holds: Vec::new(),
        holds_digest: Checksum([0; 32]),
        unconfirmed: Box::default(),
    }
}

fn upgrade(upto: u64, revision: i64) -> UpgradeFacts {
    UpgradeFacts {
        id: UpgradeId(7),
        image: String::new(),
        version: "1.1.0".to_owned(),
        selector: None,
        seed: seed(None),
        state: RolloutState::Running,
        clauses: vec![Clause { selector: None, lanes: Lanes::default(), upto }],
        revision,
        windows: Windows::default(),
    }
}

fn rules(upgrade: UpgradeFacts) -> Changes {
    Changes { rules: Some(Rules { upgrades: vec![upgrade], ..Rules::default() }), ..Changes::default() }
}

/// Fifty agents, of which every fifth does not allow upgrades, in the order of the upgrade.
fn fleet() -> (Snapshot, Vec<AgentFacts>) {
    let mut ids: Vec<AgentId> = (0..50).map(|_| AgentId::generate()).collect();
    ids.sort_by_key(|id| place(*id, seed(None)));
    let agents = ids.into_iter().enumerate().map(|(number, id)| agent(id, number, number % 5 > 0));
    let agents: Vec<AgentFacts> = agents.collect();
    (Snapshot::new(Changes { agents: agents.clone(), ..Changes::default() }), agents)
}

#[test]
fn a_step_wakes_exactly_the_agents_that_it_offers_the_upgrade_to() {
    let (mut snapshot, agents) = fleet();
    let at = |number: usize| place(agents[number].id, seed(None));
    assert_eq!(snapshot.apply(rules(upgrade(0, 1))).len(), 0);
    let (mut before, mut revision) = (0, 2);
    for upto in [10, 11, 40, 49] {
        let woken = snapshot.apply(rules(upgrade(at(upto), revision)));
        let is_new = |(number, agent): &(usize, &AgentFacts)| {
            (before..=upto).contains(number) && agent.upgrade().allowed_since.is_some()
        };
        let expected: HashSet<AgentId> =
            agents.iter().enumerate().filter(is_new).map(|(_, agent)| agent.id).collect();
        let woken: HashSet<AgentId> = woken.iter().map(|slot| snapshot.at(slot).id).collect();
        assert_eq!(woken, expected, "up to {upto}");
        (before, revision) = (upto + 1, revision + 1);
    }
    let stopped = UpgradeFacts { state: RolloutState::Stopped, ..upgrade(at(49), revision) };
    assert_eq!(snapshot.apply(rules(stopped)).len(), 0, "what is taken back wakes nobody");
    assert!(agents.iter().all(|agent| snapshot.wanted_upgrade(agent).is_none()));
}

#[test]
fn agents_count_by_what_they_report_and_those_that_cannot_begin_are_owed() {
    let (mut snapshot, agents) = fleet();
    let upto = place(agents[9].id, seed(None));
    snapshot.apply(rules(upgrade(upto, 1)));
    let released: Vec<&AgentFacts> =
        agents[..10].iter().filter(|agent| agent.upgrade().allowed_since.is_some()).collect();
    let mut raises = Raises::default();
    let at = now() - SignedDuration::from_mins(1);
    raises.push(Clause { selector: None, lanes: Lanes::default(), upto }, at);
    let reported = |step, reason| ReportedStep {
        step,
        version: "1.1.0".to_owned(),
        reason,
        reported_at: now(),
        received_at: now(),
    };
    let reports = HashMap::from([
        (released[0].id, reported(UpgradeStep::Reconciled, None)),
        (released[1].id, reported(UpgradeStep::Restored, None)),
        (released[2].id, reported(UpgradeStep::Refused, Some(UpgradeReason::NotAllowed { allowed: None }))),
        (released[3].id, reported(UpgradeStep::Begun, None)),
    ]);
    let contacts = Contacts {
        absent: HashMap::from([(released[4].id, Contact::Silent(Some(now())))]),
        ..Contacts::default()
    };
    let at_version = HashSet::from([released[5].id, released[4].id]);
    let evidence = UpgradeEvidence { raises, reports, at_version, contacts: &contacts, watched_since: at };
    let id = UpgradeId(7);
    assert_eq!(snapshot.survey_upgrade((id, 2), None, &evidence, now()), None, "this index is behind");
    let survey = snapshot.survey_upgrade((id, 1), None, &evidence, now()).expect("it is known");
    let figures = survey.figures;
    assert_eq!((figures.members, figures.released), (50, 10));
    assert_eq!(figures.healthy, 2, "one has reconciled, and one had the version");
    assert_eq!(figures.bad, 2, "one was restored, and one is silent since the release");
    assert_eq!(
        figures.owed,
        1 + 10 - released.len() as u64,
        "one has refused, the others do not allow upgrades"
    );
    assert_eq!(figures.in_flight, released.len() as u64 - 5);
    let waiting = agents[10..].iter().filter(|agent| agent.upgrade().allowed_since.is_some()).count();
    assert_eq!((survey.wave.candidates, survey.candidates.len()), (waiting as u64, waiting));
}

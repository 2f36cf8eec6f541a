//! The snapshot at its design size: code that does not scale fails here.

use std::time::Instant;

use brokkr_api::ids::Checksum;
use brokkr_api::{InstallationId, SequenceId};
use jiff::Timestamp;

use super::*;
use crate::domain::envelope::{encode, envelope};
use crate::domain::facts::{ObjectFacts, SelectorTarget, SessionFacts};
use crate::domain::labels::Label;
use crate::index::{Freshness, Index, Waiting};

fn agent(number: usize) -> AgentFacts {
    let labels = [("region", number % 50), ("site", number % 5_000)];
    AgentFacts {
        id: AgentId::generate(),
        name: format!("agent-{number}"),
        status: AgentStatus::Active,
        labels: labels.into_iter().map(|(key, value)| Label::new(key, &value.to_string())).collect(),
        labels_changed_at: Timestamp::UNIX_EPOCH,
        public_key: [0; 32],
        session: SessionFacts::default(),
        new_key_wanted: false,
        upgrade: None,
        holds: Vec::new(),
        holds_digest: Checksum([0; 32]),
        unconfirmed: Box::default(),
    }
}

fn stack(number: usize, sequence: i64) -> StackFacts {
    let object = ObjectFacts {
        sequence_id: SequenceId(sequence),
        checksum: Checksum([1; 32]),
        parsed_digest: Checksum([2; 32]),
        is_deletion_marker: false,
        keeps_resources: false,
        is_urgent: false,
        wave_wait_seconds: None,
        resources: 1,
        published_at: Timestamp::UNIX_EPOCH,
    };
    let mut stack = StackFacts::new("default".into(), StackId::generate(), format!("stack-{number}"))
        .with_base(Some(object));
    let selector = format!("site={},region", number % 5_000).parse().expect("a selector");
    stack.selectors.push(SelectorTarget { selector, since: Timestamp::UNIX_EPOCH });
    stack
}

/// The grants of a new installation.
fn no_grants() -> Rules {
    Rules { unrestricted: ["default".to_owned()].into(), ..Rules::default() }
}

/// Changes `rounds` stacks one by one, and prints the average time of a change and of an affected envelope.
fn measure(agents: usize, stacks: usize, rounds: usize) {
    let facts: Vec<StackFacts> = (0..stacks).map(|number| stack(number, number as i64)).collect();
    let changed: Vec<StackFacts> = facts.iter().take(rounds).cloned().collect();
    let fleet = (0..agents).map(agent).collect();
    let started = Instant::now();
    let mut snapshot = Snapshot::new(Changes {
        agents: fleet,
        stacks: facts,
        rules: Some(no_grants()),
        ..Changes::default()
    });
    let loaded = started.elapsed();
    let started = Instant::now();
    let mut affected = RoaringBitmap::new();
    for (number, facts) in changed.into_iter().enumerate() {
        let id = facts.id;
        let mut facts = stack(number, (stacks + number) as i64);
        facts.id = id;
        let changed_agents = snapshot.apply(Changes { stacks: vec![facts], ..Changes::default() });
        assert_eq!(changed_agents.len(), agents as u64 / 5_000, "only the agents of one site");
        affected |= changed_agents;
    }
    let apply = started.elapsed() / u32::try_from(rounds).expect("few");
    let started = Instant::now();
    for slot in &affected {
        let facts = snapshot.at(slot);
        let bytes =
            encode(&envelope(InstallationId(facts.id.0), facts, snapshot.candidates(facts), None)).bytes;
        assert!(bytes.len() > 100);
    }
    let envelopes = started.elapsed() / u32::try_from(affected.len()).expect("few");
    println!(
        "{agents} agents, {stacks} stacks: loaded in {loaded:?}, a change {apply:?}, an envelope {envelopes:?}"
    );
}

#[test]
fn a_change_visits_only_affected_agents() {
    measure(10_000, 5_000, 100);
}

/// The design sizes; takes a minute in a debug build. `tests/broker/sizes.rs` tests them with a real
/// database.
#[test]
#[ignore = "takes a minute"]
fn a_change_among_a_million_agents_and_a_hundred_thousand_stacks_visits_only_affected_agents() {
    measure(1_000_000, 100_000, 20);
}

#[test]
fn a_change_for_10_of_50_000_waiting_agents_wakes_10() {
    let seen = Freshness::unread();
    let index = Arc::new(Index::new(InstallationId::generate()));
    let agents: Vec<AgentFacts> = (0..50_000).map(agent).collect();
    let ids: Vec<AgentId> = agents.iter().map(|agent| agent.id).collect();
    let stacks = vec![stack(17, 1)];
    let mut newer = stack(17, 2);
    newer.id = stacks[0].id;
    index.replace(
        Snapshot::new(Changes { agents, stacks, rules: Some(no_grants()), ..Changes::default() }),
        seen,
    );
    let waiting: Vec<Waiting> = ids.iter().map(|agent| index.wait(*agent)).collect();
    assert_eq!((index.waiting(), index.woken()), (50_000, 0));
    index.apply(Changes { stacks: vec![newer], ..Changes::default() }, seen);
    assert_eq!(index.woken(), 10, "the agents of one site");
    // A session and holds affect only the agent itself.
    let mut restarted = index.snapshot().agent(ids[3]).expect("it is there").clone();
    restarted.session.count += 1;
    restarted.hold(vec![StackId::generate()], Vec::new());
    index.apply(Changes { agents: vec![restarted], ..Changes::default() }, seen);
    assert_eq!(index.woken(), 11);
    drop(waiting);
    assert_eq!(index.waiting(), 0);
}

#[test]
fn a_deleted_agent_is_in_no_list_and_its_slot_is_used_again() {
    let seen = Freshness::unread();
    let index = Arc::new(Index::new(InstallationId::generate()));
    let agents: Vec<AgentFacts> = (0..3).map(agent).collect();
    let (gone, name) = (agents[1].id, agents[1].name.clone());
    let stacks = vec![stack(1, 1)];
    index.replace(
        Snapshot::new(Changes { agents, stacks, rules: Some(no_grants()), ..Changes::default() }),
        seen,
    );
    assert!(index.envelope(gone).is_some());
    let waiting = index.wait(gone);
    index.apply(Changes { deleted_agents: vec![gone], ..Changes::default() }, seen);
    assert_eq!(index.woken(), 1, "its poll ends");
    assert!(index.envelope(gone).is_none(), "not even from the cache");
    {
        let snapshot = index.snapshot();
        assert!(snapshot.agent(gone).is_none() && snapshot.agent_named(&name).is_none());
        assert_eq!((snapshot.agents(), snapshot.everyone().len()), (2, 2));
        assert_eq!(snapshot.named_like("").len(), 2);
        assert_eq!(snapshot.with_status(AgentStatus::Active).len(), 2);
    }
    drop(waiting);
    let mut successor = agent(1);
    successor.id = AgentId::generate();
    let id = successor.id;
    index.apply(Changes { agents: vec![successor], ..Changes::default() }, seen);
    let snapshot = index.snapshot();
    assert_eq!((snapshot.agents(), snapshot.agents.len()), (3, 3));
    assert_eq!(snapshot.agent_named(&name).map(|agent| agent.id), Some(id));
}

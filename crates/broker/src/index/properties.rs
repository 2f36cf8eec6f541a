//! The picture that lived through changes is the one that is built anew, and nobody is forgotten.

use std::collections::{BTreeMap, HashMap};

use brokkr_api::agents::AgentStatus;
use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, InstallationId, Labels, SequenceId, StackId};
use jiff::Timestamp;
use proptest::prelude::*;
use uuid::Uuid;

use super::picture::{Changes, Picture};
use crate::domain::envelope::{answer, envelope};
use crate::domain::facts::{
    AgentFacts, ExplicitTarget, ObjectFacts, SelectorTarget, SessionFacts, StackFacts,
};

/// So few that changes meet.
const AGENTS: u128 = 4;
const STACKS: u128 = 5;
const SELECTORS: [&str; 7] =
    ["env=prod", "env in (dev,prod)", "env=dev,gpu", "gpu", "!gpu", "env!=prod", "*"];

fn agent_id(number: u128) -> AgentId {
    AgentId(Uuid::from_u128(number))
}

fn stack_id(number: u128) -> StackId {
    StackId(Uuid::from_u128(1000 + number))
}

fn time() -> impl Strategy<Value = Timestamp> {
    (0i64..4).prop_map(|second| Timestamp::from_second(second).expect("a time"))
}

fn labels() -> impl Strategy<Value = Labels> {
    let env = prop_oneof![Just(None), Just(Some("prod")), Just(Some("dev"))];
    (env, any::<bool>()).prop_map(|(env, gpu)| {
        let env = env.map(|value| ("env".to_owned(), value.to_owned()));
        env.into_iter().chain(gpu.then(|| ("gpu".to_owned(), String::new()))).collect()
    })
}

prop_compose! {
    fn an_agent()(
        number in 0..AGENTS,
        renamed in any::<bool>(),
        active in prop::bool::weighted(0.8),
        labels in labels(),
        labels_changed_at in time(),
        // One more than there are: agents may hold what nobody knows.
        holds in prop::collection::vec(0..=STACKS, 0..4),
    ) -> AgentFacts {
        let facts = AgentFacts {
            id: agent_id(number),
            name: format!("agent-{number}-{renamed}"),
            status: if active { AgentStatus::Active } else { AgentStatus::Inactive },
            labels,
            labels_changed_at,
            public_key: vec![0; 32],
            session: SessionFacts::default(),
            holds: Vec::new(),
            holds_digest: Checksum([0; 32]),
        };
        facts.holding(holds.into_iter().map(stack_id).collect())
    }
}

prop_compose! {
    fn a_stack()(
        number in 0..STACKS,
        deleted in prop::bool::weighted(0.3),
        targets in prop::collection::btree_map(0..AGENTS, time(), 0..3),
        selectors in prop::collection::btree_map(prop::sample::select(&SELECTORS[..]), time(), 0..3),
        newest in prop::option::weighted(0.8, (0i64..3, time())),
    ) -> StackFacts {
        let object = newest.map(|(version, published_at)| ObjectFacts {
            // No two stacks share one.
            sequence_id: SequenceId(i64::try_from(number).expect("few") * 1000 + version),
            checksum: Checksum([1; 32]),
            parsed_digest: Checksum([2; 32]),
            is_deletion_marker: deleted,
            resources: 1,
            published_at,
        });
        let mut facts = StackFacts::new("default".into(), stack_id(number), format!("stack-{number}"))
            .with_newest(object);
        facts.deleted = deleted;
        facts.targets = targets
            .into_iter()
            .map(|(agent, since)| ExplicitTarget { agent: agent_id(agent), since })
            .collect();
        facts.selectors = selectors
            .into_iter()
            .map(|(text, since)| SelectorTarget { selector: text.parse().expect("a selector"), since })
            .collect();
        facts
    }
}

/// What the database holds.
#[derive(Default)]
struct Truth {
    agents: BTreeMap<AgentId, AgentFacts>,
    stacks: BTreeMap<StackId, StackFacts>,
}

impl Truth {
    /// Stores a batch, and reads it as the tail does: what changed, and held stacks that were forgotten.
    fn take(&mut self, picture: &Picture, agents: Vec<AgentFacts>, stacks: Vec<StackFacts>) -> Changes {
        let agents: BTreeMap<_, _> = agents.into_iter().map(|agent| (agent.id, agent)).collect();
        let mut rang: Vec<StackId> = stacks.iter().map(|stack| stack.id).collect();
        self.agents.extend(agents.clone());
        self.stacks.extend(stacks.into_iter().map(|stack| (stack.id, stack)));
        rang.extend(picture.unknown_holds(agents.values()));
        rang.sort_unstable();
        rang.dedup();
        let stacks = rang.iter().filter_map(|stack| self.stacks.get(stack).cloned()).collect();
        Changes { agents: agents.into_values().collect(), stacks }
    }

    /// As a replica loads it at its start.
    fn anew(&self) -> Picture {
        let held = |stack: &StackFacts| self.agents.values().any(|agent| agent.holds(stack.id));
        let stacks = self.stacks.values().filter(|stack| !stack.deleted || held(stack)).cloned().collect();
        Picture::new(Changes { agents: self.agents.values().cloned().collect(), stacks })
    }
}

fn answers(picture: &Picture) -> HashMap<AgentId, String> {
    let agents = (0..AGENTS).filter_map(|number| picture.agent(agent_id(number)));
    agents
        .map(|agent| {
            let envelope = envelope(InstallationId(Uuid::nil()), agent, picture.candidates(agent));
            (agent.id, String::from_utf8_lossy(&answer(&envelope).bytes).into_owned())
        })
        .collect()
}

proptest! {
    #[test]
    fn changes_concern_everybody_whose_answer_they_change_and_lead_where_loading_anew_leads(
        batches in prop::collection::vec(
            (prop::collection::vec(an_agent(), 0..3), prop::collection::vec(a_stack(), 0..3)),
            1..12,
        )
    ) {
        let (mut picture, mut truth) = (Picture::default(), Truth::default());
        for (agents, stacks) in batches {
            let changes = truth.take(&picture, agents, stacks);
            let before = answers(&picture);
            let concerned = picture.apply(changes);
            let after = answers(&picture);
            for (agent, bytes) in &after {
                let changed = before.get(agent) != Some(bytes);
                prop_assert!(!changed || concerned.contains(agent), "{agent} is not told: {bytes}");
            }
            prop_assert_eq!(&after, &answers(&truth.anew()));
        }
    }
}

//! The snapshot compared with the plain functions, over random histories: changes lead to the same state as a reload, every
//! affected agent is woken, no other agent is, and counts are exact. `fleet` has the same for views.

mod fleet;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use brokkr_api::agents::AgentStatus;
use brokkr_api::envelope::Grant;
use brokkr_api::ids::Checksum;
use brokkr_api::stacks::DriftPolicy;
use brokkr_api::suspensions::Suspended;
use brokkr_api::windows::{Freeze, Weekly, WindowRule};
use brokkr_api::{AgentId, GrantId, InstallationId, Selector, SequenceId, StackId, SuspensionId, WindowId};
use jiff::Timestamp;
use proptest::prelude::*;
use uuid::Uuid;

use super::snapshot::{Changes, Snapshot};
use crate::domain::envelope::{encode, envelope};
use crate::domain::facts::{
    AgentFacts, ExplicitTarget, HealthRuleFacts, ObjectFacts, SelectorTarget, SessionFacts, StackFacts,
    SuspensionFacts,
};
use crate::domain::fixtures;
use crate::domain::grants::{GrantFacts, ProjectGrants, Rules};
use crate::domain::labels::{Label, LabelSet};
use crate::domain::release::{Clause, EarlierTargets, Release, Widening};
use crate::domain::targeting::reaches;
use crate::domain::windows::{Lane, Lanes, WindowFacts, Windows};

/// Few enough that changes overlap.
const AGENTS: u128 = 4;
const STACKS: u128 = 5;
const PROJECTS: [&str; 2] = ["default", "shop"];
const SELECTORS: [&str; 8] =
    ["env=prod", "env in (dev,prod)", "env=dev,gpu", "gpu", "!gpu", "env!=prod", "*", "env,!gpu"];

fn agent_id(number: u128) -> AgentId {
    AgentId(Uuid::from_u128(number))
}

fn stack_id(number: u128) -> StackId {
    StackId(Uuid::from_u128(1000 + number))
}

fn time() -> impl Strategy<Value = Timestamp> {
    (0i64..4).prop_map(|second| Timestamp::from_second(second).expect("a time"))
}

fn a_selector() -> impl Strategy<Value = Selector> {
    prop::sample::select(&SELECTORS[..]).prop_map(|text| text.parse().expect("a selector"))
}

fn releases() -> impl Strategy<Value = Vec<Clause>> {
    let upto = prop_oneof![Just(0), any::<u64>(), Just(u64::MAX)];
    let lanes = (a_lane(), a_lane()).prop_map(|(begun, now)| Lanes { begun, now });
    let lanes = prop_oneof![2 => Just(Lanes::default()), 1 => lanes];
    let clause = (prop::option::of(a_selector()), lanes, upto);
    let clause = clause.prop_map(|(selector, lanes, upto)| Clause { selector, lanes, upto });
    prop::collection::vec(clause, 0..4)
}

/// Returns a lane that agents may be in.
fn a_lane() -> impl Strategy<Value = Option<Lane>> {
    let agent = fixtures::agent();
    prop::collection::vec(a_rule(), 0..3).prop_map(move |rules| {
        let selector: Selector = "*".parse().expect("a selector");
        let window = |(number, rule): (u128, WindowRule)| {
            let id = WindowId(Uuid::from_u128(number));
            WindowFacts::new(id, format!("window-{number}"), None, selector.clone(), rule)
        };
        Windows::new((0..).zip(rules).map(window).collect()).lane(&agent, PROJECTS[0])
    })
}

fn windows() -> impl Strategy<Value = Windows> {
    prop::collection::vec(a_window(), 0..3).prop_map(|windows| {
        let by_name: BTreeMap<String, WindowFacts> =
            windows.into_iter().map(|window| (window.name.clone(), window)).collect();
        Windows::new(by_name.into_values().collect())
    })
}

fn had() -> impl Strategy<Value = EarlierTargets> {
    let agents = prop::collection::btree_set(0..AGENTS, 0..3);
    let selectors = prop::collection::vec(a_selector(), 0..2);
    (agents, selectors).prop_map(|(agents, selectors)| EarlierTargets {
        agents: agents.into_iter().map(agent_id).collect(),
        selectors,
    })
}

fn labels() -> impl Strategy<Value = LabelSet> {
    let env = prop_oneof![Just(None), Just(Some("prod")), Just(Some("dev"))];
    (env, any::<bool>()).prop_map(|(env, gpu)| {
        let env = env.map(|value| Label::new("env", value));
        env.into_iter().chain(gpu.then(|| Label::new("gpu", ""))).collect()
    })
}

prop_compose! {
    fn an_agent()(
        number in 0..AGENTS,
        renamed in any::<bool>(),
        active in prop::bool::weighted(0.8),
        labels in labels(),
        labels_changed_at in time(),
        count in 0i64..2,
        // One more than exist: agents may hold unknown stacks.
        holds in prop::collection::vec(0..=STACKS, 0..4),
    ) -> AgentFacts {
        let facts = AgentFacts {
            id: agent_id(number),
            name: format!("agent-{number}-{renamed}"),
            status: if active { AgentStatus::Active } else { AgentStatus::Inactive },
            labels,
            labels_changed_at,
            public_key: [0; 32],
            session: SessionFacts { count, ..SessionFacts::default() },
            new_key_wanted: false,
            upgrade: None,
            holds: Vec::new(),
            holds_digest: Checksum([0; 32]),
            unconfirmed: Box::default(),
        };
        facts.holding(holds.into_iter().map(stack_id).collect())
    }
}

fn health_rules() -> impl Strategy<Value = Option<HealthRuleFacts>> {
    prop::option::of(prop::sample::select(&["[]", "[{}]"][..]))
        .prop_map(|rules| rules.map(|rules| HealthRuleFacts::new(rules.to_owned())))
}

prop_compose! {
    fn a_suspension()(
        number in 0u128..3,
        agent in prop::option::of(0..AGENTS),
        selector in prop::option::of(a_selector()),
    ) -> SuspensionFacts {
        let suspended = Suspended { id: SuspensionId(Uuid::from_u128(number)), object: None, seconds: 60 };
        let agent = agent.map(agent_id);
        SuspensionFacts { agent, selector: selector.filter(|_| agent.is_none()), suspended }
    }
}

prop_compose! {
    fn a_stack()(
        number in 0..STACKS,
        deleted in prop::bool::weighted(0.3),
        targets in prop::collection::btree_map(0..AGENTS, time(), 0..3),
        selectors in prop::collection::btree_map(a_selector(), time(), 0..3),
        newest in prop::option::weighted(0.8, 0i64..3),
        staged in prop::collection::vec((any::<bool>(), releases(), prop::bool::weighted(0.3), windows()), 0..3),
        widened in prop::option::weighted(0.4, (any::<bool>(), releases(), releases(), had(), windows())),
        suspensions in prop::collection::vec(a_suspension(), 0..3),
        health_rules in health_rules(),
        reports in any::<bool>(),
    ) -> StackFacts {
        let number_of = i64::try_from(number).expect("few");
        let object = |version: i64, marker: bool| ObjectFacts {
            // No two stacks share an id, and a deletion marker has its own.
            sequence_id: SequenceId(number_of * 1000 + version + if marker { 500 } else { 0 }),
            checksum: Checksum([1; 32]),
            parsed_digest: Checksum([2; 32]),
            is_deletion_marker: marker,
            keeps_resources: false,
            is_urgent: version == 2 || version == 4,
            wave_wait_seconds: None,
            resources: 1,
            // As in the database, an object never changes.
            published_at: Timestamp::from_second(version).expect("a time"),
        };
        let base = newest.map(|version| object(version, deleted));
        // A deleted stack has nothing to roll out.
        let releases = (3i64..).zip(staged).filter(|_| !deleted);
        let releases = releases.map(|(version, (open, clauses, marker, windows))| {
            Release { object: object(version, marker), seed: 1, open, clauses, revision: 1, windows }
        });
        // Only a version that agents have is widened.
        let widening = widened.zip(base).filter(|_| !deleted);
        let widening = widening.map(|((open, clauses, earlier, had, windows), base)| Widening {
            key: SequenceId(number_of * 1000 + 400),
            release: Release { object: base, seed: 1, open, clauses, revision: 1, windows },
            had,
            earlier,
        });
        let project = PROJECTS[usize::try_from(number % 2).expect("two")];
        let mut facts = StackFacts::new(project.into(), stack_id(number), format!("stack-{number}"))
            .with_base(base)
            .with_releases(releases.collect())
            .with_widening(widening);
        facts.deleted = deleted;
        facts.suspensions = suspensions;
        facts.health_rules = health_rules.map(Box::new);
        facts.drift = if reports { DriftPolicy::Report } else { DriftPolicy::Repair };
        facts.targets = targets
            .into_iter()
            .map(|(agent, since)| ExplicitTarget { agent: agent_id(agent), since })
            .collect();
        facts.selectors =
            selectors.into_iter().map(|(selector, since)| SelectorTarget { selector, since }).collect();
        facts
    }
}

prop_compose! {
    fn a_grant()(
        number in 0u128..6,
        project in prop::sample::select(&PROJECTS[..]),
        selector in a_selector(),
        namespace in prop::sample::select(&["a", "b"][..]),
        account in prop::sample::select(&["x/brokkr-x", "y/brokkr-y"][..]),
    ) -> GrantFacts {
        let allows =
            Grant { namespaces: vec![namespace.into()], kinds: vec!["*".into()], account: Some(account.into()) };
        let id = GrantId(Uuid::from_u128(2000 + number));
        GrantFacts { id, project: project.into(), selector, allows: Arc::new(allows) }
    }
}

fn grants() -> impl Strategy<Value = Rules> {
    (prop::collection::vec(a_grant(), 0..4), any::<bool>(), windows(), health_rules()).prop_map(
        |(grants, restricted, windows, health_rules)| {
            let by_id: BTreeMap<GrantId, GrantFacts> =
                grants.into_iter().map(|grant| (grant.id, grant)).collect();
            let unrestricted = if restricted { None } else { Some(PROJECTS[0].to_owned()) };
            Rules {
                grants: by_id.into_values().collect(),
                unrestricted: unrestricted.into_iter().collect(),
                windows,
                health_rules,
                upgrades: Vec::new(),
            }
        },
    )
}

fn a_rule() -> impl Strategy<Value = WindowRule> {
    (1u32..3, any::<bool>()).prop_map(|(minutes, freezes)| {
        if freezes {
            let (from, until) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
            WindowRule::Freeze(Freeze { from, until, reason: minutes.to_string() })
        } else {
            let start = "22:00".parse().expect("a time");
            WindowRule::Weekly(Weekly { timezone: "UTC".into(), days: Vec::new(), start, minutes })
        }
    })
}

prop_compose! {
    fn a_window()(
        number in 0u128..4,
        project in prop::option::of(prop::sample::select(&PROJECTS[..])),
        selector in a_selector(),
        rule in a_rule(),
    ) -> WindowFacts {
        let (id, project) = (WindowId(Uuid::from_u128(number)), project.map(ToOwned::to_owned));
        WindowFacts::new(id, format!("window-{number}"), project, selector, rule)
    }
}

/// The changes between two reads of the tail.
#[derive(Clone, Debug, Default)]
struct Batch {
    agents: Vec<AgentFacts>,
    deleted: Vec<AgentId>,
    stacks: Vec<StackFacts>,
    grants: Option<Rules>,
    changed: ChangedRules,
}

/// What of the new rules replaces the rules before.
#[derive(Clone, Copy, Debug, Default)]
enum ChangedRules {
    #[default]
    All,
    Grants,
    Windows,
    HealthRules,
}

fn changed_rules() -> impl Strategy<Value = ChangedRules> {
    let one = [ChangedRules::Grants, ChangedRules::Windows, ChangedRules::HealthRules];
    prop::sample::select(one.to_vec())
}

fn one_change() -> impl Strategy<Value = Batch> {
    prop_oneof![
        4 => an_agent().prop_map(|agent| Batch { agents: vec![agent], ..Batch::default() }),
        4 => a_stack().prop_map(|stack| Batch { stacks: vec![stack], ..Batch::default() }),
        1 => (0..AGENTS).prop_map(|number| Batch { deleted: vec![agent_id(number)], ..Batch::default() }),
        1 => (grants(), changed_rules()).prop_map(|(grants, changed)| {
            Batch { grants: Some(grants), changed, ..Batch::default() }
        }),
    ]
}

fn several() -> impl Strategy<Value = Batch> {
    let agents = prop::collection::vec(an_agent(), 0..3);
    let deleted = prop::option::weighted(0.2, (0..AGENTS).prop_map(agent_id));
    let stacks = prop::collection::vec(a_stack(), 0..3);
    (agents, deleted, stacks, prop::option::weighted(0.2, grants())).prop_map(
        |(agents, deleted, stacks, grants)| Batch {
            agents,
            deleted: deleted.into_iter().collect(),
            stacks,
            grants,
            changed: ChangedRules::All,
        },
    )
}

/// The content of the database.
#[derive(Clone, Default)]
struct Truth {
    agents: BTreeMap<AgentId, AgentFacts>,
    stacks: BTreeMap<StackId, StackFacts>,
    grants: Rules,
}

impl Truth {
    /// Returns a new installation, in which the project `default` is not restricted.
    fn new() -> Self {
        let unrestricted = [PROJECTS[0].to_owned()].into();
        Self { grants: Rules { unrestricted, ..Rules::default() }, ..Self::default() }
    }

    /// Stores a batch and returns the changes as the tail reads them: changed rows, and held stacks that are
    /// not in the snapshot.
    fn store(&mut self, snapshot: &Snapshot, batch: Batch) -> Changes {
        let agents: BTreeMap<_, _> = batch.agents.into_iter().map(|agent| (agent.id, agent)).collect();
        let mut reread: Vec<StackId> = batch.stacks.iter().map(|stack| stack.id).collect();
        // The tail reads the state after the batch: an agent exists or not.
        let deleted_agents: Vec<AgentId> =
            batch.deleted.into_iter().filter(|agent| !agents.contains_key(agent)).collect();
        deleted_agents.iter().for_each(|agent| drop(self.agents.remove(agent)));
        self.agents.extend(agents.clone());
        self.stacks.extend(batch.stacks.into_iter().map(|stack| (stack.id, stack)));
        let rules = batch.grants.map(|new| match batch.changed {
            ChangedRules::All => new,
            ChangedRules::Grants => Rules {
                windows: self.grants.windows.clone(),
                health_rules: self.grants.health_rules.clone(),
                ..new
            },
            ChangedRules::HealthRules => Rules { health_rules: new.health_rules, ..self.grants.clone() },
            ChangedRules::Windows => Rules { windows: new.windows, ..self.grants.clone() },
        });
        self.grants = rules.clone().unwrap_or_else(|| self.grants.clone());
        reread.extend(snapshot.unknown_holds(agents.values()));
        reread.sort_unstable();
        reread.dedup();
        let stacks = reread.iter().filter_map(|stack| self.stacks.get(stack).cloned()).collect();
        Changes { agents: agents.into_values().collect(), deleted_agents, stacks, rules }
    }

    /// Returns the snapshot that a replica loads at its start.
    fn reloaded(&self) -> Snapshot {
        let held = |stack: &StackFacts| self.agents.values().any(|agent| agent.holds(stack.id));
        let stacks = self.stacks.values().filter(|stack| !stack.deleted || held(stack)).cloned().collect();
        let agents = self.agents.values().cloned().collect();
        Snapshot::new(Changes { agents, stacks, rules: Some(self.grants.clone()), ..Changes::default() })
    }

    /// Returns the grants of a project, computed from the plain list.
    fn grants_of(&self, project: &str) -> Arc<ProjectGrants> {
        let own = self.grants.grants.iter().filter(|grant| grant.project == project).cloned().collect();
        Arc::new(ProjectGrants::new(!self.grants.unrestricted.contains(project), own))
    }

    /// Returns every stack with the grants of its project.
    fn stacks(&self) -> Vec<StackFacts> {
        let mut stacks: Vec<StackFacts> = self.stacks.values().cloned().collect();
        let windows = Arc::new(self.grants.windows.clone());
        for stack in &mut stacks {
            (stack.grants, stack.windows) = (self.grants_of(&stack.project), Arc::clone(&windows));
        }
        stacks
    }

    /// Returns every envelope, computed from all stacks without an index.
    fn envelopes(&self) -> HashMap<AgentId, String> {
        let stacks = self.stacks();
        let text = |agent: &AgentFacts| {
            let rules = self.grants.health_rules.as_ref().map(|rules| rules.checksum);
            let envelope = envelope(InstallationId(Uuid::nil()), agent, &stacks, rules);
            String::from_utf8_lossy(&encode(&envelope).bytes).into_owned()
        };
        self.agents.values().map(|agent| (agent.id, text(agent))).collect()
    }

    /// Returns the pairs of a stack and an agent that it reaches.
    fn pairs(&self) -> Vec<(StackId, AgentId)> {
        let stacks = self.stacks();
        let of = |agent: &AgentFacts| -> Vec<(StackId, AgentId)> {
            stacks.iter().filter(|stack| reaches(agent, stack)).map(|stack| (stack.id, agent.id)).collect()
        };
        self.agents.values().flat_map(of).collect()
    }
}

fn envelopes(snapshot: &Snapshot) -> HashMap<AgentId, String> {
    let agents = (0..AGENTS).filter_map(|number| snapshot.agent(agent_id(number)));
    agents
        .map(|agent| {
            let (stacks, rules) = (snapshot.candidates(agent), snapshot.health_rules());
            let envelope = envelope(InstallationId(Uuid::nil()), agent, stacks, rules);
            (agent.id, String::from_utf8_lossy(&encode(&envelope).bytes).into_owned())
        })
        .collect()
}

/// Returns the facts that decide whether an agent may poll.
fn poll_permissions(truth: &Truth) -> BTreeMap<AgentId, (SessionFacts, Checksum)> {
    truth.agents.values().map(|agent| (agent.id, (agent.session, agent.holds_digest))).collect()
}

fn lost(before: &Truth, after: &Truth) -> u64 {
    let after = after.pairs();
    before.pairs().iter().filter(|pair| !after.contains(pair)).count() as u64
}

proptest! {
    #[test]
    fn changes_lead_to_the_state_of_a_reload_and_affect_every_agent_with_another_envelope(
        batches in prop::collection::vec(several(), 1..12)
    ) {
        let mut truth = Truth::new();
        let mut snapshot = truth.reloaded();
        for batch in batches {
            let before = envelopes(&snapshot);
            let changes = truth.store(&snapshot, batch);
            let affected = snapshot.apply(changes);
            let after = envelopes(&snapshot);
            for (agent, bytes) in &after {
                let changed = before.get(agent) != Some(bytes);
                let woken = snapshot.slot(*agent).is_some_and(|slot| affected.contains(slot));
                prop_assert!(!changed || woken, "{agent} is not woken: {bytes}");
            }
            prop_assert_eq!(&after, &truth.envelopes());
            prop_assert_eq!(&after, &envelopes(&truth.reloaded()));
        }
    }

    #[test]
    fn a_change_affects_exactly_the_agents_with_another_envelope_or_permission(
        batches in prop::collection::vec(one_change(), 1..20)
    ) {
        let mut truth = Truth::new();
        let mut snapshot = truth.reloaded();
        for batch in batches {
            let (before, rights) = (truth.envelopes(), poll_permissions(&truth));
            let changes = truth.store(&snapshot, batch);
            let affected = snapshot.apply(changes);
            let (after, rights_after) = (truth.envelopes(), poll_permissions(&truth));
            for (agent, bytes) in &after {
                let changed = before.get(agent) != Some(bytes) || rights.get(agent) != rights_after.get(agent);
                let woken = snapshot.slot(*agent).is_some_and(|slot| affected.contains(slot));
                prop_assert_eq!(woken, changed, "{}: {:?} became {}", agent, before.get(agent), bytes);
            }
        }
    }

    #[test]
    fn the_losses_of_a_change_are_counted_before_it_is_made(
        batches in prop::collection::vec(several(), 1..6),
        labels in labels(),
        selectors in prop::collection::vec(a_selector(), 0..3),
        new_grants in grants(),
    ) {
        let mut truth = Truth::new();
        let mut snapshot = truth.reloaded();
        for batch in batches {
            let changes = truth.store(&snapshot, batch);
            snapshot.apply(changes);
        }
        for agent in truth.agents.values() {
            let mut after = truth.clone();
            after.agents.insert(agent.id, AgentFacts { labels: labels.clone(), ..agent.clone() });
            prop_assert_eq!(snapshot.lost_by_labels(agent, labels.clone()).pairs, lost(&truth, &after));
        }
        for stack in truth.stacks().iter().filter(|stack| !stack.deleted) {
            let mut after = truth.clone();
            let since = Timestamp::UNIX_EPOCH;
            let target = |selector: &Selector| SelectorTarget { selector: selector.clone(), since };
            let mut retargeted = stack.clone();
            retargeted.selectors = selectors.iter().map(target).collect();
            after.stacks.insert(stack.id, retargeted);
            let named: Vec<AgentId> = stack.targets.iter().map(|target| target.agent).collect();
            prop_assert_eq!(snapshot.lost_by_targets(stack, &named, &selectors).pairs, lost(&truth, &after));
            let preview = snapshot.retargeting(stack, &named, &selectors);
            prop_assert_eq!(preview.lost.len(), lost(&truth, &after));
            prop_assert_eq!(preview.gained.len(), lost(&after, &truth));
            prop_assert_eq!(preview.kept.len() + preview.lost.len(), snapshot.reach(stack).len());
            // If the stack names no agent, at least as many are lost: a name may keep an agent that no
            // selector matches.
            prop_assert!(snapshot.lost_by_targets(stack, &[], &selectors).pairs >= lost(&truth, &after));
        }
        for project in PROJECTS {
            let mut after = truth.clone();
            let new = new_grants.grants.iter().filter(|grant| grant.project == project).cloned();
            after.grants.grants.retain(|grant| grant.project != project);
            after.grants.grants.extend(new);
            after.grants.unrestricted.retain(|name| name != project);
            if new_grants.unrestricted.contains(project) {
                after.grants.unrestricted.insert(project.to_owned());
            }
            let losses = snapshot.lost_by_grants(project, &after.grants_of(project));
            prop_assert_eq!(losses.pairs, lost(&truth, &after));
        }
    }
}

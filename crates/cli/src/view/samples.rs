//! Sample responses of a broker, for the tests of views.

use brokkr_api::agents::{Agent, AgentStatus};
use brokkr_api::events::Event;
use brokkr_api::ids::Checksum;
use brokkr_api::objects::{BarredContent, DeploymentObject};
use brokkr_api::reason::{Message, ObjectRef, Reason};
use brokkr_api::report::{Condition, ConditionKind, ConditionStatus, Hops, ObjectNote, Transition};
use brokkr_api::stacks::{DriftPolicy, Stack, StackTargets};
use brokkr_api::status::{StackStatus, StackSummary, State, StateCounts};
use brokkr_api::why::Presence;
use brokkr_api::{EventId, Labels, SequenceId};
use jiff::{SignedDuration, Timestamp};

use super::{RenderOptions, Show};

pub const AGENT: &str = "0190b5a4-0000-7000-8000-000000000001";
pub const STACK: &str = "0190b5a4-0000-7000-8000-00000000000a";

pub fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

/// Unlimited width.
pub fn options() -> RenderOptions {
    RenderOptions { now: now(), wide: false, headers: true, width: None }
}

pub fn narrow(width: usize) -> RenderOptions {
    RenderOptions { width: Some(width), ..options() }
}

/// Renders a view for terminals with 80 and 160 columns, without a terminal, and with `-o wide`; then with colours, if any.
pub fn rendered(shown: &impl Show) -> String {
    let wide = RenderOptions { wide: true, ..options() };
    let variants = [
        ("80 columns", narrow(80)),
        ("160 columns", narrow(160)),
        ("no terminal", options()),
        ("wide", wide),
    ];
    let mut text = String::new();
    let mut last = String::new();
    for (name, options) in variants {
        let shown = anstream::adapter::strip_str(&shown.text(&options)).to_string();
        let rendered = if shown == last { "(the same)".to_owned() } else { shown.clone() };
        text.push_str(&format!("# {name}\n{rendered}\n"));
        last = shown;
    }
    let coloured = shown.text(&narrow(160));
    if coloured.contains('\u{1b}') {
        text.push_str(&format!("# colours, 160 columns\n{}\n", coloured.replace('\u{1b}', "␛")));
    }
    text.push_str(&format!("# names\n{}", shown.names().join("\n")));
    text
}

pub fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

pub fn agent(name: &str) -> Agent {
    Agent {
        id: AGENT.parse().unwrap(),
        name: name.parse().unwrap(),
        status: AgentStatus::Active,
        labels: Labels::from([("env".to_owned(), "prod".to_owned()), ("region".to_owned(), "eu".to_owned())]),
        annotations: Labels::new(),
        created_at: ago(200_000),
        last_seen_at: Some(ago(4)),
        presence: Presence::Fresh,
        session_count: 3,
        session_duplicated: false,
        version: Some("0.1.0".into()),
        key_since: Some(ago(86_400 * 20)),
        rotation_asked_at: None,
        revoked_at: None,
        abandoned: None,
        upgrade: None,
    }
}

pub fn stack(name: &str, sequence: Option<i64>) -> Stack {
    let targets = match sequence {
        Some(_) => {
            StackTargets { agents: vec!["eu-1".to_owned()], selectors: vec!["env=prod".parse().unwrap()] }
        }
        None => StackTargets::default(),
    };
    Stack {
        project: "default".to_owned(),
        id: STACK.parse().unwrap(),
        name: name.parse().unwrap(),
        labels: Labels::new(),
        annotations: Labels::new(),
        drift: DriftPolicy::default(),
        targets,
        sequence_id: sequence.map(SequenceId),
        base_sequence_id: None,
        created_at: ago(7200),
        deleted_at: None,
    }
}

pub fn row(agent: &str, wants: i64, has: i64, state: State) -> StackStatus {
    let hops = Hops {
        published: Some(ago(180)),
        targeted: Some(ago(180)),
        released: Some(ago(179)),
        ..Hops::default()
    };
    StackStatus {
        project: "default".to_owned(),
        stack_id: STACK.parse().unwrap(),
        stack_name: "web".to_owned(),
        agent_id: AGENT.parse().unwrap(),
        agent_name: agent.to_owned(),
        wanted_sequence_id: Some(SequenceId(wants)),
        sequence_id: Some(SequenceId(has)),
        state,
        ready: if state == State::Healthy { 3 } else { 2 },
        total: 3,
        reason: Reason::None,
        message: Message::default(),
        objects: Vec::new(),
        conditions: Vec::new(),
        hops,
    }
}

pub fn failed_row(agent: &str) -> StackStatus {
    let mut row = row(agent, 42, 42, State::Failed);
    row.hops.fetched = Some(ago(170));
    row.hops.verified = Some(ago(170));
    row.reason = immutable();
    row.message =
        "1 of 14 resources was refused by the API server, the other ones stay as they were before".into();
    row.objects = vec![note()];
    row
}

/// Returns the conditions of a healthy stack.
pub fn conditions() -> Vec<Condition> {
    let condition = |kind, status, reason| Condition {
        kind,
        status,
        reason,
        message: Message::default(),
        sequence_id: SequenceId(42),
        since: ago(300),
    };
    vec![
        condition(ConditionKind::Accepted, ConditionStatus::True, Reason::Valid),
        condition(ConditionKind::Applied, ConditionStatus::True, Reason::Applied),
        condition(ConditionKind::Ready, ConditionStatus::True, Reason::Ready),
        condition(ConditionKind::Drifted, ConditionStatus::False, Reason::NoDrift),
        condition(ConditionKind::Contested, ConditionStatus::False, Reason::Uncontested),
        condition(ConditionKind::PrunePending, ConditionStatus::False, Reason::NothingToPrune),
        condition(ConditionKind::Suspended, ConditionStatus::False, Reason::NotSuspended),
    ]
}

/// A row with a contested field.
pub fn contested_row(agent: &str) -> StackStatus {
    let mut row = row(agent, 42, 42, State::Healthy);
    row.hops.healthy = Some(ago(170));
    row.conditions = conditions();
    row.conditions[2].status = ConditionStatus::False;
    row.conditions[2].reason = Reason::NotReady;
    row.conditions[2].message = "Deployment shop/web: 2/3 replicas ready".into();
    row.conditions[4].status = ConditionStatus::True;
    row.conditions[4].reason = Reason::Contested {
        manager: Some("kubectl-edit".to_owned()),
        fields: vec![".spec.replicas".to_owned()],
        repairs: 12,
    };
    row.conditions[4].message =
        "Deployment shop/web: kubectl-edit changes .spec.replicas (12 times in the last minute)".into();
    row
}

fn immutable() -> Reason {
    Reason::Immutable { fields: vec!["spec.selector".to_owned()] }
}

pub fn object_ref(kind: &str, name: &str) -> ObjectRef {
    let group = if kind == "Deployment" { "apps" } else { "" }.to_owned();
    ObjectRef { group, kind: kind.to_owned(), namespace: Some("shop".to_owned()), name: name.to_owned() }
}

fn note() -> ObjectNote {
    ObjectNote {
        object: object_ref("Deployment", "web"),
        reason: immutable(),
        message: "spec.selector: field is immutable".into(),
    }
}

pub fn event(transition: Transition, seconds_ago: i64) -> Event {
    let has_failed = transition == Transition::Failed;
    Event {
        id: EventId::generate(),
        project: "default".to_owned(),
        stack_id: STACK.parse().unwrap(),
        stack_name: "web".to_owned(),
        agent_id: AGENT.parse().unwrap(),
        agent_name: "eu-1".to_owned(),
        sequence_id: SequenceId(42),
        transition,
        at: ago(seconds_ago),
        reason: if has_failed { immutable() } else { Reason::None },
        message: Message::default(),
        objects: if has_failed { vec![note(), note()] } else { Vec::new() },
        hops: Hops::default(),
    }
}

pub fn object(sequence: i64) -> DeploymentObject {
    DeploymentObject {
        project: "default".to_owned(),
        stack_id: STACK.parse().unwrap(),
        sequence_id: SequenceId(sequence),
        checksum: Checksum::of(&sequence.to_be_bytes()),
        parsed_digest: Checksum::of(&sequence.to_be_bytes()),
        is_deletion_marker: false,
        keeps_resources: false,
        wave_wait_seconds: None,
        rerun: Vec::new(),
        resources: 14,
        submitted_by: "ana".to_owned(),
        message: None,
        commit: None,
        created_at: ago((50 - sequence) * 100),
    }
}

pub fn summary(targeted: u64, pending: u64, counts: StateCounts) -> StackSummary {
    StackSummary {
        project: "default".to_owned(),
        stack_id: STACK.parse().unwrap(),
        stack_name: "web".to_owned(),
        sequence_id: Some(SequenceId(42)),
        targeted,
        holding: targeted,
        pending,
        counts,
        behind: 0,
        sequences: Vec::new(),
    }
}

pub fn bar(sequence: i64) -> BarredContent {
    BarredContent {
        checksum: Checksum::of(&sequence.to_be_bytes()),
        sequence_id: SequenceId(sequence),
        barred_by: "ana".to_owned(),
        reason: "crash loop since 1.8.2, see the incident of last night".to_owned(),
        created_at: ago(600),
    }
}

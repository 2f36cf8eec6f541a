//! The state of the scripted broker: its agent, its objects, what the agent holds; and the envelope derived from it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use brokkr_api::agents::AgentStatus;
use brokkr_api::envelope::{Envelope, Removal, TargetStack};
use brokkr_api::ids::Checksum;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::protocol::PROTOCOL_VERSION;
use brokkr_api::stacks::DriftPolicy;
use brokkr_api::{AgentId, InstallationId, Position, SequenceId, StackId};
use brokkr_manifest::{Budget, parse};
use jiff::Timestamp;

use crate::names::unique;

#[derive(Debug)]
pub struct Truth {
    pub installation: InstallationId,
    pub agent: AgentId,
    pub join_token: String,
    pub position: Position,
    pub status: AgentStatus,
    /// The stacks that the agent holds, according to its last report of holds; none before the first one.
    pub holds: Option<BTreeSet<StackId>>,
    /// The highest session that was opened.
    pub session: i64,
    stacks: BTreeMap<String, Stack>,
    /// The bytes of the content; a deletion marker has none.
    contents: BTreeMap<SequenceId, String>,
    last_sequence: i64,
}

/// A stack and its versions, the oldest first.
#[derive(Debug)]
struct Stack {
    id: StackId,
    versions: Vec<TargetStack>,
}

/// The bytes of an envelope, from which its tag is computed.
#[derive(Clone, Debug)]
pub struct Sealed {
    pub bytes: Vec<u8>,
}

impl Sealed {
    pub fn tag(&self) -> String {
        tag(&self.bytes)
    }
}

/// Returns the entity tag of an answer.
pub fn tag(bytes: &[u8]) -> String {
    format!("\"{}\"", Checksum::of(bytes))
}

impl Truth {
    pub fn new() -> Self {
        Self {
            installation: InstallationId::generate(),
            agent: AgentId::generate(),
            join_token: unique("join"),
            // Not zero, so that there are older positions.
            position: Position { epoch: 10, horizon: 1_000 },
            status: AgentStatus::Active,
            holds: None,
            session: 0,
            stacks: BTreeMap::new(),
            contents: BTreeMap::new(),
            last_sequence: 100,
        }
    }

    pub fn publish(&mut self, stack: &str, yaml: &str) -> Result<SequenceId> {
        let manifest = parse(yaml.as_bytes(), &Budget::default())
            .map_err(|errors| anyhow::anyhow!("the test's manifest has errors: {errors}"))?;
        let sequence = self.next_sequence();
        let parsed_digest = Checksum(manifest.digest());
        self.contents.insert(sequence, yaml.to_owned());
        self.add_version(stack, sequence, Checksum::of(yaml.as_bytes()), parsed_digest, None);
        Ok(sequence)
    }

    pub fn delete(&mut self, stack: &str) -> Result<SequenceId> {
        self.stacks.get(stack).with_context(|| format!("there is no stack {stack}"))?;
        let sequence = self.next_sequence();
        self.add_version(stack, sequence, Checksum::of(b""), Checksum::of(b""), Some(Removal::Deleted));
        Ok(sequence)
    }

    pub fn amend(&mut self, stack: &str, change: impl FnOnce(&mut TargetStack)) -> Result<()> {
        let found = self.stacks.get_mut(stack).with_context(|| format!("there is no stack {stack}"))?;
        change(found.versions.last_mut().context("a stack has a version")?);
        self.advance();
        Ok(())
    }

    fn add_version(
        &mut self,
        stack: &str,
        sequence_id: SequenceId,
        checksum: Checksum,
        parsed_digest: Checksum,
        removal: Option<Removal>,
    ) {
        let now = Timestamp::now();
        let found = self
            .stacks
            .entry(stack.to_owned())
            .or_insert_with(|| Stack { id: StackId::generate(), versions: Vec::new() });
        found.versions.push(TargetStack {
            project: DEFAULT_PROJECT.to_owned(),
            stack_id: found.id,
            stack_name: stack.to_owned(),
            sequence_id,
            checksum,
            parsed_digest,
            removal,
            withdrawn: false,
            wave_wait_seconds: None,
            rerun: Vec::new(),
            schedule: None,
            suspensions: Vec::new(),
            health_rules: None,
            drift: DriftPolicy::default(),
            grant: None,
            approvals: Vec::new(),
            published_at: now,
            targeted_at: now,
            released_at: now,
        });
        self.advance();
    }

    fn next_sequence(&mut self) -> SequenceId {
        // Leaves gaps, as in production, where stacks of other agents use ids too.
        self.last_sequence += 3;
        SequenceId(self.last_sequence)
    }

    pub fn set_status(&mut self, status: AgentStatus) {
        self.status = status;
        self.advance();
    }

    /// Stores what the agent holds, at a new position.
    pub fn hold(&mut self, stacks: impl IntoIterator<Item = StackId>) -> Position {
        self.holds = Some(stacks.into_iter().collect());
        self.advance();
        self.position
    }

    fn advance(&mut self) {
        self.position.horizon += 1;
    }

    pub fn content(&self, sequence: SequenceId) -> Option<&str> {
        self.contents.get(&sequence).map(String::as_str)
    }

    /// Returns the newest version of every stack; a removal only while the agent holds the stack.
    pub fn newest(&self) -> Vec<TargetStack> {
        self.versions(|versions| versions.last())
            .into_iter()
            .filter(|target| {
                target.removal.is_none() || self.holds.iter().flatten().any(|&id| id == target.stack_id)
            })
            .collect()
    }

    /// Returns the first version of every stack.
    pub fn oldest(&self) -> Vec<TargetStack> {
        self.versions(|versions| versions.first())
    }

    fn versions(&self, pick: impl Fn(&[TargetStack]) -> Option<&TargetStack>) -> Vec<TargetStack> {
        let mut stacks: Vec<_> =
            self.stacks.values().filter_map(|stack| pick(&stack.versions).cloned()).collect();
        stacks.sort_by_key(|target| target.sequence_id);
        stacks
    }

    /// Returns the envelope for the agent. An agent that is not ACTIVE gets no deployment objects.
    pub fn envelope(&self) -> Sealed {
        let stacks = if self.status == AgentStatus::Active { self.newest() } else { Vec::new() };
        self.seal(|envelope| envelope.stacks = stacks)
    }

    /// Returns an envelope of this broker for this agent: without stacks, then changed by `change`.
    pub fn seal(&self, change: impl FnOnce(&mut Envelope)) -> Sealed {
        let mut envelope = Envelope {
            protocol: PROTOCOL_VERSION,
            installation: self.installation,
            agent: self.agent,
            status: self.status,
            stacks: Vec::new(),
            health_rules: None,
        };
        change(&mut envelope);
        Sealed { bytes: serde_json::to_vec(&envelope).expect("an envelope is JSON") }
    }
}

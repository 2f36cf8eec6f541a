//! The set of stacks that this agent holds: objects of them may be in the cluster. Synchronised with the
//! broker.
//!
//! A stack is added before the first write for it, and removed when its record is deleted. One lock covers all updates of
//! the broker's copy, so that an older set never overwrites a newer one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex as Lock, MutexGuard, PoisonError};

use brokkr_api::agents::{HeldStack, Holds};
use brokkr_api::envelope::TargetStack;
use brokkr_api::ids::{AgentId, Checksum, StackId};
use brokkr_api::protocol::{Session, holds_digest};
use brokkr_api::{PositionToken, SequenceId};
use brokkr_client::{Client as Broker, ClientError};
use tokio::sync::{Mutex, watch};

use crate::model::Record;

#[derive(Clone)]
pub struct HeldStacks {
    broker: Broker,
    agent: AgentId,
    session: Session,
    held: Arc<watch::Sender<Held>>,
    order: Arc<Mutex<()>>,
    /// Details from the records, sent when the broker asks for them after a restore.
    records: Arc<Lock<BTreeMap<StackId, HeldStack>>>,
}

/// The held stacks, and the position from which the broker's responses include them.
#[derive(Clone, Debug, Default)]
pub struct Held {
    pub stacks: BTreeSet<StackId>,
    pub position: PositionToken,
}

impl Held {
    #[must_use]
    pub fn digest(&self) -> Checksum {
        holds_digest(self.stacks.iter().copied())
    }
}

impl HeldStacks {
    #[must_use]
    pub fn new(broker: Broker, agent: AgentId, session: Session, stacks: BTreeSet<StackId>) -> Self {
        let (held, _) = watch::channel(Held { stacks, position: PositionToken::default() });
        Self { broker, agent, session, held: Arc::new(held), order: Arc::default(), records: Arc::default() }
    }

    /// Stores the details of a record that was read or written.
    pub fn note(&self, record: &Record) {
        let held = HeldStack {
            stack_id: record.stack,
            project: record.project.clone(),
            stack_name: record.stack_name.clone(),
            sequence_id: record.sequence,
            checksum: record.checksum.filter(|_| record.removal.is_none()),
            removing: record.removal.is_some(),
        };
        self.records().insert(record.stack, held);
    }

    #[must_use]
    pub fn contains(&self, stack: StackId) -> bool {
        self.held.borrow().stacks.contains(&stack)
    }

    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Held> {
        self.held.subscribe()
    }

    /// Adds a stack. The broker has stored it when this returns; it refuses a stack that does not target this agent.
    pub async fn hold(&self, stack: StackId) -> Result<(), ClientError> {
        let _lock = self.order.lock().await;
        let mut stacks = self.held.borrow().stacks.clone();
        if !stacks.insert(stack) {
            return Ok(());
        }
        let position = self.put(&stacks, Vec::new()).await?;
        self.held.send_modify(|held| {
            held.stacks.insert(stack);
            held.position = held.position.later(position);
        });
        Ok(())
    }

    /// Sends the whole set to the broker.
    pub async fn report(&self) -> Result<(), ClientError> {
        let _lock = self.order.lock().await;
        let stacks = self.held.borrow().stacks.clone();
        let details: Vec<HeldStack> =
            self.records().values().filter(|held| stacks.contains(&held.stack_id)).cloned().collect();
        let position = self.put(&stacks, details).await?;
        self.held.send_modify(|held| held.position = held.position.later(position));
        Ok(())
    }

    /// Returns the targets that are older than the held stacks: newer versions were withdrawn, or the broker's database was
    /// restored.
    #[must_use]
    pub fn behind(&self, targets: &[TargetStack]) -> BTreeSet<(StackId, SequenceId)> {
        let records = self.records();
        let held = |target: &TargetStack| records.get(&target.stack_id).map(|held| held.sequence_id);
        let behind =
            targets.iter().filter(|target| held(target).is_some_and(|held| target.sequence_id < held));
        behind.map(|target| (target.stack_id, target.sequence_id)).collect()
    }

    /// Returns a target with a sequence id that this agent knows with another content. A database that lost its last transactions
    /// may have issued the id twice.
    #[must_use]
    pub fn contradicted_by<'a>(&self, targets: &'a [TargetStack]) -> Option<&'a TargetStack> {
        let records = self.records();
        targets.iter().filter(|target| target.removal.is_none()).find(|target| {
            records.get(&target.stack_id).is_some_and(|held| {
                held.sequence_id == target.sequence_id
                    && held.checksum.is_some_and(|checksum| checksum != target.checksum)
            })
        })
    }

    /// Returns the highest sequence id of a held stack.
    #[must_use]
    pub fn highest_sequence_id(&self) -> SequenceId {
        self.records().values().map(|held| held.sequence_id).max().unwrap_or(SequenceId(0))
    }

    /// Removes a stack. The broker learns this from the next poll.
    pub fn forget(&self, stack: StackId) {
        self.records().remove(&stack);
        self.held.send_modify(|held| {
            held.stacks.remove(&stack);
        });
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<StackId, HeldStack>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn put(
        &self,
        stacks: &BTreeSet<StackId>,
        held: Vec<HeldStack>,
    ) -> Result<PositionToken, ClientError> {
        let holds = Holds { stacks: stacks.iter().copied().collect(), held };
        self.broker.put_holds(self.agent, self.session, &holds).await
    }
}

//! Reports on their way to the database. Batches of different agents are stored in one transaction, because each commit is
//! a flush of the disk: while one group is stored, the next one forms. A batch that finds the writer idle is a group of its
//! own, so no batch is delayed to make a group larger.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brokkr_api::{AgentId, ErrorCode, EventId};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use crate::domain::filing::FiledBatch;
use crate::error::ApiError;

/// Batches that wait for a group. Beyond that, requests wait, and are then refused. As many may wait to be stored on their
/// own.
pub const QUEUE: usize = 1024;
/// Batches of one agent that are not answered yet. An agent sends one at a time; a second one may follow a request that the
/// agent has given up.
const MOST_OF_AGENT: usize = 4;
/// How long a batch waits for a place in the queue, or for its turn to be stored on its own; as for a connection to the
/// database.
pub const PATIENCE: Duration = Duration::from_secs(3);
/// Batches that are stored on their own at the same time, by all writers together. Each uses a connection.
const ALONE: usize = 4;
/// The largest group. Each agent is a lock in PostgreSQL, and all reports are parameters of one statement.
const MOST_AGENTS: usize = 256;
const MOST_REPORTS: usize = 1000;
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// What was stored of a batch.
#[derive(Clone, Debug)]
pub struct StoredBatch {
    /// The reports that were not stored before.
    pub new: HashSet<EventId>,
    /// The transaction that stored them.
    pub xid: u64,
}

pub type Outcome = Result<StoredBatch, ApiError>;

/// A batch that waits to be stored.
#[derive(Debug)]
pub struct PendingBatch {
    pub batch: FiledBatch,
    /// The size of the request.
    bytes: usize,
    outcome: oneshot::Sender<Outcome>,
    counted: CountedBatch,
    /// The place in the queue, until the batch is in a group.
    place: Option<OwnedSemaphorePermit>,
}

impl PendingBatch {
    /// Answers the request, if it still waits.
    pub fn finish(self, outcome: Outcome) {
        // First, because the agent may send its next batch as soon as it has the answer.
        drop(self.counted);
        let _ = self.outcome.send(outcome);
    }

    /// Answers that the agent has to send the batch again.
    pub fn refuse(self) {
        self.finish(Err(overloaded()));
    }
}

fn overloaded() -> ApiError {
    ApiError::new(ErrorCode::BRK3003, "too many reports are waiting").retry_after(1)
}

#[derive(Debug)]
pub struct ReportQueue {
    waiting: Mutex<VecDeque<PendingBatch>>,
    /// Wakes a writer.
    arrived: Notify,
    places: Arc<Semaphore>,
    unanswered: Arc<BatchCounts>,
    /// One permit for each batch that is stored on its own.
    pub alone: Arc<Semaphore>,
}

impl Default for ReportQueue {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            arrived: Notify::new(),
            places: Arc::new(Semaphore::new(QUEUE)),
            unanswered: Arc::default(),
            alone: Arc::new(Semaphore::new(ALONE)),
        }
    }
}

impl ReportQueue {
    /// Stores the batch of a request of this size: returns after the commit.
    pub async fn store(&self, batch: FiledBatch, bytes: usize) -> Result<StoredBatch, ApiError> {
        let Some(counted) = self.unanswered.add(batch.agent) else {
            let detail = format!("{MOST_OF_AGENT} batches of this agent are waiting");
            return Err(ApiError::new(ErrorCode::BRK3003, detail).retry_after(1));
        };
        let place = timeout(PATIENCE, Arc::clone(&self.places).acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            return Err(overloaded());
        };
        let (outcome, stored) = oneshot::channel();
        let pending = PendingBatch { batch, bytes, outcome, counted, place: Some(place) };
        self.batches().push_back(pending);
        self.arrived.notify_one();
        // The writer drops a batch only if it fails unexpectedly.
        let failed = || ApiError::new(ErrorCode::BRK9001, "the broker failed to store the reports");
        stored.await.map_err(|error| failed().because(error))?
    }

    /// Returns the number of batches that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.batches().len()
    }

    /// Waits for the next group. Nothing is lost if the caller stops waiting.
    pub async fn next_group(&self) -> VecDeque<PendingBatch> {
        loop {
            if let Some(group) = self.take_group() {
                return group;
            }
            self.arrived.notified().await;
        }
    }

    /// Returns none if no batch waits.
    fn take_group(&self) -> Option<VecDeque<PendingBatch>> {
        let mut waiting = self.batches();
        let group = Group::take_from(&mut waiting);
        if !waiting.is_empty() {
            // Several arrivals may have woken only one writer: the rest is for another one.
            self.arrived.notify_one();
        }
        (!group.is_empty()).then_some(group)
    }

    fn batches(&self) -> MutexGuard<'_, VecDeque<PendingBatch>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many batches of each agent are not answered yet.
#[derive(Debug, Default)]
struct BatchCounts(Mutex<HashMap<AgentId, usize>>);

impl BatchCounts {
    /// Counts a batch until the returned value is dropped. Returns none if the agent has too many.
    fn add(self: &Arc<Self>, agent: AgentId) -> Option<CountedBatch> {
        let mut counts = self.counts();
        let count = counts.entry(agent).or_default();
        if *count >= MOST_OF_AGENT {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(CountedBatch { agent, counts: Arc::clone(self) })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<AgentId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct CountedBatch {
    agent: AgentId,
    counts: Arc<BatchCounts>,
}

impl Drop for CountedBatch {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = self.counts.counts().entry(self.agent) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// A group that is being formed.
#[derive(Default)]
struct Group {
    batches: VecDeque<PendingBatch>,
    agents: HashSet<AgentId>,
    reports: usize,
    bytes: usize,
}

impl Group {
    /// Takes the oldest batch of each agent, until the group is full. The others keep their order.
    fn take_from(waiting: &mut VecDeque<PendingBatch>) -> VecDeque<PendingBatch> {
        let mut group = Self::default();
        let mut later = VecDeque::new();
        while let Some(pending) = waiting.pop_front() {
            if group.agents.contains(&pending.batch.agent) {
                later.push_back(pending);
            } else if group.has_room_for(&pending) {
                group.add(pending);
            } else {
                later.push_back(pending);
                break;
            }
        }
        later.append(waiting);
        *waiting = later;
        group.batches
    }

    /// A batch that exceeds the limits is a group of its own.
    fn has_room_for(&self, pending: &PendingBatch) -> bool {
        self.batches.is_empty()
            || (self.agents.len() < MOST_AGENTS
                && self.reports + pending.batch.filed.len() <= MOST_REPORTS
                && self.bytes + pending.bytes <= MOST_BYTES)
    }

    fn add(&mut self, mut pending: PendingBatch) {
        drop(pending.place.take());
        self.agents.insert(pending.batch.agent);
        self.reports += pending.batch.filed.len();
        self.bytes += pending.bytes;
        self.batches.push_back(pending);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn batch(agent: AgentId) -> FiledBatch {
        FiledBatch { agent, filed: Vec::new(), applied: Vec::new() }
    }

    async fn until(queue: &ReportQueue, waiting: usize) {
        while queue.waiting() < waiting {
            tokio::task::yield_now().await;
        }
    }

    /// Queues batches of these sizes, and returns the sizes of the groups.
    async fn groups(batches: impl IntoIterator<Item = (AgentId, usize)>) -> Vec<usize> {
        let queue = Arc::new(ReportQueue::default());
        for (agent, bytes) in batches {
            let (queue, batch, sent) = (Arc::clone(&queue), batch(agent), queue.waiting());
            let sender = Arc::clone(&queue);
            tokio::spawn(async move { sender.store(batch, bytes).await });
            until(&queue, sent + 1).await;
        }
        let next = || queue.next_group().now_or_never().map(|group| group.len());
        std::iter::from_fn(next).collect()
    }

    #[tokio::test]
    async fn batches_that_wait_form_groups_of_different_agents_within_the_limits() {
        let [one, other] = [AgentId::generate(), AgentId::generate()];
        assert_eq!(groups([(one, 1), (other, 1)]).await, [2]);
        assert_eq!(groups([(one, 1), (other, 1), (one, 1)]).await, [2, 1], "an agent is in a group once");
        let parallel = [(one, 1), (one, 1), (one, 1), (other, 1)];
        assert_eq!(groups(parallel).await, [2, 1, 1], "and does not end it");
        assert_eq!(
            groups([(one, MOST_BYTES * 2), (other, 1)]).await,
            [1, 1],
            "a large batch is stored alone"
        );
        let many = (0..MOST_AGENTS + 7).map(|_| (AgentId::generate(), 1));
        assert_eq!(groups(many).await, [MOST_AGENTS, 7]);
    }

    #[tokio::test]
    async fn a_full_queue_refuses_after_a_while_and_a_lost_writer_is_an_error() {
        let queue = Arc::new(ReportQueue::default());
        let send = |queue: Arc<ReportQueue>| async move { queue.store(batch(AgentId::generate()), 1).await };
        let waiting: Vec<_> = (0..QUEUE).map(|_| tokio::spawn(send(Arc::clone(&queue)))).collect();
        until(&queue, QUEUE).await;
        let refused = send(Arc::clone(&queue)).await.unwrap_err();
        assert_eq!(refused.status().as_u16(), 503);
        drop(queue.next_group().await);
        let mut waiting = waiting.into_iter();
        let lost = waiting.next().unwrap().await.unwrap().unwrap_err();
        assert_eq!(lost.status().as_u16(), 500);
        assert!(waiting.next_back().unwrap().now_or_never().is_none(), "the others still wait");
    }

    #[tokio::test]
    async fn a_second_batch_of_an_agent_is_put_aside_and_its_order_is_kept() {
        let [one, other] = [AgentId::generate(), AgentId::generate()];
        let queue = Arc::new(ReportQueue::default());
        // The sizes tell the batches apart.
        for (number, agent) in [one, one, other, one, other].into_iter().enumerate() {
            let sender = Arc::clone(&queue);
            tokio::spawn(async move { sender.store(batch(agent), number).await });
            until(&queue, number + 1).await;
        }
        let mut numbers = Vec::new();
        while let Some(group) = queue.next_group().now_or_never() {
            numbers.push(group.iter().map(|pending| pending.bytes).collect::<Vec<_>>());
        }
        assert_eq!(numbers, [vec![0, 2], vec![1, 4], vec![3]]);
        assert_eq!(queue.waiting(), 0);
        assert_eq!(queue.places.available_permits(), QUEUE);
    }

    #[tokio::test]
    async fn an_agent_has_few_places_and_gets_them_back_with_the_answers() {
        let (queue, agent) = (Arc::new(ReportQueue::default()), AgentId::generate());
        let send = move |queue: Arc<ReportQueue>| async move { queue.store(batch(agent), 1).await };
        let mut sent = VecDeque::new();
        for number in 0..MOST_OF_AGENT {
            sent.push_back(tokio::spawn(send(Arc::clone(&queue))));
            until(&queue, number + 1).await;
        }
        let refused = send(Arc::clone(&queue)).await.unwrap_err();
        assert_eq!(refused.status().as_u16(), 503);
        assert_eq!(queue.waiting(), MOST_OF_AGENT);

        let mut group = queue.next_group().await;
        let taken = group.pop_front().unwrap();
        let refused = send(Arc::clone(&queue)).await;
        assert!(refused.is_err(), "a batch that is being stored counts");
        taken.finish(Ok(StoredBatch { new: HashSet::new(), xid: 7 }));
        assert_eq!(sent.pop_front().unwrap().await.unwrap().unwrap().xid, 7);
        sent.push_back(tokio::spawn(send(Arc::clone(&queue))));
        until(&queue, MOST_OF_AGENT).await;

        while let Some(group) = queue.next_group().now_or_never() {
            group.into_iter().for_each(PendingBatch::refuse);
        }
        for answer in sent {
            assert_eq!(answer.await.unwrap().unwrap_err().status().as_u16(), 503);
        }
        assert!(queue.unanswered.counts().is_empty());
    }
}

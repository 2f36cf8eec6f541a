//! Views of a fleet, computed once for all callers that ask at the same time.
//!
//! One view is computed at a time, on a blocking thread: however many callers ask, views take one core at most. A caller has two of its
//! views under way at most, so that nobody waits for more than two of another caller; who would wait for long is refused. Streams wait
//! for their turn before, one stream of each caller at a time. A turn lasts twice as long as the view takes to compute, so that streams
//! take half a core at most.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use brokkr_api::ErrorCode;
use brokkr_api::fleet::FleetMatrix;
use moka::policy::EvictionPolicy;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;
use tokio::time::timeout;

use crate::error::ApiError;
use crate::index::{FleetCounts, Index, MatrixRequest};

/// A matrix takes up to 400 KiB.
const CAPACITY: u64 = 32;
/// A view with the same revision differs only in the time that it reflects.
const TTL: Duration = Duration::from_secs(1);

/// How long a caller waits for its own views, and then for those of others.
const PATIENCE: Duration = Duration::from_secs(3);
/// The views of one caller that are under way.
const REQUESTS_OF_CALLER: usize = 2;
/// The streams of one caller that wait for their turn.
const STREAMS_OF_CALLER: usize = 1;

#[derive(Debug, thiserror::Error)]
enum ViewError {
    #[error("other views are being computed")]
    Busy,
    #[error(transparent)]
    Failed(#[from] JoinError),
    #[error(transparent)]
    Closed(#[from] AcquireError),
}

/// The last views, by the revision that they show.
#[derive(Debug)]
pub struct Views {
    index: Arc<Index>,
    matrices: moka::future::Cache<(u64, MatrixRequest), Arc<FleetMatrix>>,
    counts: moka::future::Cache<(u64, String), FleetCounts>,
    computing: Arc<Semaphore>,
    turns: Arc<Semaphore>,
    requests: PerCaller,
    streams: PerCaller,
}

impl Views {
    #[must_use]
    pub fn new(index: Arc<Index>) -> Self {
        Self {
            index,
            matrices: cache(),
            counts: cache(),
            computing: Arc::new(Semaphore::new(1)),
            turns: Arc::new(Semaphore::new(1)),
            requests: PerCaller::new(REQUESTS_OF_CALLER),
            streams: PerCaller::new(STREAMS_OF_CALLER),
        }
    }

    /// Returns the number of the last change that a view may show.
    pub fn revision(&self) -> u64 {
        self.index.outcomes().revision()
    }

    /// Computes something else that takes long, for this caller.
    pub async fn compute<View: Send + 'static>(
        &self,
        principal: &str,
        view: impl FnOnce(&Index) -> View + Send + 'static,
    ) -> Result<View, ApiError> {
        self.request(principal, view).await.map_err(|error| refused(Arc::new(error)))
    }

    /// Returns the agents of every stack by the values of a label.
    pub async fn matrix(
        &self,
        principal: &str,
        request: MatrixRequest,
    ) -> Result<Arc<FleetMatrix>, ApiError> {
        let key = (self.revision(), request.clone());
        let compute = self.request(principal, move |index| Arc::new(index.matrix(&request)));
        self.matrices.try_get_with(key, compute).await.map_err(refused)
    }

    /// Returns the same to a stream, once it is its turn.
    pub async fn matrix_in_turn(
        &self,
        principal: &str,
        request: MatrixRequest,
    ) -> Result<Arc<FleetMatrix>, ApiError> {
        if let Some(known) = self.matrices.get(&(self.revision(), request.clone())).await {
            return Ok(known);
        }
        let closed = |error: AcquireError| refused(Arc::new(error.into()));
        // In this order: the other streams of the caller wait for this one, and not before those of others.
        let own = self.streams.of(principal).acquire_owned().await.map_err(closed)?;
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(closed)?;
        let mut took = Duration::ZERO;
        let key = (self.revision(), request.clone());
        let compute = async {
            let (matrix, time) = self.run(own, move |index| Arc::new(index.matrix(&request))).await?;
            took = time;
            Ok(matrix)
        };
        let matrix = self.matrices.try_get_with(key, compute).await;
        tokio::spawn(async move {
            tokio::time::sleep(took).await;
            drop(turn);
        });
        matrix.map_err(refused)
    }

    /// Returns the stacks of a project, and the agents that they reach.
    pub async fn counts(&self, principal: &str, project: &str) -> Result<FleetCounts, ApiError> {
        let project = project.to_owned();
        let key = (self.revision(), project.clone());
        let compute = self.request(principal, move |index| index.fleet_counts(&project));
        self.counts.try_get_with(key, compute).await.map_err(refused)
    }

    async fn request<View: Send + 'static>(
        &self,
        principal: &str,
        view: impl FnOnce(&Index) -> View + Send + 'static,
    ) -> Result<View, ViewError> {
        let own = timeout(PATIENCE, self.requests.of(principal).acquire_owned()).await;
        let own = own.map_err(|_| ViewError::Busy)??;
        Ok(self.run(own, view).await?.0)
    }

    /// Computes a view when no other caller does; also returns how long that took.
    async fn run<View: Send + 'static>(
        &self,
        own: OwnedSemaphorePermit,
        view: impl FnOnce(&Index) -> View + Send + 'static,
    ) -> Result<(View, Duration), ViewError> {
        let index = Arc::clone(&self.index);
        let turn = timeout(PATIENCE, Arc::clone(&self.computing).acquire_owned()).await;
        let turn = turn.map_err(|_| ViewError::Busy)??;
        let computed = tokio::task::spawn_blocking(move || {
            // Held by the work: if the caller disconnects, it is still running.
            let _permits = (own, turn);
            let begun = Instant::now();
            (view(&index), begun.elapsed())
        });
        Ok(computed.await?)
    }
}

/// Each revision is asked for once or twice. With the default policy, a view that was seldom asked for would not get into a full cache.
fn cache<Key, View>() -> moka::future::Cache<Key, View>
where
    Key: Hash + Eq + Send + Sync + 'static,
    View: Clone + Send + Sync + 'static,
{
    let cache = moka::future::Cache::builder().max_capacity(CAPACITY).time_to_live(TTL);
    cache.eviction_policy(EvictionPolicy::lru()).build()
}

/// What callers have under way.
#[derive(Debug)]
struct PerCaller {
    most: usize,
    by_principal: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl PerCaller {
    fn new(most: usize) -> Self {
        Self { most, by_principal: Mutex::default() }
    }

    /// Returns the permits of a caller.
    fn of(&self, principal: &str) -> Arc<Semaphore> {
        let mut by_principal = self.by_principal.lock().unwrap_or_else(PoisonError::into_inner);
        // The permits that are in use keep them alive.
        by_principal.retain(|_, permits| permits.strong_count() > 0);
        if let Some(known) = by_principal.get(principal).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::new(Semaphore::new(self.most));
        by_principal.insert(principal.to_owned(), Arc::downgrade(&new));
        new
    }
}

fn refused(error: Arc<ViewError>) -> ApiError {
    if matches!(*error, ViewError::Busy) {
        return ApiError::new(ErrorCode::BRK3008, "this replica computes the views of others").retry_after(1);
    }
    ApiError::new(ErrorCode::BRK9001, "the view could not be computed").because_shared(error)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use brokkr_api::InstallationId;

    use super::*;

    fn views() -> Views {
        Views::new(Arc::new(Index::new(InstallationId::generate())))
    }

    #[tokio::test]
    async fn a_caller_waits_for_at_most_two_views_of_another_one() {
        let views = Arc::new(views());
        let (release, released) = mpsc::channel::<()>();
        let (done, order) = mpsc::channel();
        let mut running = Vec::new();
        let mut released = Some(released);
        for name in ["many", "many", "many", "many", "one"] {
            let (views, done, wait) = (Arc::clone(&views), done.clone(), released.take());
            running.push(tokio::spawn(async move {
                let view = move |_: &Index| {
                    if let Some(wait) = wait {
                        let _ = wait.recv();
                    }
                    done.send(name)
                };
                views.compute(name, view).await.map(|_| ())
            }));
            // They ask in this order.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        release.send(()).unwrap();
        for one in running {
            one.await.unwrap().unwrap();
        }
        assert_eq!(order.try_iter().collect::<Vec<_>>(), ["many", "many", "one", "many", "many"]);
    }

    #[tokio::test]
    async fn only_a_stream_waits_for_its_turn() {
        let views = views();
        let _turn = Arc::clone(&views.turns).acquire_owned().await.unwrap();
        let request = MatrixRequest { project: "default".into(), by: None, selector: None };
        let waiting = timeout(Duration::from_millis(50), views.matrix_in_turn("one", request.clone()));
        assert!(waiting.await.is_err());
        views.matrix("one", request.clone()).await.unwrap();
        // What was computed for a request needs no turn.
        views.matrix_in_turn("one", request).await.unwrap();
    }
}

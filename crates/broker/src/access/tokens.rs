//! Caches API tokens for a few seconds, so that a busy pipeline does not cost a query per request.
//!
//! A revoked token is refused at once by the replica that revoked it, and by the others within [`CACHED_FOR`]. The guard
//! checks the expiry each time.
//!
//! Unknown tokens are cached as well, so that a caller that repeats a wrong token costs one query in [`CACHED_FOR`]. This
//! cannot refuse a token that was created a moment ago: the key is the hash of 256 random bits, so nobody can have asked
//! for it before it existed, and a token is returned to its owner only after its transaction has committed.

use std::sync::Arc;
use std::time::Duration;

use brokkr_api::tokens::WhoAmI;
use sqlx::PgPool;

use crate::error::ApiError;
use crate::store::StoreError;
use crate::store::api_tokens::api_token_find;
use crate::store::projects::project_exists;

/// How long a token is cached, and thus how long a revoked token may still be accepted by other replicas.
pub const CACHED_FOR: Duration = Duration::from_secs(5);
const CAPACITY: u64 = 10_000;
/// How long after its last use a token is looked up again without further conditions.
const REMEMBERED_FOR: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub struct Tokens {
    known: moka::future::Cache<[u8; 32], Arc<WhoAmI>>,
    /// Hashes that were looked up a moment ago and belong to no token.
    unknown: moka::future::Cache<[u8; 32], ()>,
    /// Hashes that belonged to a token when they were last looked up: their callers do not guess.
    remembered: moka::future::Cache<[u8; 32], ()>,
    projects: moka::future::Cache<String, ()>,
}

impl Default for Tokens {
    fn default() -> Self {
        Self {
            known: moka::future::Cache::builder().max_capacity(CAPACITY).time_to_live(CACHED_FOR).build(),
            unknown: moka::future::Cache::builder().max_capacity(CAPACITY).time_to_live(CACHED_FOR).build(),
            remembered: moka::future::Cache::builder()
                .max_capacity(CAPACITY)
                .time_to_idle(REMEMBERED_FOR)
                .build(),
            projects: moka::future::Cache::builder().max_capacity(CAPACITY).time_to_live(CACHED_FOR).build(),
        }
    }
}

/// Why a token or project is not cached.
#[derive(Debug)]
enum Miss {
    Absent,
    Failed(Arc<StoreError>),
}

impl Tokens {
    /// Returns the owner of the token with this hash, unless it was revoked. Concurrent requests share one query.
    /// `admit` has to succeed before a hash that was not seen before is looked up; its result is held until then.
    pub async fn find<P>(
        &self,
        pool: &PgPool,
        hash: [u8; 32],
        admit: impl Future<Output = Result<P, ApiError>>,
    ) -> Result<Option<Arc<WhoAmI>>, ApiError> {
        if let Some(who) = self.known.get(&hash).await {
            // Counts as a use.
            self.remembered.get(&hash).await;
            return Ok(Some(who));
        }
        if self.unknown.get(&hash).await.is_some() {
            return Ok(None);
        }
        let permit = if self.remembered.get(&hash).await.is_some() { None } else { Some(admit.await?) };
        // The same token may have been looked up meanwhile.
        if self.unknown.get(&hash).await.is_some() {
            return Ok(None);
        }
        let fetch = async {
            match api_token_find(pool, &hash).await {
                Ok(Some(who)) => Ok(Arc::new(who)),
                Ok(None) => Err(Miss::Absent),
                Err(error) => Err(Miss::Failed(Arc::new(error))),
            }
        };
        let found = found(self.known.try_get_with(hash, fetch).await)?;
        if found.is_some() {
            self.remembered.insert(hash, ()).await;
        } else {
            self.remembered.invalidate(&hash).await;
            self.unknown.insert(hash, ()).await;
        }
        drop(permit);
        Ok(found)
    }

    /// Returns whether the project exists.
    pub async fn project_exists(&self, pool: &PgPool, project: &str) -> Result<bool, Arc<StoreError>> {
        let fetch = async {
            match project_exists(pool, project).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(Miss::Absent),
                Err(error) => Err(Miss::Failed(Arc::new(error))),
            }
        };
        Ok(found(self.projects.try_get_with_by_ref(project, fetch).await)?.is_some())
    }

    /// Removes a token that was revoked here.
    pub async fn forget(&self, hash: &[u8]) {
        if let Ok(hash) = <[u8; 32]>::try_from(hash) {
            self.known.invalidate(&hash).await;
            self.remembered.invalidate(&hash).await;
        }
    }

    /// Removes a project that was deleted here.
    pub async fn forget_project(&self, project: &str) {
        self.projects.invalidate(project).await;
    }
}

fn found<T>(fetched: Result<T, Arc<Miss>>) -> Result<Option<T>, Arc<StoreError>> {
    match fetched {
        Ok(found) => Ok(Some(found)),
        Err(miss) => match &*miss {
            Miss::Absent => Ok(None),
            Miss::Failed(error) => Err(Arc::clone(error)),
        },
    }
}

//! Caches API tokens for a few seconds, so that a busy pipeline does not cost a query per request.
//!
//! A revoked token is refused at once by the replica that revoked it, and by the others within [`CACHED_FOR`]. The guard
//! checks the expiry each time. Misses are not cached.

use std::sync::Arc;
use std::time::Duration;

use brokkr_api::tokens::WhoAmI;
use sqlx::PgPool;

use crate::store::StoreError;
use crate::store::api_tokens::api_token_find;
use crate::store::projects::project_exists;

/// How long a token is cached, and thus how long a revoked token may still be accepted by other replicas.
pub const CACHED_FOR: Duration = Duration::from_secs(5);
const CAPACITY: u64 = 10_000;

#[derive(Debug)]
pub struct Tokens {
    known: moka::future::Cache<[u8; 32], Arc<WhoAmI>>,
    projects: moka::future::Cache<String, ()>,
}

impl Default for Tokens {
    fn default() -> Self {
        Self {
            known: moka::future::Cache::builder().max_capacity(CAPACITY).time_to_live(CACHED_FOR).build(),
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
    pub async fn find(&self, pool: &PgPool, hash: [u8; 32]) -> Result<Option<Arc<WhoAmI>>, Arc<StoreError>> {
        let fetch = async {
            match api_token_find(pool, &hash).await {
                Ok(Some(who)) => Ok(Arc::new(who)),
                Ok(None) => Err(Miss::Absent),
                Err(error) => Err(Miss::Failed(Arc::new(error))),
            }
        };
        found(self.known.try_get_with(hash, fetch).await)
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

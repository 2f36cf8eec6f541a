//! A bounded cache of the content of deployment objects: it never changes, and many agents fetch the same.

use std::sync::Arc;

use brokkr_api::{ErrorCode, SequenceId};
use sqlx::PgPool;

use super::Broker;
use crate::error::ApiError;
use crate::store::StoreError;
use crate::store::deployment_objects::{StoredObject, deployment_object_fetch_content};

const MOST_BYTES: u64 = 256 * 1024 * 1024;

#[derive(Debug)]
pub struct Contents {
    cache: moka::future::Cache<SequenceId, Arc<StoredObject>>,
}

impl Default for Contents {
    fn default() -> Self {
        let weigh = |_: &SequenceId, stored: &Arc<StoredObject>| {
            u32::try_from(stored.content.len()).unwrap_or(u32::MAX).saturating_add(512)
        };
        Self { cache: moka::future::Cache::builder().max_capacity(MOST_BYTES).weigher(weigh).build() }
    }
}

/// Refuses an object whose content was deleted by retention or a purge. Call it after checking the caller's permission.
pub fn present(stored: &StoredObject) -> Result<(), ApiError> {
    if stored.is_dropped {
        let detail =
            format!("the content of {} was deleted by retention or a purge", stored.object.sequence_id);
        return Err(ApiError::new(ErrorCode::BRK2019, detail));
    }
    Ok(())
}

/// Why an object is not cached.
#[derive(Debug)]
enum Miss {
    /// The object does not exist.
    Absent,
    Failed(Arc<StoreError>),
}

impl Contents {
    /// Returns an object; concurrent requests share one read, and its failure, too.
    pub async fn get(
        &self,
        pool: &PgPool,
        sequence_id: SequenceId,
    ) -> Result<Option<Arc<StoredObject>>, Arc<StoreError>> {
        let fetch = async {
            match deployment_object_fetch_content(pool, sequence_id).await {
                Ok(Some(found)) => Ok(Arc::new(found)),
                Ok(None) => Err(Miss::Absent),
                Err(error) => Err(Miss::Failed(Arc::new(error))),
            }
        };
        match self.cache.try_get_with(sequence_id, fetch).await {
            Ok(found) => Ok(Some(found)),
            Err(miss) => match &*miss {
                Miss::Absent => Ok(None),
                Miss::Failed(error) => Err(Arc::clone(error)),
            },
        }
    }
}

impl Broker {
    /// Returns an object. The contents of a deleted stack may be purged at any time, so they are not served from the
    /// cache.
    pub async fn stored_object(
        &self,
        sequence_id: SequenceId,
    ) -> Result<Option<Arc<StoredObject>>, Arc<StoreError>> {
        let Some(stored) = self.contents.get(&self.pool, sequence_id).await? else { return Ok(None) };
        let exists = self.index.snapshot().stack(stored.object.stack_id).is_some_and(|stack| !stack.deleted);
        if exists || stored.is_dropped {
            return Ok(Some(stored));
        }
        self.contents.cache.invalidate(&sequence_id).await;
        self.contents.get(&self.pool, sequence_id).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sqlx::postgres::PgPoolOptions;

    use super::*;

    #[tokio::test]
    async fn concurrent_requests_share_a_failure_of_the_database() {
        // Nothing listens on this port.
        let pool = PgPoolOptions::new()
            .acquire_timeout(Duration::from_millis(300))
            .connect_lazy("postgres://nobody@127.0.0.1:1/none")
            .unwrap();
        let contents = Contents::default();
        let requests = (0..10).map(|_| contents.get(&pool, SequenceId(1)));
        for result in futures::future::join_all(requests).await {
            assert!(result.unwrap_err().is_unavailable());
        }
    }
}

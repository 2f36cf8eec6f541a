//! Contents of deployment objects, in a bounded cache: they never change, and many agents ask for the same.

use std::sync::Arc;

use brokkr_api::SequenceId;
use sqlx::PgPool;

use crate::store::StoreError;
use crate::store::deployment_objects::{StoredObject, deployment_object_fetch_content};

const MOST_BYTES: u64 = 256 * 1024 * 1024;

#[derive(Debug)]
pub struct Contents {
    kept: moka::future::Cache<SequenceId, Arc<StoredObject>>,
}

impl Default for Contents {
    fn default() -> Self {
        let weigh = |_: &SequenceId, stored: &Arc<StoredObject>| {
            u32::try_from(stored.content.len()).unwrap_or(u32::MAX).saturating_add(512)
        };
        Self { kept: moka::future::Cache::builder().max_capacity(MOST_BYTES).weigher(weigh).build() }
    }
}

impl Contents {
    /// Reads it once, however many ask at the same time.
    pub async fn get(
        &self,
        pool: &PgPool,
        sequence_id: SequenceId,
    ) -> Result<Option<Arc<StoredObject>>, StoreError> {
        let mut failed = None;
        let fetch = async {
            match deployment_object_fetch_content(pool, sequence_id).await {
                Ok(found) => found.map(Arc::new),
                Err(error) => {
                    failed = Some(error);
                    None
                }
            }
        };
        let found = self.kept.optionally_get_with(sequence_id, fetch).await;
        failed.map_or(Ok(found), Err)
    }
}

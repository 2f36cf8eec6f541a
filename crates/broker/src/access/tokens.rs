//! API tokens, and the projects that requests name: cached for a few seconds.

use std::sync::Arc;

use brokkr_api::tokens::WhoAmI;
use sqlx::PgPool;

use super::credentials::{CACHED_FOR, CAPACITY, Credentials, Miss, found};
use crate::error::ApiError;
use crate::store::StoreError;
use crate::store::api_tokens::api_token_find;
use crate::store::projects::project_exists;

#[derive(Debug)]
pub struct Tokens {
    tokens: Credentials<WhoAmI>,
    projects: moka::future::Cache<String, ()>,
}

impl Default for Tokens {
    fn default() -> Self {
        let projects = moka::future::Cache::builder().max_capacity(CAPACITY).time_to_live(CACHED_FOR).build();
        Self { tokens: Credentials::default(), projects }
    }
}

impl Tokens {
    /// Returns the owner of the token with this hash, unless it was revoked.
    pub async fn find<P>(
        &self,
        pool: &PgPool,
        hash: [u8; 32],
        admit: impl Future<Output = Result<P, ApiError>>,
    ) -> Result<Option<Arc<WhoAmI>>, ApiError> {
        self.tokens.find(hash, admit, api_token_find(pool, &hash)).await
    }

    /// Returns whether the project exists.
    pub async fn project_exists(&self, pool: &PgPool, project: &str) -> Result<bool, Arc<StoreError>> {
        let fetch = async { if project_exists(pool, project).await? { Ok(()) } else { Err(Miss::Absent) } };
        Ok(found(self.projects.try_get_with_by_ref(project, fetch).await)?.is_some())
    }

    /// Removes a token that was changed here, so that it is looked up again.
    pub async fn forget(&self, hash: &[u8]) {
        self.tokens.forget(hash).await;
    }

    /// Refuses a token that was revoked here.
    pub async fn refuse(&self, hash: &[u8]) {
        self.tokens.refuse(hash).await;
    }

    /// Removes a project that was deleted here.
    pub async fn forget_project(&self, project: &str) {
        self.projects.invalidate(project).await;
    }
}

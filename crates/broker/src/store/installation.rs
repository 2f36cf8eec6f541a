//! Which installation this is: the audience of assertions.

use brokkr_api::InstallationId;
use sqlx::PgPool;

use super::{Doing as _, StoreError};

pub async fn installation_fetch(pool: &PgPool) -> Result<InstallationId, StoreError> {
    sqlx::query_scalar("SELECT id FROM installation")
        .fetch_one(pool)
        .await
        .map(InstallationId)
        .doing("read the installation")
}

/// Whether the database answers at all.
pub async fn installation_reachable(pool: &PgPool) -> Result<(), StoreError> {
    sqlx::query("SELECT 1").execute(pool).await.map(|_| ()).doing("reach the database")
}

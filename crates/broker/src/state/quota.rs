//! Quotas of a project: a request beyond them is refused, with the usage and the limit.
//!
//! The usage is a sum of few rows. For submissions it is cached for a second, so concurrent submissions may
//! slightly exceed the limit. For everything else it is exact.

use std::sync::Arc;
use std::time::Duration;

use brokkr_api::ErrorCode;
use brokkr_api::projects::{Project, Quotas};
use sqlx::{PgConnection, PgPool};

use crate::error::ApiError;
use crate::store::StoreError;
use crate::store::projects::project_fetch;

const CACHED_FOR: Duration = Duration::from_secs(1);
const CAPACITY: u64 = 10_000;

/// The kind of object that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    Stack,
    Token,
    Webhook,
}

#[derive(Debug)]
pub struct Usage {
    known: moka::future::Cache<String, Option<Arc<Project>>>,
}

impl Default for Usage {
    fn default() -> Self {
        Self { known: moka::future::Cache::builder().max_capacity(CAPACITY).time_to_live(CACHED_FOR).build() }
    }
}

impl Usage {
    /// Refuses a submission of this size if it would exceed a quota. Called before its transaction.
    pub async fn submission(&self, pool: &PgPool, project: &str, bytes: u64) -> Result<(), ApiError> {
        let fetch = async { project_fetch(pool, project).await.map(|found| found.map(Arc::new)) };
        let found = self.known.try_get_with_by_ref(project, fetch).await;
        let found = found.map_err(|error: Arc<StoreError>| ApiError::from(error))?;
        let Some(found) = found else { return Ok(()) };
        let submitted = |quotas: &Quotas| quotas.submissions_per_hour;
        within(&found, "submissions in this hour", submitted, 1)?;
        within(&found, "stored bytes", |quotas| quotas.stored_bytes, bytes)
    }
}

/// Called after an object was added in this transaction: fails if the project now exceeds a quota.
pub async fn quota_check_on_conn(
    connection: &mut PgConnection,
    project: &str,
    added: Added,
) -> Result<(), ApiError> {
    let Some(found) = project_fetch(connection, project).await? else { return Ok(()) };
    match added {
        Added::Stack => within(&found, "stacks", |quotas| quotas.stacks, 0),
        Added::Token => within(&found, "tokens", |quotas| quotas.tokens, 0),
        Added::Webhook => within(&found, "webhooks", |quotas| quotas.webhooks, 0),
    }
}

fn within(project: &Project, what: &str, read: fn(&Quotas) -> u64, more: u64) -> Result<(), ApiError> {
    let (used, allowed) = (read(&project.used).saturating_add(more), read(&project.allowed));
    if used <= allowed {
        return Ok(());
    }
    let detail = format!("with this, the project {} would use {used} of {allowed} {what}", project.name);
    Err(ApiError::new(ErrorCode::BRK1007, detail))
}

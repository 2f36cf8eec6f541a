//! Everything that a start needs from the database. It is repeated as a whole until it succeeds: the database may start at
//! the same time as the broker, fail over in the middle, or be unreachable for an hour. Only a wrong configuration
//! ends the start.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use brokkr_api::InstallationId;
use jiff::Timestamp;
use sqlx::PgPool;

use super::ServeError;
use crate::access::positions::Positions;
use crate::index::Index;
use crate::state::history::History;
use crate::state::restore::RestoreState;
use crate::state::tail_notifier::TailNotifier;
use crate::store::installation::{installation_fetch, installation_position_key};
use crate::store::privileges::privileges_check;
use crate::store::schema::schema_check;
use crate::store::{connect, pools_transactions};
use crate::tasks::audit_retention::create_ahead;
use crate::tasks::outbox_tail::{Cursor, OutboxTail};

/// Tasks have their own connections, so that requests cannot delay them.
const TASK_CONNECTIONS: u32 = 8;
/// Webhooks have their own connections, so that slow receivers cannot delay the outbox tail.
const WEBHOOK_CONNECTIONS: u32 = 3;
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// The open database, and what was loaded from it.
#[derive(Debug)]
pub(super) struct Database {
    pub pool: PgPool,
    pub task_pool: PgPool,
    pub webhook_pool: PgPool,
    pub installation: InstallationId,
    pub positions: Positions,
    pub index: Arc<Index>,
    pub notifier: TailNotifier,
    pub history: History,
    pub outbox_tail: OutboxTail,
    pub cursor: Cursor,
    pub restore: RestoreState,
}

impl Database {
    /// Opens the database, and retries for as long as it is unavailable.
    pub(super) async fn open(url: &str, connections: u32) -> Result<Self, ServeError> {
        let mut delays = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(250))
            .with_max_delay(LONGEST_DELAY)
            .with_jitter()
            .without_max_times()
            .build();
        loop {
            match Self::attempt(url, connections).await {
                Err(error) if error.is_unavailable() => {
                    let delay = delays.next().unwrap_or(LONGEST_DELAY);
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "failed to open the database; retrying in {delay:?}"
                    );
                    tokio::time::sleep(delay).await;
                }
                opened => return opened,
            }
        }
    }

    async fn attempt(url: &str, connections: u32) -> Result<Self, ServeError> {
        if pools_transactions(url).await? {
            return Err(ServeError::TransactionPooling);
        }
        let pool = connect(url, connections).await?;
        let role = privileges_check(&pool).await?;
        if !role.missing.is_empty() {
            return Err(ServeError::MissingPrivileges(role));
        }
        schema_check(&pool).await?;
        let task_pool = connect(url, TASK_CONNECTIONS).await?;
        let webhook_pool = connect(url, WEBHOOK_CONNECTIONS).await?;
        // Before anyone writes: an entry on its way to the default partition is refused if the partition of its month
        // appears meanwhile.
        if let Err(error) = create_ahead(&task_pool, Timestamp::now()).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to create partitions of the audit log; retrying later"
            );
        }
        let installation = installation_fetch(&pool).await?;
        let positions = Positions::new(installation, &installation_position_key(&pool).await?);
        let index = Arc::new(Index::new(installation));
        let notifier = TailNotifier::default();
        let history = History::default();
        let restore = RestoreState::default();
        let outbox_tail = OutboxTail::new(
            task_pool.clone(),
            Arc::clone(&index),
            notifier.clone(),
            history.clone(),
            restore.clone(),
        );
        let cursor = outbox_tail.load().await?;
        restore.refresh(&pool).await?;
        Ok(Self {
            pool,
            task_pool,
            webhook_pool,
            installation,
            positions,
            index,
            notifier,
            history,
            outbox_tail,
            cursor,
            restore,
        })
    }
}

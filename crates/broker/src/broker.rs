//! What every handler may reach: one struct, built once by `serve`.

use std::sync::Arc;
use std::time::Duration;

use brokkr_api::audit::AuditKind;
use brokkr_api::protocol::CATCH_UP_SECONDS;
use brokkr_api::{ErrorCode, InstallationId, Position};
use http::StatusCode;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::access::assertion::Assertions;
use crate::access::audit::Deed;
use crate::access::caller::Caller;
use crate::access::limits::Limits;
use crate::access::origin::{Network, Origin};
use crate::access::tokens::Tokens;
use crate::http::contents::Contents;
use crate::http::error::ApiError;
use crate::http::quota::Usage;
use crate::index::Index;
use crate::store::audit::audit_insert;
use crate::tasks::outbox_tail::Poke;
use crate::tasks::presence::Presence;
use crate::tasks::refusals::Refusals;

#[derive(Debug)]
pub struct Broker {
    pub pool: PgPool,
    pub installation: InstallationId,
    pub index: Arc<Index>,
    /// Tells the tail that a transaction was committed here.
    pub poke: Poke,
    pub presence: Presence,
    pub assertions: Assertions,
    pub tokens: Tokens,
    pub limits: Limits,
    pub usage: Usage,
    /// Takes refused attempts to the audit log.
    pub refusals: Refusals,
    /// Whose word about addresses is believed.
    pub trusted_proxies: Vec<Network>,
    pub contents: Contents,
    /// Cancelled when this replica is told to stop: long polls are answered, no new ones wait.
    pub draining: CancellationToken,
}

/// Whether this replica has seen what a caller has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Reached,
    /// Not within the time that a request waits.
    Behind,
    /// A fresh look knows of no such transaction: the database has gone back, and nobody said so.
    Unheard,
}

impl Broker {
    /// Waits until this replica has seen what the caller has already seen, so that nobody is sent back
    /// in time by being served by another replica.
    pub async fn catch_up(&self, position: Option<Position>) -> Result<(), ApiError> {
        let Some(wanted) = position else { return Ok(()) };
        match self.progress(wanted).await {
            Progress::Reached => Ok(()),
            Progress::Behind => Err(self.behind(wanted)),
            Progress::Unheard => {
                let here = self.index.position();
                tracing::error!(%wanted, %here, "an agent has seen more than this database holds");
                let detail = format!("the agent has seen {wanted}, the database is at {here}");
                Err(ApiError::new(ErrorCode::BRK3004, detail))
            }
        }
    }

    /// Waits for the position, and tells what came of it.
    pub async fn progress(&self, wanted: Position) -> Progress {
        let at_most = Duration::from_secs(CATCH_UP_SECONDS);
        if self.index.position() >= wanted || self.index.reached(wanted, at_most).await {
            return Progress::Reached;
        }
        let seen = self.index.seen();
        let fresh = seen.at.elapsed() < at_most;
        let ahead = wanted.epoch > seen.position.epoch
            || (wanted.epoch == seen.position.epoch && wanted.horizon > seen.ceiling);
        if fresh && ahead { Progress::Unheard } else { Progress::Behind }
    }

    /// Notes that values of Secrets are about to be shown to a person or machine. They are not, if it cannot.
    pub async fn note_secrets_read(&self, caller: &Caller, origin: &Origin) -> Result<(), ApiError> {
        let deed = Deed::new(AuditKind::SecretsRead, Some(caller), origin, StatusCode::OK);
        audit_insert(&self.pool, &[deed]).await?;
        Ok(())
    }

    pub fn behind(&self, wanted: Position) -> ApiError {
        let detail = format!("{wanted} is wanted, this replica is at {}", self.index.position());
        ApiError::new(ErrorCode::BRK3002, detail).retry_after(1)
    }

    /// Seconds over which agents should spread a reconnect: about a thousand a second.
    pub fn reconnect_spread(&self) -> u64 {
        let agents = u64::try_from(self.index.picture().agents()).unwrap_or(u64::MAX);
        (agents / 1000 + 1).min(600)
    }
}

//! What every handler may reach: one struct, built once by `serve`.

use std::sync::Arc;
use std::time::Duration;

use brokkr_api::audit::AuditKind;
use brokkr_api::protocol::CATCH_UP_SECONDS;
use brokkr_api::{AgentId, ErrorCode, InstallationId, Position};
use http::StatusCode;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::access::assertion::Assertions;
use crate::access::audit::Deed;
use crate::access::caller::Caller;
use crate::access::limits::RateLimits;
use crate::access::origin::{Network, Origin};
use crate::access::tokens::Tokens;
use crate::http::contents::Contents;
use crate::http::error::ApiError;
use crate::http::quota::Usage;
use crate::index::Index;
use crate::metrics::{FleetCount, Metrics};
use crate::store::audit::audit_insert;
use crate::store::installation::installation_hold;
use crate::tasks::event_tail::Streams;
use crate::tasks::outbox_tail::Poke;
use crate::tasks::presence::Presence;
use crate::tasks::refusals::Refusals;
use crate::tasks::standing::Standing;
use crate::tasks::webhooks::Webhooks;

/// The tail looks several times a second: after this, it cannot.
const STALE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub struct Broker {
    pub pool: PgPool,
    pub installation: InstallationId,
    pub index: Arc<Index>,
    /// Tells the tail that a transaction was committed here.
    pub poke: Poke,
    pub presence: Presence,
    /// Whether the installation is on hold, and what agents are asked for since a restore.
    pub standing: Standing,
    /// Where watch streams get their events from.
    pub streams: Streams,
    pub assertions: Assertions,
    pub tokens: Tokens,
    pub limits: RateLimits,
    pub usage: Usage,
    /// Takes refused attempts to the audit log.
    pub refusals: Refusals,
    /// Whose word about addresses is believed.
    pub trusted_proxies: Vec<Network>,
    pub contents: Contents,
    pub webhooks: Arc<Webhooks>,
    pub metrics: Metrics,
    pub fleet: FleetCount,
    /// Cancelled when this replica is told to stop: it still serves, and sends callers elsewhere.
    pub leaving: CancellationToken,
    /// Cancelled a little later: long polls are answered, no new ones wait.
    pub draining: CancellationToken,
    /// Over how long those who wait are then answered.
    pub drain_spread: Duration,
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
    /// in time by being served by another replica. Anybody with a token can claim to have seen the future: that is
    /// told, and holds nobody up.
    pub async fn catch_up(&self, position: Option<Position>) -> Result<(), ApiError> {
        let Some(wanted) = position else { return Ok(()) };
        match self.progress(wanted).await {
            Progress::Reached => Ok(()),
            Progress::Behind => Err(self.behind(wanted)),
            Progress::Unheard => {
                let here = self.index.position();
                let detail = format!("the caller has seen {wanted}, the database is at {here}");
                Err(ApiError::new(ErrorCode::BRK3004, detail))
            }
        }
    }

    /// The same for target states: an agent that has seen more than the database holds raises the alarm.
    pub async fn catch_up_for(&self, caller: &Caller, position: Option<Position>) -> Result<(), ApiError> {
        match (caller, position) {
            (Caller::Agent(agent), Some(wanted)) => match self.progress(wanted).await {
                Progress::Reached => Ok(()),
                Progress::Behind => Err(self.behind(wanted)),
                Progress::Unheard => Err(self.alarm(agent.id, wanted).await),
            },
            _ => self.catch_up(position).await,
        }
    }

    /// An agent has seen what the database does not know of: nothing goes on until an operator has raised the epoch.
    async fn alarm(&self, agent: AgentId, seen: Position) -> ApiError {
        let here = self.index.position();
        let name = self.index.picture().agent(agent).map(|agent| agent.name.clone()).unwrap_or_default();
        let because = format!("the agent {name} ({agent}) has seen {seen}, the database is at {here}");
        match installation_hold(&self.pool, seen, &because).await {
            Ok(Some(hold)) => {
                tracing::error!(because, "the database has gone back: on hold until the epoch is raised");
                self.standing.note_hold(hold);
                self.held()
            }
            // The database, asked again, knows of it: only this replica did not.
            Ok(None) => self.behind(seen),
            Err(error) => error.into(),
        }
    }

    /// Told to everybody who wants something new, or to change something, while on hold.
    #[must_use]
    pub fn held(&self) -> ApiError {
        let detail = match self.standing.hold() {
            Some(hold) => format!("on hold since {:.0}, because {}", hold.since, hold.because),
            None => "on hold".to_owned(),
        };
        ApiError::new(ErrorCode::BRK3005, detail).retry_after(self.reconnect_spread().clamp(2, 60))
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

    /// Returns at some moment of the drain: those who wait are sent away one after the other, so that they do
    /// not all come to the next replica at once.
    pub async fn sent_away(&self) {
        self.draining.cancelled().await;
        tokio::time::sleep(self.drain_spread.mul_f64(rand::random::<f64>())).await;
    }

    /// Notes what is about to be done and changes nothing here, such as showing values of Secrets. If it cannot be noted,
    /// it is not done.
    pub async fn note(&self, kind: AuditKind, caller: &Caller, origin: &Origin) -> Result<(), ApiError> {
        let deed = Deed::new(kind, Some(caller), origin, StatusCode::OK);
        audit_insert(&self.pool, &[deed]).await?;
        Ok(())
    }

    pub fn behind(&self, wanted: Position) -> ApiError {
        let detail = format!("{wanted} is wanted, this replica is at {}", self.index.position());
        ApiError::new(ErrorCode::BRK3002, detail).retry_after(1)
    }

    /// Seconds since the database was last seen, if polls are answered from what was known then.
    pub fn stale(&self) -> Option<u64> {
        let age = self.index.seen().at.elapsed();
        (age > STALE).then_some(age.as_secs())
    }

    /// Seconds over which agents should spread a reconnect: about a thousand a second.
    pub fn reconnect_spread(&self) -> u64 {
        let agents = u64::try_from(self.index.picture().agents()).unwrap_or(u64::MAX);
        (agents / 1000 + 1).min(600)
    }
}

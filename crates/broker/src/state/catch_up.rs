//! Waiting until this replica has seen what a caller has already seen.
//!
//! A caller never goes back in time when another replica serves it. An agent that has seen more than the
//! database contains reveals a restore; the installation is then put on hold.

use std::time::Duration;

use brokkr_api::protocol::CATCH_UP_SECONDS;
use brokkr_api::{AgentId, ErrorCode, Position};

use super::Broker;
use crate::access::caller::Caller;
use crate::error::ApiError;
use crate::store::installation::{installation_hold, installation_state};

/// The tail reads several times a second. After this time without a read, the index counts as stale.
const STALE: Duration = Duration::from_secs(3);

/// Whether this replica has seen what a caller has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Reached,
    /// Not within the time that a request waits.
    Behind,
    /// A fresh snapshot of the database does not know the caller's position: the database was restored to an
    /// earlier state.
    Unknown,
}

impl Broker {
    /// Waits until this replica has seen what the caller has seen. Any token can claim to have seen a
    /// position that does not exist yet, so such a claim only makes the request fail.
    pub async fn catch_up(&self, position: Option<Position>) -> Result<(), ApiError> {
        let Some(wanted) = position else { return Ok(()) };
        match self.progress(wanted).await {
            Progress::Reached => Ok(()),
            Progress::Behind => Err(self.behind(wanted)),
            Progress::Unknown => {
                let here = self.index.position();
                let detail = format!("the caller has seen position {wanted}, but the database is at {here}");
                Err(ApiError::new(ErrorCode::BRK3004, detail))
            }
        }
    }

    /// Does the same for requests for target states. Here an agent that has seen more than the database
    /// contains triggers a hold.
    pub async fn catch_up_for(&self, caller: &Caller, position: Option<Position>) -> Result<(), ApiError> {
        match (caller, position) {
            (Caller::Agent(agent), Some(wanted)) => match self.progress(wanted).await {
                Progress::Reached => Ok(()),
                Progress::Behind => Err(self.behind(wanted)),
                Progress::Unknown => Err(self.hold_for(agent.id, wanted).await),
            },
            _ => self.catch_up(position).await,
        }
    }

    /// Waits until this replica has seen everything that is committed now. Call it before a refusal that would be wrong if
    /// this replica were behind.
    pub async fn index_is_current(&self) -> Result<(), ApiError> {
        let state = installation_state(&self.pool).await?;
        let wanted = Position { epoch: state.epoch, horizon: state.ceiling };
        let reached = self.index.reached(wanted, Duration::from_secs(CATCH_UP_SECONDS)).await;
        if reached { Ok(()) } else { Err(self.behind(wanted)) }
    }

    /// Puts the installation on hold until an operator raises the epoch.
    async fn hold_for(&self, agent: AgentId, seen: Position) -> ApiError {
        let here = self.index.position();
        let name = self.index.snapshot().agent(agent).map(|agent| agent.name.clone()).unwrap_or_default();
        let because =
            format!("the agent {name} ({agent}) has seen position {seen}, but the database is at {here}");
        match installation_hold(&self.pool, seen, &because).await {
            Ok(Some(hold)) => {
                tracing::error!(
                    because,
                    "database was restored to an earlier state; on hold until the epoch is raised"
                );
                self.restore.set_hold(hold);
                self.held()
            }
            // The database knows the position after all; only this replica did not.
            Ok(None) => self.behind(seen),
            Err(error) => error.into(),
        }
    }

    /// Returns the error for requests that are refused while on hold.
    #[must_use]
    pub fn held(&self) -> ApiError {
        let detail = match self.restore.hold() {
            Some(hold) => format!("on hold since {:.0}, because {}", hold.since, hold.because),
            None => "on hold".to_owned(),
        };
        ApiError::new(ErrorCode::BRK3005, detail).retry_after(self.reconnect_spread().clamp(2, 60))
    }

    /// Waits for the position and returns the outcome.
    pub async fn progress(&self, wanted: Position) -> Progress {
        let at_most = Duration::from_secs(CATCH_UP_SECONDS);
        if self.index.position() >= wanted || self.index.reached(wanted, at_most).await {
            return Progress::Reached;
        }
        let seen = self.index.freshness();
        let fresh = seen.at.elapsed() < at_most;
        let ahead = wanted.epoch > seen.position.epoch
            || (wanted.epoch == seen.position.epoch && wanted.horizon > seen.ceiling);
        if fresh && ahead { Progress::Unknown } else { Progress::Behind }
    }

    /// Returns the error for a replica that has not reached the position yet.
    pub fn behind(&self, wanted: Position) -> ApiError {
        let detail =
            format!("this replica is at position {}, but the request needs {wanted}", self.index.position());
        ApiError::new(ErrorCode::BRK3002, detail).retry_after(1)
    }

    /// Returns the seconds since the database was last read, if the index counts as stale.
    pub fn stale(&self) -> Option<u64> {
        let age = self.index.freshness().at.elapsed();
        (age > STALE).then_some(age.as_secs())
    }
}

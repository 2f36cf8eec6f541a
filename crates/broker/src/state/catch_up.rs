//! Waiting until this replica has seen what a caller has already seen.
//!
//! A caller never goes back in time when another replica serves it. A caller that proves that it has seen more than the
//! database contains reveals a restore; the installation is then put on hold.

use std::time::Duration;

use brokkr_api::audit::RefusalReason;
use brokkr_api::protocol::CATCH_UP_SECONDS;
use brokkr_api::system::HoldCause;
use brokkr_api::{ErrorCode, Position, PositionToken};

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
    /// Waits until this replica has seen what the caller has seen. A position that the database does not know puts the
    /// installation on hold if the broker issued it. Any other is made up and refused at once, and affects no other caller.
    pub async fn catch_up(&self, caller: &Caller, shown: Option<PositionToken>) -> Result<(), ApiError> {
        let Some(shown) = shown.filter(|shown| shown.position > self.index.position()) else { return Ok(()) };
        let wanted = shown.position;
        if !self.access.positions.is_issued(&shown) {
            self.metrics.position_refused();
            let detail = format!("this broker did not issue the position {wanted}, which is ahead of it");
            return Err(ApiError::new(ErrorCode::BRK1012, detail).refused_for(RefusalReason::ForgedPosition));
        }
        match self.progress(wanted).await {
            Progress::Reached => Ok(()),
            Progress::Behind => Err(self.behind(wanted)),
            Progress::Unknown => Err(self.hold_for(caller, wanted).await),
        }
    }

    /// Waits until this replica has seen everything that is committed now. Call it before a refusal that would be wrong if
    /// this replica were behind.
    pub async fn index_is_current(&self) -> Result<(), ApiError> {
        let state = installation_state(&self.pool).await?;
        let wanted = state.position();
        let reached = self.index.reached(wanted, Duration::from_secs(CATCH_UP_SECONDS)).await;
        if reached { Ok(()) } else { Err(self.behind(wanted)) }
    }

    /// Puts the installation on hold until its epoch is raised.
    async fn hold_for(&self, caller: &Caller, seen: Position) -> ApiError {
        let cause = self.hold_cause(caller, seen);
        match installation_hold(&self.pool, seen, &cause).await {
            Ok(Some(hold)) => {
                tracing::error!(
                    because = hold.because,
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

    fn hold_cause(&self, caller: &Caller, seen: Position) -> HoldCause {
        let freshness = self.index.freshness();
        let database = Position { epoch: freshness.position.epoch, horizon: freshness.ceiling };
        match caller {
            Caller::Agent(agent) => {
                let name = self.index.snapshot().agent(agent.id).map(|agent| agent.name.to_string());
                let agent_name = name.unwrap_or_default();
                HoldCause::AgentAhead { agent_id: agent.id, agent_name, seen, database }
            }
            Caller::Token(token) => HoldCause::TokenAhead {
                token_id: token.token_id,
                token_name: token.name.clone(),
                project: token.project.clone(),
                seen,
                database,
            },
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

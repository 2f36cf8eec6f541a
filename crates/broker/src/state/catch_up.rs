//! Waiting until this replica has seen what a caller has already seen.
//!
//! A caller never goes back in time when another replica serves it. A caller that proves that it has seen more than the
//! database contains reveals a restore; the installation is then put on hold.

use std::time::Duration;

use brokkr_api::audit::RefusalReason;
use brokkr_api::protocol::CATCH_UP_SECONDS;
use brokkr_api::system::{Hold, HoldCause, Witness};
use brokkr_api::{ErrorCode, HistoryMark, Position, PositionToken};

use super::Broker;
use crate::access::caller::Caller;
use crate::error::ApiError;
use crate::store::history_marks::{MarkLookup, history_mark_look_up};
use crate::store::installation::{installation_hold, installation_hold_without_marks, installation_state};

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
        if !self.is_known_history(shown) {
            self.check_history(caller, shown).await?;
        }
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
            Progress::Unknown => self.hold_for(caller, wanted).await,
        }
    }

    /// Returns whether the database is known to have the caller's mark, or the mark does not matter: the installation is
    /// on hold already, or its epoch was raised since.
    #[must_use]
    pub fn is_known_history(&self, shown: Option<PositionToken>) -> bool {
        shown.is_none_or(|shown| {
            shown.mark == HistoryMark::default()
                || shown.position.epoch != self.history.epoch()
                || self.history.has(shown.mark)
                || self.restore.is_held()
        })
    }

    /// Looks up the caller's mark. A database that has lost it has lost what the caller has seen, and the installation is put
    /// on hold, if the broker issued the mark in this epoch.
    pub async fn check_history(&self, caller: &Caller, shown: Option<PositionToken>) -> Result<(), ApiError> {
        let Some(shown) = shown.filter(|shown| self.access.positions.is_issued(shown)) else { return Ok(()) };
        let recent = self.history.recent();
        match history_mark_look_up(&self.pool, shown.mark, &recent.marks).await? {
            MarkLookup::Known => {
                // If there are later marks by now, this one is looked up again by the next poll.
                self.history.record(&recent, &[shown.mark]);
                return Ok(());
            }
            MarkLookup::OtherHistory => return Err(self.behind(shown.position)),
            MarkLookup::Lost => {}
        }
        let cause = HoldCause::HistoryLost { witness: self.witness(caller), at: shown.mark.time() };
        let hold =
            installation_hold_without_marks(&self.pool, shown.position.epoch, &[shown.mark], &cause).await?;
        self.on_hold(hold, shown.position)
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
    async fn hold_for(&self, caller: &Caller, seen: Position) -> Result<(), ApiError> {
        let freshness = self.index.freshness();
        let database = Position { epoch: freshness.position.epoch, horizon: freshness.ceiling };
        let cause = HoldCause::Ahead { witness: self.witness(caller), seen, database };
        let hold = installation_hold(&self.pool, seen, &cause).await?;
        self.on_hold(hold, seen)
    }

    /// Returns the error for a caller that has seen more than the database has. Without a hold, the database knows it after
    /// all; only this replica did not.
    fn on_hold(&self, hold: Option<Hold>, seen: Position) -> Result<(), ApiError> {
        let Some(hold) = hold else { return Err(self.behind(seen)) };
        tracing::error!(
            because = hold.because,
            "the database has lost what was shown; on hold until the epoch is raised"
        );
        self.restore.set_hold(hold);
        Err(self.held())
    }

    fn witness(&self, caller: &Caller) -> Witness {
        match caller {
            Caller::Agent(agent) => {
                let name = self.index.snapshot().agent(agent.id).map(|agent| agent.name.to_string());
                Witness::Agent { agent_id: agent.id, agent_name: name.unwrap_or_default() }
            }
            Caller::Token(token) => Witness::Token {
                token_id: token.token_id,
                token_name: token.name.clone(),
                project: token.project.clone(),
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

//! The state of the installation after a restore: whether it is on hold, and which agents have to report what they hold.
//! Kept in memory, because every poll reads it; empty in an installation that was never restored.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use brokkr_api::system::{Hold, HoldCause, Witness};
use brokkr_api::{AgentId, Position};
use sqlx::PgPool;

use crate::store::StoreError;
use crate::store::installation::{installation_hold, installation_state};
use crate::store::restore::restore_agents_to_report;

/// The list of agents that have to report is read again after this many refreshes, because agents also report to other
/// replicas. Asking an agent twice does no harm.
const REFRESHES_BETWEEN_LISTS: u32 = 60;

/// The restore state of one agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentRestoreState {
    /// The epoch that this state belongs to.
    pub epoch: i64,
    pub held: bool,
    /// The agent has to report what it holds.
    pub must_report_holds: bool,
}

/// The restore state of the installation.
#[derive(Clone, Debug, Default)]
pub struct RestoreState {
    current: Arc<RwLock<Current>>,
}

#[derive(Debug, Default)]
struct Current {
    epoch: i64,
    hold: Option<Hold>,
    /// How often all agents had been asked to report what they hold when the list was last read.
    asked: i64,
    must_report: HashSet<AgentId>,
    /// The highest position of the database that this process has seen.
    highest: Position,
    refreshes: u32,
    /// Counts holds that were set by this process.
    holds_set: u64,
}

impl RestoreState {
    #[must_use]
    pub fn for_agent(&self, agent: AgentId) -> AgentRestoreState {
        let current = self.read();
        AgentRestoreState {
            epoch: current.epoch,
            held: current.hold.is_some(),
            must_report_holds: current.must_report.contains(&agent),
        }
    }

    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        self.read().hold.clone()
    }

    #[must_use]
    pub fn is_held(&self) -> bool {
        self.read().hold.is_some()
    }

    pub fn set_hold(&self, hold: Hold) {
        let mut current = self.write();
        current.hold = Some(hold);
        current.holds_set += 1;
    }

    /// Records that the agent has to report what it holds, before the list is read again.
    pub fn must_report_holds(&self, agent: AgentId) {
        self.write().must_report.insert(agent);
    }

    /// Records that the agent has reported what it holds.
    pub fn holds_reported(&self, agent: AgentId) {
        self.write().must_report.remove(&agent);
    }

    /// Reads the state from the database. Puts the installation on hold if the database is behind what this process has
    /// already seen.
    pub async fn refresh(&self, pool: &PgPool) -> Result<(), StoreError> {
        let (highest, holds_set) = {
            let current = self.read();
            (current.highest, current.holds_set)
        };
        let mut found = installation_state(pool).await?;
        if found.hold.is_none() && found.is_below(highest) {
            let cause =
                HoldCause::Ahead { witness: Witness::Replica, seen: highest, database: found.position() };
            found.hold = installation_hold(pool, highest, &cause).await?;
            tracing::error!(
                because = %cause,
                "database was restored to an earlier state; on hold until the epoch is raised"
            );
        }
        let list_due = {
            let current = self.read();
            current.asked != found.asked
                || (!current.must_report.is_empty() && current.refreshes >= REFRESHES_BETWEEN_LISTS)
        };
        let must_report = if list_due { Some(restore_agents_to_report(pool).await?) } else { None };
        let mut current = self.write();
        current.highest = highest.max(found.position());
        current.epoch = found.epoch;
        // A hold that was set after the state was read stays until the next refresh.
        if current.holds_set == holds_set {
            current.hold = found.hold;
        }
        current.asked = found.asked;
        current.refreshes += 1;
        if let Some(must_report) = must_report {
            (current.must_report, current.refreshes) = (must_report, 0);
        }
        Ok(())
    }

    fn read(&self) -> RwLockReadGuard<'_, Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Current> {
        self.current.write().unwrap_or_else(PoisonError::into_inner)
    }
}

//! How the installation stands since a restore: is it on hold, who has still to tell what it holds. In memory, because every poll asks; empty in an installation that was never restored.
//!
//! Looks every half second. It also notices by itself when the database has gone back under a running replica.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use brokkr_api::system::Hold;
use brokkr_api::{AgentId, Position};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::store::StoreError;
use crate::store::installation::{installation_hold, installation_standing};
use crate::store::restore::restore_agents_to_report;

const EVERY: Duration = Duration::from_millis(500);
/// What was told to other replicas is looked up this often: asking an agent twice does no harm.
const LOOKS_BETWEEN_LISTS: u32 = 60;

/// What a poll has to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asks {
    /// Of which this is known.
    pub epoch: i64,
    pub held: bool,
    /// The agent is to tell what it holds.
    pub list: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Standing {
    now: Arc<RwLock<Now>>,
}

#[derive(Debug, Default)]
struct Now {
    epoch: i64,
    hold: Option<Hold>,
    asked: i64,
    to_tell: HashSet<AgentId>,
    /// The highest that the database ever was, as this process saw it.
    highest: Position,
    looks: u32,
}

impl Standing {
    #[must_use]
    pub fn asks_of(&self, agent: AgentId) -> Asks {
        let now = self.read();
        Asks { epoch: now.epoch, held: now.hold.is_some(), list: now.to_tell.contains(&agent) }
    }

    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        self.read().hold.clone()
    }

    pub fn note_hold(&self, hold: Hold) {
        self.write().hold = Some(hold);
    }

    pub fn note_told(&self, agent: AgentId) {
        self.write().to_tell.remove(&agent);
    }

    /// Looks once.
    pub async fn look(&self, pool: &PgPool) -> Result<(), StoreError> {
        let mut found = installation_standing(pool).await?;
        let highest = self.read().highest;
        if found.hold.is_none() && found.is_below(highest) {
            let because = format!(
                "a replica has seen {highest}, the database is now at {}.{}",
                found.epoch, found.ceiling
            );
            found.hold = installation_hold(pool, highest, &because).await?;
            tracing::error!(because, "the database has gone back: on hold until the epoch is raised");
        }
        let list_due = {
            let now = self.read();
            now.asked != found.asked || (!now.to_tell.is_empty() && now.looks >= LOOKS_BETWEEN_LISTS)
        };
        let to_tell = if list_due { Some(restore_agents_to_report(pool).await?) } else { None };
        let mut now = self.write();
        now.highest = highest.max(Position { epoch: found.epoch, horizon: found.ceiling });
        now.epoch = found.epoch;
        now.hold = found.hold;
        now.asked = found.asked;
        now.looks += 1;
        if let Some(to_tell) = to_tell {
            (now.to_tell, now.looks) = (to_tell, 0);
        }
        Ok(())
    }

    pub async fn run(self, pool: PgPool, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
            // The tail tells that the database does not answer; what was known stays.
            if let Err(error) = self.look(&pool).await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "how the installation stands is not known anew"
                );
            }
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Now> {
        self.now.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Now> {
        self.now.write().unwrap_or_else(PoisonError::into_inner)
    }
}

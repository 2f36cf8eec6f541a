//! Reads a rollout from the database several times a second, and checks that no step is taken twice.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brokkr_api::SequenceId;
use brokkr_api::rollouts::RolloutState;
use serde::Deserialize;
use sqlx::PgPool;
use sqlx::types::Json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::broker::environment::PATIENCE;

const READ_INTERVAL: Duration = Duration::from_millis(100);

/// A raise of a mark: one step of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Raise {
    number: usize,
    selector: Option<String>,
    upto: u64,
}

/// The state of a rollout at one moment, and the holder of the lease for rollouts.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutSnapshot {
    pub state: RolloutState,
    pub revision: i64,
    /// When the agents were last looked at, in seconds since 1970; zero if they were not yet.
    pub looked_at: f64,
    pub holder: Option<Uuid>,
    pub raises: Vec<Raise>,
}

impl RolloutSnapshot {
    async fn read(pool: &PgPool, version: SequenceId) -> Result<Self> {
        let (state, revision, looked_at, holder, raises): (String, i64, f64, Option<Uuid>, Json<Vec<Raise>>) =
            sqlx::query_as(
                "SELECT r.state, r.revision, coalesce(extract(epoch FROM r.looked_at)::float8, 0), l.holder, s.raises
                 FROM rollouts r LEFT JOIN leases l ON l.name = 'rollouts'
                 CROSS JOIN LATERAL (
                    SELECT coalesce(jsonb_agg(jsonb_build_object('number', number, 'selector', selector, 'upto', upto)
                                              ORDER BY number), '[]') AS raises
                    FROM rollout_raises WHERE sequence_id = r.sequence_id) AS s
                 WHERE r.sequence_id = $1",
            )
            .bind(version.0)
            .fetch_one(pool)
            .await
            .context("cannot read the rollout")?;
        Ok(Self { state: state.parse()?, revision, looked_at, holder, raises: raises.0 })
    }

    /// Returns whether the version is released to no further agent.
    pub fn is_over(&self) -> bool {
        !matches!(self.state, RolloutState::Running | RolloutState::Soaking)
    }
}

/// Follows a rollout in the background.
pub struct Observer {
    pool: PgPool,
    version: SequenceId,
    latest: watch::Receiver<RolloutSnapshot>,
    following: JoinHandle<Result<(RolloutSnapshot, Vec<String>)>>,
}

impl Observer {
    pub async fn start(pool: &PgPool, version: SequenceId) -> Result<Self> {
        let (publish, latest) = watch::channel(RolloutSnapshot::read(pool, version).await?);
        let following = tokio::spawn(follow(pool.clone(), version, publish));
        Ok(Self { pool: pool.clone(), version, latest, following })
    }

    pub fn latest(&self) -> RolloutSnapshot {
        self.latest.borrow().clone()
    }

    /// Waits until the rollout satisfies a condition.
    pub async fn until(&self, done: impl Fn(&RolloutSnapshot) -> bool) -> Result<RolloutSnapshot> {
        let mut latest = self.latest.clone();
        let found = tokio::time::timeout(PATIENCE, latest.wait_for(done)).await;
        let found = found.with_context(|| format!("the rollout stays as it is: {:?}", self.latest()))?;
        Ok(found.context("the rollout can no longer be read")?.clone())
    }

    /// Waits until a process other than `holder` has looked at the agents after this time. Returns the seconds from then to its
    /// look; none if the rollout ended first.
    pub async fn taken_over(&self, holder: Uuid, since: f64) -> Result<Option<f64>> {
        let is_taken = |seen: &RolloutSnapshot| seen.holder != Some(holder) && seen.looked_at > since;
        let seen = self.until(|seen| seen.is_over() || is_taken(seen)).await?;
        Ok(is_taken(&seen).then_some(seen.looked_at - since))
    }

    /// Returns when the rollout ended: rather a little too early than too late.
    pub async fn ended_at(&self) -> Result<Instant> {
        let now = Instant::now();
        let ago: f64 = sqlx::query_scalar(
            "SELECT extract(epoch FROM clock_timestamp() - state_changed_at)::float8 FROM rollouts
             WHERE sequence_id = $1",
        )
        .bind(self.version.0)
        .fetch_one(&self.pool)
        .await?;
        now.checked_sub(Duration::from_secs_f64(ago.max(0.0))).context("the clock was set")
    }

    /// Reads the rollout once more. Returns it, and everything that was wrong with it at any time.
    pub async fn finish(self) -> Result<(RolloutSnapshot, Vec<String>)> {
        let Self { latest, following, .. } = self;
        drop(latest);
        following.await?
    }
}

/// Compares each snapshot with the one before, until the observer is finished.
async fn follow(
    pool: PgPool,
    version: SequenceId,
    publish: watch::Sender<RolloutSnapshot>,
) -> Result<(RolloutSnapshot, Vec<String>)> {
    let mut problems = Vec::new();
    loop {
        let is_last = publish.is_closed();
        let after = RolloutSnapshot::read(&pool, version).await?;
        let before = publish.send_replace(after.clone());
        problems.extend(contradictions(&before, &after));
        if is_last {
            problems.extend(repeated_steps(&after.raises));
            return Ok((after, problems));
        }
        tokio::time::sleep(READ_INTERVAL).await;
    }
}

/// Returns what cannot be right about a snapshot after another one.
fn contradictions(before: &RolloutSnapshot, after: &RolloutSnapshot) -> Vec<String> {
    let steps = after.raises.len().saturating_sub(before.raises.len());
    let changes = usize::try_from(after.revision - before.revision).unwrap_or_default();
    let checks = [
        (!after.raises.starts_with(&before.raises), "a step was changed or removed"),
        (after.revision < before.revision, "the revision fell"),
        (changes < steps, "there were more steps than revisions"),
        (after.looked_at < before.looked_at, "the time of the last look went back"),
        (before.is_over() && (after.state, steps) != (before.state, 0), "it went on after its end"),
    ];
    let wrong = checks.into_iter().filter(|(is_wrong, _)| *is_wrong);
    wrong.map(|(_, what)| format!("{what}: {before:?}, then {after:?}")).collect()
}

/// Returns the steps that are not the next one in order, or do not raise the mark of their selector.
fn repeated_steps(raises: &[Raise]) -> Vec<String> {
    let is_repeated = |(place, raise): &(usize, &Raise)| {
        let earlier = raises[..*place].iter().filter(|earlier| earlier.selector == raise.selector);
        raise.number != *place || earlier.map(|earlier| earlier.upto).max() >= Some(raise.upto)
    };
    let repeated = raises.iter().enumerate().filter(is_repeated);
    repeated.map(|(place, raise)| format!("step {place} repeats another: {raise:?}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raise(number: usize, selector: Option<&str>, upto: u64) -> Raise {
        Raise { number, selector: selector.map(ToOwned::to_owned), upto }
    }

    fn snapshot(revision: i64, marks: &[u64]) -> RolloutSnapshot {
        let raises = marks.iter().enumerate().map(|(number, upto)| raise(number, None, *upto)).collect();
        let (state, looked_at) = (RolloutState::Running, revision as f64);
        RolloutSnapshot { state, revision, looked_at, holder: None, raises }
    }

    #[test]
    fn a_step_that_repeats_another_is_found() {
        let once =
            [raise(0, None, 5), raise(1, Some("ring=0"), 3), raise(2, None, 6), raise(3, Some("ring=0"), 4)];
        assert!(repeated_steps(&once).is_empty());
        assert_eq!(repeated_steps(&[raise(0, None, 5), raise(1, None, 5)]).len(), 1);
        assert_eq!(repeated_steps(&[raise(0, None, 5), raise(0, None, 6)]).len(), 1);
        assert_eq!(repeated_steps(&[raise(0, None, 5), raise(2, None, 6)]).len(), 1);
    }

    #[test]
    fn a_snapshot_that_contradicts_the_one_before_is_found() {
        let before = snapshot(3, &[5, 7]);
        assert!(contradictions(&before, &before).is_empty());
        assert!(contradictions(&before, &snapshot(5, &[5, 7, 9])).is_empty());
        assert_eq!(contradictions(&before, &snapshot(4, &[5, 8])).len(), 1, "changed");
        assert_eq!(
            contradictions(&before, &snapshot(4, &[5, 7, 8, 9])).len(),
            1,
            "two steps in one revision"
        );
        assert_eq!(contradictions(&before, &snapshot(2, &[5, 7])).len(), 2, "older");
        let stopped = RolloutSnapshot { state: RolloutState::Stopped, ..before };
        assert_eq!(contradictions(&stopped, &snapshot(4, &[5, 7])).len(), 1, "it runs again");
    }
}

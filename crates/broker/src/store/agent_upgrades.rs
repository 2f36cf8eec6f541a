//! Upgrades of agents: one row for each, and one for each raise of a mark. What agents report about them is in `reports`.

pub mod reports;

use std::time::Duration;

use brokkr_api::rollouts::{Pending, RolloutFigures, StopReason};
use brokkr_api::upgrades::{AgentUpgrade, NewAgentUpgrade};
use brokkr_api::{Selector, UpgradeId};
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, PgPool};

use super::rollouts::{RolloutUpdate, interval, raises, read_decided, read_raise};
use super::{Columns as _, Fetch as _, Result, Run as _, known};
use crate::domain::release::Clause;
use crate::domain::rollout::policy::Policy;
use crate::domain::rollout::survey::Contacts;
use crate::domain::rollout::{Rollout, watched};
use crate::domain::upgrades::UpgradeFacts;
use crate::domain::upgrades::report::UpgradeEvidence;
use reports::{at_version_on_conn, reports_on_conn};

/// An upgrade that is under way.
#[derive(Clone, Debug)]
pub struct ActiveUpgrade {
    pub id: UpgradeId,
    pub version: String,
    pub revision: i64,
    pub rollout: Rollout,
    pub created_by: String,
    /// What the agents counted as when they were last looked at.
    pub figures: RolloutFigures,
    pub looked_at: Option<Timestamp>,
    pub watched_since: Timestamp,
    /// The time of the database.
    pub now: Timestamp,
    /// The transaction in which the upgrade began.
    pub begun_by: u64,
}

impl ActiveUpgrade {
    /// Returns how long the agents were watched since the last look, and since when without a pause.
    #[must_use]
    pub fn watched(&self) -> (Duration, Timestamp) {
        watched(self.looked_at, self.watched_since, self.now)
    }
}

macro_rules! agent_upgrades {
    ($rest:literal) => {
        concat!(
            "SELECT id, image, version, selector, seed, policy, created_by, state, stop_reason, wave, clauses, soaked, accepted_bad,
                    accepted_excused, gate, windows, figures, pending, revision, looked_at, watched_since, created_at, ended_at,
                    xid::text AS xid, clock_timestamp() AS now
             FROM agent_upgrades ",
            $rest
        )
    };
}

fn read_id(row: &PgRow) -> Result<UpgradeId, sqlx::Error> {
    row.field("id").map(UpgradeId)
}

fn read_selector(row: &PgRow) -> Result<Option<Selector>, sqlx::Error> {
    row.field::<Option<String>>("selector")?.map(|selector| known(&selector)).transpose()
}

fn read_active(row: PgRow) -> Result<ActiveUpgrade, sqlx::Error> {
    Ok(ActiveUpgrade {
        id: read_id(&row)?,
        version: row.field("version")?,
        revision: row.field("revision")?,
        rollout: read_decided(&row)?,
        created_by: row.field("created_by")?,
        figures: row.json("figures")?,
        looked_at: row.time_opt("looked_at")?,
        watched_since: row.time("watched_since")?,
        now: row.time("now")?,
        begun_by: known(&row.field::<String>("xid")?)?,
    })
}

fn read_facts(row: PgRow) -> Result<UpgradeFacts, sqlx::Error> {
    Ok(UpgradeFacts {
        id: read_id(&row)?,
        image: row.field("image")?,
        version: row.field("version")?,
        selector: read_selector(&row)?,
        seed: row.field::<i64>("seed")?.cast_unsigned(),
        state: row.known("state")?,
        clauses: row.json("clauses")?,
        revision: row.field("revision")?,
        windows: row.json("windows")?,
    })
}

fn read_shown(row: PgRow) -> Result<AgentUpgrade, sqlx::Error> {
    let (rollout, figures): (Rollout, RolloutFigures) = (read_decided(&row)?, row.json("figures")?);
    Ok(AgentUpgrade {
        id: read_id(&row)?,
        image: row.field("image")?,
        version: row.field("version")?,
        selector: read_selector(&row)?,
        state: rollout.state,
        wave: rollout.wave_number(),
        waves: u32::try_from(rollout.policy.waves.len()).unwrap_or(u32::MAX),
        policy: rollout.policy.shown(figures.members),
        allowed_bad: rollout.allowed_bad(figures.released),
        in_flight_limit: rollout.in_flight_limit(&figures),
        figures,
        pending: row.field::<Option<Json<Pending>>>("pending")?.map(|pending| pending.0),
        soaked_seconds: u32::try_from(rollout.soaked.as_secs()).unwrap_or(u32::MAX),
        stop_reason: rollout.stop_reason,
        created_by: row.field("created_by")?,
        created_at: row.time("created_at")?,
        ended_at: row.time_opt("ended_at")?,
    })
}

pub async fn agent_upgrade_fetch(
    executor: impl PgExecutor<'_>,
    id: UpgradeId,
) -> Result<Option<AgentUpgrade>> {
    sqlx::query(agent_upgrades!("WHERE id = $1"))
        .bind(id.0)
        .try_map(read_shown)
        .optional(executor, "read the upgrade of agents")
        .await
}

/// Returns up to `limit` upgrades, newest first, plus one if there are more.
pub async fn agent_upgrade_list(
    pool: &PgPool,
    below: Option<UpgradeId>,
    limit: usize,
) -> Result<Vec<AgentUpgrade>> {
    sqlx::query(agent_upgrades!("WHERE $1::bigint IS NULL OR id < $1 ORDER BY id DESC LIMIT $2"))
        .bind(below.map(|below| below.0))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
        .try_map(read_shown)
        .all(pool, "list the upgrades of agents")
        .await
}

/// Returns the upgrades that are under way, and the completed ones that agents without a newer one still get.
pub async fn facts_of_upgrades_on_conn(conn: &mut PgConnection) -> Result<Vec<UpgradeFacts>> {
    sqlx::query(agent_upgrades!(
        "u WHERE u.ended_at IS NULL OR u.state = 'completed' AND NOT EXISTS (
             SELECT FROM agent_upgrades n WHERE n.state = 'completed' AND n.id > u.id
                                            AND (n.selector IS NULL OR n.selector = u.selector))
         ORDER BY u.id"
    ))
    .try_map(read_facts)
    .all(conn, "read the upgrades of agents")
    .await
}

/// Returns what decides to which agents this upgrade is or was offered.
pub async fn facts_of_upgrade(executor: impl PgExecutor<'_>, id: UpgradeId) -> Result<Option<UpgradeFacts>> {
    sqlx::query(agent_upgrades!("WHERE id = $1"))
        .bind(id.0)
        .try_map(read_facts)
        .optional(executor, "read the upgrade of agents")
        .await
}

/// Locks the upgrades that are under way, and keeps others from beginning. Returns them, and the last one that was completed.
pub async fn agent_upgrades_lock_on_conn(
    conn: &mut PgConnection,
) -> Result<(Vec<UpgradeFacts>, Option<UpgradeId>)> {
    let doing = "lock the upgrades of agents";
    sqlx::query("LOCK TABLE agent_upgrades IN SHARE ROW EXCLUSIVE MODE").run(&mut *conn, doing).await?;
    let active = sqlx::query(agent_upgrades!("WHERE ended_at IS NULL")).try_map(read_facts);
    let active = active.all(&mut *conn, doing).await?;
    let completed: Option<i64> =
        sqlx::query_scalar("SELECT max(id) FROM agent_upgrades WHERE state = 'completed'")
            .one(conn, doing)
            .await?;
    Ok((active, completed.map(UpgradeId)))
}

/// Inserts an upgrade, with the next id and the windows of now.
pub async fn agent_upgrade_insert_on_conn(
    conn: &mut PgConnection,
    new: &NewAgentUpgrade,
    policy: &Policy,
    seed: u64,
    created_by: &str,
) -> Result<UpgradeId> {
    sqlx::query_scalar(
        "INSERT INTO agent_upgrades (id, image, version, selector, seed, policy, created_by, windows)
         VALUES (next_sequence_id(), $1, $2, $3, $4, $5, $6, windows_of('')) RETURNING id",
    )
    .bind(&new.image)
    .bind(&new.version)
    .bind(new.selector.as_ref().map(ToString::to_string))
    .bind(seed.cast_signed())
    .bind(Json(policy))
    .bind(created_by)
    .one(conn, "begin the upgrade of agents")
    .await
    .map(UpgradeId)
}

/// Ends upgrades that a newer one takes the place of.
pub async fn agent_upgrades_supersede_on_conn(conn: &mut PgConnection, ids: &[UpgradeId]) -> Result<()> {
    sqlx::query(
        "UPDATE agent_upgrades SET state = 'superseded', ended_at = now(), revision = revision + 1
         WHERE id = ANY($1) AND ended_at IS NULL",
    )
    .bind(ids.iter().map(|id| id.0).collect::<Vec<_>>())
    .run(conn, "supersede upgrades of agents")
    .await
}

/// Aborts every upgrade that has not ended. After a restore: the replicas load everything again, because the epoch is another one.
pub async fn agent_upgrades_abort_all_on_conn(conn: &mut PgConnection, reason: &StopReason) -> Result<()> {
    sqlx::query(
        "UPDATE agent_upgrades SET state = 'aborted', stop_reason = $1, ended_at = now(), revision = revision + 1
         WHERE ended_at IS NULL",
    )
    .bind(Json(reason))
    .run(conn, "abort the upgrades of agents")
    .await
}

/// Returns the upgrade, if it is under way, without a lock.
pub async fn agent_upgrade_under_way_on_conn(
    conn: &mut PgConnection,
    id: UpgradeId,
) -> Result<Option<ActiveUpgrade>> {
    sqlx::query(agent_upgrades!("WHERE id = $1 AND ended_at IS NULL"))
        .bind(id.0)
        .try_map(read_active)
        .optional(conn, "read the upgrade of agents")
        .await
}

/// Locks the upgrade, if it is under way.
pub async fn agent_upgrade_lock_on_conn(
    conn: &mut PgConnection,
    id: UpgradeId,
) -> Result<Option<ActiveUpgrade>> {
    sqlx::query(agent_upgrades!("WHERE id = $1 AND ended_at IS NULL FOR UPDATE"))
        .bind(id.0)
        .try_map(read_active)
        .optional(conn, "lock the upgrade of agents")
        .await
}

/// Stores where the upgrade stands now. Returns whether that concerns the replicas: then they have to be notified.
pub async fn agent_upgrade_store_on_conn(
    conn: &mut PgConnection,
    locked: &ActiveUpgrade,
    after: &Rollout,
    look: &RolloutUpdate,
) -> Result<bool> {
    let concerns_replicas = after.state != locked.rollout.state || after.clauses != locked.rollout.clauses;
    sqlx::query(
        "UPDATE agent_upgrades SET state = $2, stop_reason = $3, wave = $4, clauses = $5, soaked = $6, accepted_bad = $7,
                                   accepted_excused = $8, gate = $9, figures = $10, pending = $11, looked_at = $12,
                                   watched_since = $13, revision = revision + $14::int, ended_at = CASE WHEN $15 THEN now() END
         WHERE id = $1",
    )
    .bind(locked.id.0)
    .bind(after.state.to_string())
    .bind(after.stop_reason.as_ref().map(Json))
    .bind(i32::try_from(after.wave).unwrap_or(i32::MAX))
    .bind(Json(&after.clauses))
    .bind(interval(after.soaked))
    .bind(after.accepted_bad.cast_signed())
    .bind(after.accepted_excused.cast_signed())
    .bind(Json(&after.gate))
    .bind(Json(look.figures))
    .bind(look.pending.map(Json))
    .bind(look.at.to_sqlx())
    .bind(look.watched_since.to_sqlx())
    .bind(concerns_replicas)
    .bind(after.state.has_ended())
    .run(&mut *conn, "store the upgrade of agents")
    .await?;
    let is_raised = |clause: &&Clause| !locked.rollout.clauses.contains(clause);
    for clause in after.clauses.iter().filter(is_raised) {
        raise_insert_on_conn(conn, locked, clause).await?;
    }
    Ok(concerns_replicas)
}

async fn raise_insert_on_conn(
    conn: &mut PgConnection,
    upgrade: &ActiveUpgrade,
    clause: &Clause,
) -> Result<()> {
    sqlx::query(
        "INSERT INTO agent_upgrade_raises (upgrade_id, number, selector, upto, at, lane_begun, lane_now)
         SELECT $1, count(*), $2, $3::numeric, $4, $5, $6 FROM agent_upgrade_raises WHERE upgrade_id = $1",
    )
    .bind(upgrade.id.0)
    .bind(clause.selector.as_ref().map(ToString::to_string))
    .bind(clause.upto.to_string())
    .bind(upgrade.now.to_sqlx())
    .bind(clause.lanes.begun.map(|lane| lane.0.cast_signed()))
    .bind(clause.lanes.now.map(|lane| lane.0.cast_signed()))
    .run(conn, "store a step of the upgrade")
    .await
}

/// Returns what the database knows about the agents of an upgrade.
pub async fn agent_upgrade_evidence_on_conn<'a>(
    conn: &mut PgConnection,
    upgrade: &ActiveUpgrade,
    contacts: &'a Contacts,
) -> Result<UpgradeEvidence<'a>> {
    let rows = sqlx::query(
        "SELECT selector, lane_begun, lane_now, upto::text AS upto, at FROM agent_upgrade_raises
         WHERE upgrade_id = $1 ORDER BY number",
    )
    .bind(upgrade.id.0)
    .try_map(read_raise);
    Ok(UpgradeEvidence {
        raises: raises(rows.all(&mut *conn, "read the steps of the upgrade").await?),
        reports: reports_on_conn(conn, upgrade.id).await?,
        at_version: at_version_on_conn(conn, &upgrade.version).await?,
        contacts,
        watched_since: upgrade.watched().1,
    })
}

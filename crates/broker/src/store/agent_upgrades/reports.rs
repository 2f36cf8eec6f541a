//! What agents report about upgrades: the last step of each, and only of those that have begun or refused.

use std::collections::{HashMap, HashSet};

use brokkr_api::upgrades::{AgentUpgradeStatus, ReportedUpgrade, UpgradeReason, UpgradeReport};
use brokkr_api::{AgentId, UpgradeId};
use jiff_sqlx::ToSqlx as _;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use crate::domain::upgrades::report::{ReportedStep, is_offered_again};
use crate::store::{Columns as _, Fetch as _, Result, Run as _};

fn read_step(row: &PgRow) -> Result<ReportedStep, sqlx::Error> {
    Ok(ReportedStep {
        step: row.known("step")?,
        version: row.field("version")?,
        reason: row.field::<Option<Json<UpgradeReason>>>("reason")?.map(|reason| reason.0),
        reported_at: row.time("reported_at")?,
        received_at: row.time("received_at")?,
    })
}

/// Returns the last step that the agent has reported of the upgrade.
pub async fn agent_upgrade_step_on_conn(
    conn: &mut PgConnection,
    id: UpgradeId,
    agent: AgentId,
) -> Result<Option<ReportedStep>> {
    sqlx::query("SELECT * FROM agent_upgrade_reports WHERE upgrade_id = $1 AND agent_id = $2")
        .bind(id.0)
        .bind(agent.0)
        .try_map(|row| read_step(&row))
        .optional(conn, "read how far the upgrade of the agent is")
        .await
}

/// Stores a step. The caller has locked the agent.
pub async fn agent_upgrade_report_on_conn(
    conn: &mut PgConnection,
    agent: AgentId,
    report: &UpgradeReport,
) -> Result<()> {
    sqlx::query(
        "INSERT INTO agent_upgrade_reports (upgrade_id, agent_id, step, version, reason, offered_again, reported_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (upgrade_id, agent_id) DO UPDATE SET
             step = excluded.step, version = excluded.version, reason = excluded.reason,
             offered_again = excluded.offered_again, reported_at = excluded.reported_at, received_at = now()",
    )
    .bind(report.id.0)
    .bind(agent.0)
    .bind(report.step.to_string())
    .bind(&report.version)
    .bind(report.reason.as_ref().map(Json))
    .bind(is_offered_again(report.step, report.reason.as_ref()))
    .bind(report.at.to_sqlx())
    .run(conn, "store how far the upgrade of the agent is")
    .await
}

/// Records that the agent has reported a step of the upgrade, unless it has of a newer one. Returns whether that is new: then the
/// replicas have to be notified.
pub async fn agent_upgrade_mark_on_conn(
    conn: &mut PgConnection,
    agent: AgentId,
    id: UpgradeId,
    has_ended: bool,
) -> Result<bool> {
    let changed = sqlx::query(
        "UPDATE agents SET upgrade_id = $2, upgrade_ended = $3
         WHERE id = $1 AND (upgrade_id IS NULL OR upgrade_id < $2 OR upgrade_id = $2 AND upgrade_ended <> $3)",
    )
    .bind(agent.0)
    .bind(id.0)
    .bind(has_ended)
    .affected(conn, "record the upgrade of the agent")
    .await?;
    Ok(changed > 0)
}

/// Returns the last steps of all agents that have reported one.
pub(super) async fn reports_on_conn(
    conn: &mut PgConnection,
    id: UpgradeId,
) -> Result<HashMap<AgentId, ReportedStep>> {
    let rows = sqlx::query("SELECT * FROM agent_upgrade_reports WHERE upgrade_id = $1")
        .bind(id.0)
        .try_map(|row| Ok((AgentId(row.field("agent_id")?), read_step(&row)?)));
    Ok(rows.all(conn, "read the reports about the upgrade").await?.into_iter().collect())
}

/// Returns the agents whose session is one of this version. Reads every agent, like the contacts.
pub(super) async fn at_version_on_conn(conn: &mut PgConnection, version: &str) -> Result<HashSet<AgentId>> {
    let ids: Vec<Uuid> = sqlx::query_scalar("SELECT id FROM agents WHERE version = $1")
        .bind(version)
        .all(conn, "read the agents with the version")
        .await?;
    Ok(ids.into_iter().map(AgentId).collect())
}

/// Returns how far these agents are, in the given order; `released` is not known here.
pub async fn agent_upgrade_statuses(
    pool: &PgPool,
    id: UpgradeId,
    agents: &[AgentId],
) -> Result<Vec<(AgentId, AgentUpgradeStatus)>> {
    let ids: Vec<Uuid> = agents.iter().map(|agent| agent.0).collect();
    sqlx::query(
        "SELECT a.id, a.name, a.version, r.step, r.received_at, r.reason
         FROM agents a JOIN unnest($2::uuid[]) WITH ORDINALITY AS asked (id, place) USING (id)
         LEFT JOIN agent_upgrade_reports r ON r.upgrade_id = $1 AND r.agent_id = a.id
         ORDER BY place",
    )
    .bind(id.0)
    .bind(ids)
    .try_map(|row: PgRow| {
        let step: Option<String> = row.field("step")?;
        let status = AgentUpgradeStatus {
            agent: row.field("name")?,
            version: row.field("version")?,
            released: false,
            step: step.map(|step| crate::store::known(&step)).transpose()?,
            step_at: row.time_opt("received_at")?,
            reason: row.field::<Option<Json<UpgradeReason>>>("reason")?.map(|reason| reason.0),
        };
        Ok((AgentId(row.field("id")?), status))
    })
    .all(pool, "read how far the agents are")
    .await
}

/// The last report of the agent of a row about any upgrade, as JSON.
macro_rules! last_upgrade {
    () => {
        "(SELECT jsonb_build_object('id', u.id, 'version', u.version, 'step', r.step, 'at', r.received_at, 'reason', r.reason)
          FROM agent_upgrade_reports r JOIN agent_upgrades u ON u.id = r.upgrade_id
          WHERE r.agent_id = agents.id ORDER BY r.upgrade_id DESC LIMIT 1)"
    };
}

pub(crate) use last_upgrade;

/// Returns the last report of the agent about any upgrade.
pub async fn agent_upgrade_last_of(
    executor: impl PgExecutor<'_>,
    agent: AgentId,
) -> Result<Option<ReportedUpgrade>> {
    let last: Option<Option<Json<ReportedUpgrade>>> =
        sqlx::query_scalar(concat!("SELECT ", last_upgrade!(), " FROM agents WHERE id = $1"))
            .bind(agent.0)
            .optional(executor, "read the last upgrade of the agent")
            .await?;
    Ok(last.flatten().map(|last| last.0))
}

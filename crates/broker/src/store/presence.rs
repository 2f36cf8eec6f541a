//! When agents were last seen, became silent and returned: each recorded once, whichever replica notices.

use brokkr_api::AgentId;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::why::{AgentEvent, AgentEventKind};
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::PgPool;
use uuid::Uuid;

use super::{Doing as _, Fetch as _, Result, Run as _, known};
use crate::domain::presence::{LATE_AFTER, SILENT_AFTER};
use crate::domain::why::Refused;

/// Rows marked at once.
const SLICE: i64 = 1000;

/// One poll of an agent, and how often it polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeenAgent {
    pub agent: AgentId,
    pub at: Timestamp,
    pub poll_seconds: u32,
    /// Whether it has announced that its owner allows upgrades.
    pub allows_upgrades: bool,
}

/// Stores when agents were last seen, and whether they allow upgrades, of which the replicas are notified if it has changed. The return
/// of a silent agent is recorded in the same statement; the row lock ensures that it is recorded once. Rows are locked in the order of
/// ids, so that two replicas never deadlock.
pub async fn presence_store(pool: &PgPool, seen: &[SeenAgent]) -> Result<()> {
    let seconds = |seen: &SeenAgent| i32::try_from(seen.poll_seconds).unwrap_or(i32::MAX);
    sqlx::query(
        "WITH seen AS (SELECT * FROM unnest($1::uuid[], $2::timestamptz[], $3::int[], $5::bool[])
                         AS seen (id, at, seconds, allows)),
              locked AS (SELECT a.id, a.silent_since, a.last_seen_at, a.upgradable_since FROM agents a JOIN seen USING (id)
                         ORDER BY a.id FOR NO KEY UPDATE OF a),
              -- Another replica may have stored a later poll.
              announced AS (SELECT locked.id, seen.allows FROM locked JOIN seen USING (id)
                            WHERE (locked.upgradable_since IS NOT NULL) <> seen.allows
                              AND (locked.last_seen_at IS NULL OR seen.at >= locked.last_seen_at)),
              notified AS (INSERT INTO outbox (project, kind, key) SELECT $6, 'agent', id FROM announced),
              -- A poll of long ago that is stored only now does not mean that the agent is back.
              back AS (SELECT locked.id, seen.at FROM locked JOIN seen USING (id)
                       WHERE locked.silent_since IS NOT NULL
                         AND seen.at > now() - make_interval(secs => seen.seconds * $4)),
              recorded AS (INSERT INTO agent_events (agent_id, kind, last_seen) SELECT id, 'back', at FROM back)
         UPDATE agents SET last_seen_at = greatest(agents.last_seen_at, seen.at), poll_seconds = seen.seconds,
                           silent_since = CASE WHEN back.id IS NULL THEN agents.silent_since END,
                           upgradable_since = CASE WHEN announced.id IS NULL THEN agents.upgradable_since
                                                   WHEN announced.allows THEN now() END
         FROM seen JOIN locked USING (id) LEFT JOIN back USING (id) LEFT JOIN announced USING (id) WHERE agents.id = seen.id",
    )
    .bind(seen.iter().map(|seen| seen.agent.0).collect::<Vec<_>>())
    .bind(seen.iter().map(|seen| seen.at.to_sqlx()).collect::<Vec<_>>())
    .bind(seen.iter().map(seconds).collect::<Vec<_>>())
    .bind(f64::from(LATE_AFTER))
    .bind(seen.iter().map(|seen| seen.allows_upgrades).collect::<Vec<_>>())
    .bind(DEFAULT_PROJECT)
    .run(pool, "store presence")
    .await
}

/// Marks the agents that have been silent for too long, and records each once. Only time in which a broker
/// was running counts: after an outage of the broker itself, agents first get the chance to reconnect.
pub async fn presence_mark_silent(pool: &PgPool) -> Result<Vec<AgentId>> {
    let mut silent = Vec::new();
    loop {
        let slice: Vec<Uuid> = sqlx::query_scalar(
            "WITH silent AS (
                SELECT a.id, a.last_seen_at FROM agents a, task_claims d
                WHERE d.name = 'silent_agents' AND a.silent_since IS NULL AND a.status = 'ACTIVE'
                  AND greatest(a.last_seen_at, d.since) < now() - make_interval(secs => a.poll_seconds * $1)
                  AND a.last_seen_at IS NOT NULL
                ORDER BY a.id LIMIT $2 FOR NO KEY UPDATE OF a SKIP LOCKED),
             marked AS (UPDATE agents SET silent_since = now() FROM silent WHERE agents.id = silent.id)
             INSERT INTO agent_events (agent_id, kind, last_seen) SELECT id, 'silent', last_seen_at FROM silent
             RETURNING agent_id",
        )
        .bind(f64::from(SILENT_AFTER))
        .bind(SLICE)
        .all(pool, "mark silent agents")
        .await?;
        let last = slice.len() < usize::try_from(SLICE).unwrap_or(usize::MAX);
        silent.extend(slice.into_iter().map(AgentId));
        if last {
            return Ok(silent);
        }
    }
}

/// Stores refused assertions in the name of these agents. Rows are locked in the order of ids.
pub async fn refusals_store(pool: &PgPool, refused: &[(AgentId, Refused)]) -> Result<()> {
    sqlx::query(
        "WITH refused AS (SELECT * FROM unnest($1::uuid[], $2::timestamptz[], $3::text[]) AS refused (id, at, because)),
              locked AS (SELECT a.id FROM agents a JOIN refused USING (id) ORDER BY a.id FOR NO KEY UPDATE OF a)
         UPDATE agents SET refused_at = refused.at, refused_because = refused.because
         FROM refused JOIN locked USING (id)
         WHERE agents.id = refused.id AND (agents.refused_at IS NULL OR agents.refused_at < refused.at)",
    )
    .bind(refused.iter().map(|(agent, _)| agent.0).collect::<Vec<_>>())
    .bind(refused.iter().map(|(_, refused)| refused.at.to_sqlx()).collect::<Vec<_>>())
    .bind(refused.iter().map(|(_, refused)| refused.because.clone()).collect::<Vec<_>>())
    .run(pool, "store refused assertions")
    .await
}

/// The stored presence of an agent.
#[derive(Clone, Debug)]
pub struct StoredPresence {
    pub last_seen_at: Option<Timestamp>,
    pub poll_seconds: u32,
    pub silent_since: Option<Timestamp>,
    pub refused: Option<Refused>,
}

pub async fn presence_fetch(pool: &PgPool, agent: AgentId) -> Result<Option<StoredPresence>> {
    type Time = Option<jiff_sqlx::Timestamp>;
    let row: Option<(Time, i32, Time, Time, Option<String>)> = sqlx::query_as(
        "SELECT last_seen_at, poll_seconds, silent_since, refused_at, refused_because FROM agents WHERE id = $1",
    )
    .bind(agent.0)
    .optional(pool, "read the presence of the agent")
    .await?;
    Ok(row.map(|(last_seen, seconds, silent, refused, because)| StoredPresence {
        last_seen_at: last_seen.map(jiff_sqlx::Timestamp::to_jiff),
        poll_seconds: seconds.unsigned_abs(),
        silent_since: silent.map(jiff_sqlx::Timestamp::to_jiff),
        refused: refused.zip(because).map(|(at, because)| Refused { at: at.to_jiff(), because }),
    }))
}

/// Returns the last times that the agent became silent or returned, newest first.
pub async fn presence_events(pool: &PgPool, agent: AgentId, limit: i64) -> Result<Vec<AgentEvent>> {
    let rows: Vec<(String, jiff_sqlx::Timestamp)> =
        sqlx::query_as("SELECT kind, at FROM agent_events WHERE agent_id = $1 ORDER BY at DESC LIMIT $2")
            .bind(agent.0)
            .bind(limit)
            .all(pool, "read the events of the agent")
            .await?;
    rows.into_iter()
        .map(|(kind, at)| Ok(AgentEvent { kind: known::<AgentEventKind>(&kind)?, at: at.to_jiff() }))
        .collect::<Result<_, sqlx::Error>>()
        .doing("read the events of the agent")
}

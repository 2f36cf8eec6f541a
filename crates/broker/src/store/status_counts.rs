//! Counts of agents by state and error of a stack: sums of a few counters (shards), whatever the size of the
//! fleet. A trigger maintains them in the transaction that changes a status.

use std::collections::HashMap;

use brokkr_api::reason::Reason;
use brokkr_api::report::Transition;
use brokkr_api::status::{ErrorExample, ErrorGroup};
use brokkr_api::{SequenceId, StackId};
use sqlx::types::Json;
use sqlx::{PgPool, Postgres, Transaction};
use uuid::Uuid;

use super::{Doing as _, Fetch as _, Result, Run as _, known};

/// Returns the number of agents per last transition of a stack.
pub async fn status_counts_of_stack(
    pool: &PgPool,
    project: &str,
    stack: StackId,
) -> Result<Vec<(SequenceId, Transition, u64)>> {
    let rows: Vec<(i64, String, i64)> = sqlx::query_as(
        "SELECT sequence_id, transition, sum(count)::bigint FROM status_counts
         WHERE project = $1 AND stack_id = $2
         GROUP BY sequence_id, transition HAVING sum(count) > 0",
    )
    .bind(project)
    .bind(stack.0)
    .all(pool, "read the counts of the stack")
    .await?;
    rows.into_iter()
        .map(|(sequence, transition, agents)| {
            Ok((SequenceId(sequence), known(&transition)?, agents.unsigned_abs()))
        })
        .collect::<Result<_, sqlx::Error>>()
        .doing("read the counts of the stack")
}

/// Returns, for each of these stacks, the number of agents that have reported its newest version as failed or degraded.
/// Agents that the stack no longer targets are included.
pub async fn status_counts_of_failing(
    pool: &PgPool,
    project: &str,
    stacks: &[StackId],
) -> Result<HashMap<StackId, u64>> {
    let rows: Vec<(Uuid, i64)> = sqlx::query_as(
        "SELECT s.id, sum(c.count)::bigint
         FROM stacks s JOIN status_counts c ON c.stack_id = s.id AND c.sequence_id IN (s.newest_sequence_id, s.staged_sequence_id)
         WHERE s.project = $1 AND c.project = $1 AND s.id = ANY($2)
           AND c.transition IN ('failed', 'degraded')
         GROUP BY s.id HAVING sum(c.count) > 0",
    )
    .bind(project)
    .bind(stacks.iter().map(|stack| stack.0).collect::<Vec<_>>())
    .all(pool, "count the agents that are failing")
    .await?;
    Ok(rows.into_iter().map(|(stack, agents)| (StackId(stack), agents.unsigned_abs())).collect())
}

/// The agents of a stack in one state, for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackFigure {
    pub project: String,
    pub stack: String,
    /// The value of the label `team`, or nothing.
    pub team: String,
    pub transition: Transition,
    pub agents: u64,
}

/// Returns the number of agents by last transition of these stacks, each a project and a name. A state without agents is
/// absent; a stack without reports has one figure of zero.
pub async fn status_counts_of_stacks(
    pool: &PgPool,
    projects: &[&str],
    names: &[&str],
) -> Result<Vec<StackFigure>> {
    let rows: Vec<(String, String, String, String, i64)> = sqlx::query_as(
        "SELECT s.project, s.name, coalesce(s.labels ->> 'team', ''), coalesce(c.transition, 'healthy'),
                coalesce(sum(c.count), 0)::bigint
         FROM unnest($1::text[], $2::text[]) AS wanted (project, name)
         JOIN stacks s ON s.project = wanted.project AND s.name = wanted.name AND s.deleted_at IS NULL
         LEFT JOIN status_counts c ON c.project = s.project AND c.stack_id = s.id AND c.transition <> 'removed'
         GROUP BY 1, 2, 3, 4",
    )
    .bind(projects)
    .bind(names)
    .all(pool, "count the agents of stacks")
    .await?;
    rows.into_iter()
        .map(|(project, stack, team, transition, agents)| {
            let transition = known(&transition)?;
            Ok(StackFigure { project, stack, team, transition, agents: agents.max(0).unsigned_abs() })
        })
        .collect::<Result<_, sqlx::Error>>()
        .doing("count the agents of stacks")
}

/// The last group of a page: the next ones have a lower count, or the same count and a higher key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupCursor {
    pub count: i64,
    pub key: Vec<u8>,
}

#[derive(sqlx::FromRow)]
struct GroupRow {
    key: Vec<u8>,
    reason: String,
    details: Option<serde_json::Value>,
    count: i64,
    stacks: i64,
    sequence_id: i64,
    examples: Json<Vec<ErrorExample>>,
}

/// Returns up to `limit` error groups of a project or of one stack, largest first, plus one if there are more.
pub async fn error_group_list(
    pool: &PgPool,
    project: &str,
    stack: Option<StackId>,
    after: Option<GroupCursor>,
    limit: usize,
) -> Result<Vec<(GroupCursor, ErrorGroup)>> {
    let (below, key) = after.map_or((i64::MAX, Vec::new()), |cursor| (cursor.count, cursor.key));
    let rows: Vec<GroupRow> = sqlx::query_as(
        "WITH groups AS (
            SELECT reason_key AS key, sum(agents)::bigint AS count, count(*) AS stacks, max(sequence_id) AS sequence_id
            FROM (SELECT reason_key, stack_id, sum(count) AS agents, max(sequence_id) AS sequence_id
                  FROM status_counts
                  WHERE project = $1 AND reason_key <> '' AND ($2::uuid IS NULL OR stack_id = $2)
                  GROUP BY reason_key, stack_id HAVING sum(count) > 0) per_stack
            GROUP BY reason_key
            HAVING (-sum(agents)::bigint, reason_key) > (-$3::bigint, $4::bytea)
            ORDER BY count DESC, key LIMIT $5)
         SELECT g.key, coalesce(r.reason, '') AS reason, r.details, g.count, g.stacks,
                g.sequence_id, x.examples
         FROM groups g
         LEFT JOIN reasons r ON r.project = $1 AND r.key = g.key
         CROSS JOIN LATERAL (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                       'stack_id', e.stack_id, 'stack_name', coalesce(s.name, ''), 'agent_id', e.agent_id,
                       'agent_name', e.agent_name, 'sequence_id', e.sequence_id, 'message', e.message,
                       'objects', e.objects)), '[]') AS examples
            FROM (SELECT * FROM stack_status t
                  WHERE t.project = $1 AND t.reason_key = g.key AND ($2::uuid IS NULL OR t.stack_id = $2)
                  ORDER BY t.stack_id, t.agent_name LIMIT 3) e
            LEFT JOIN stacks s ON s.project = e.project AND s.id = e.stack_id) x
         ORDER BY g.count DESC, g.key",
    )
    .bind(project)
    .bind(stack.map(|stack| stack.0))
    .bind(below)
    .bind(key)
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .all(pool, "list the errors")
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let reason = Reason::from_parts(&row.reason, row.details);
            let group = ErrorGroup {
                message: reason.message(),
                reason,
                count: row.count.unsigned_abs(),
                stacks: row.stacks.unsigned_abs(),
                sequence_id: SequenceId(row.sequence_id),
                examples: row.examples.0,
            };
            (GroupCursor { count: row.count, key: row.key }, group)
        })
        .collect())
}

/// The shard that the counts of groups without agents are moved to.
const FIRST_SHARD: i16 = 0;
const LAST_SHARD: i16 = 15;
/// Groups that are compacted together.
const GROUPS: usize = 5000;

/// The keys of counts that add up to zero, in columns.
#[derive(Default)]
struct EmptyGroups {
    projects: Vec<String>,
    stacks: Vec<Uuid>,
    sequences: Vec<i64>,
    transitions: Vec<String>,
    reasons: Vec<Vec<u8>>,
}

/// Deletes counts that add up to zero, and unused reasons.
///
/// A shard may only be changed under its lock, and the sum must be right at every moment. So the counts of such a group
/// are moved to the first shard, one shard at a time, where they add up to a single zero. Writers choose a free shard, and
/// only two are locked at a time, so writers do not wait.
pub async fn status_counts_tidy(pool: &PgPool) -> Result<u64> {
    let mut deleted = 0;
    loop {
        let groups = empty_groups(pool).await?;
        for shard in FIRST_SHARD + 1..=LAST_SHARD {
            deleted += merge_shard(pool, &groups, shard).await?;
        }
        deleted += delete_zeros(pool, &groups).await?;
        if groups.projects.len() < GROUPS {
            break;
        }
    }
    // A day is far longer than any transaction that has inserted a reason and not counted it yet.
    sqlx::query(
        "DELETE FROM reasons r WHERE r.created_at < now() - interval '1 day' AND NOT EXISTS (
            SELECT FROM status_counts c WHERE c.project = r.project AND c.reason_key = r.key AND c.reason_key <> '')",
    )
    .run(pool, "delete unused reasons")
    .await?;
    Ok(deleted)
}

async fn empty_groups(pool: &PgPool) -> Result<EmptyGroups> {
    let rows: Vec<(String, Uuid, i64, String, Vec<u8>)> = sqlx::query_as(
        "SELECT project, stack_id, sequence_id, transition, reason_key FROM status_counts
         GROUP BY 1, 2, 3, 4, 5 HAVING sum(count) = 0 LIMIT $1",
    )
    .bind(i64::try_from(GROUPS).unwrap_or(i64::MAX))
    .all(pool, "find empty counts")
    .await?;
    let mut groups = EmptyGroups::default();
    for (project, stack, sequence, transition, reason) in rows {
        groups.projects.push(project);
        groups.stacks.push(stack);
        groups.sequences.push(sequence);
        groups.transitions.push(transition);
        groups.reasons.push(reason);
    }
    Ok(groups)
}

/// Moves the counts of these groups from a shard to the first one. Returns the number of deleted rows.
async fn merge_shard(pool: &PgPool, groups: &EmptyGroups, shard: i16) -> Result<u64> {
    let mut transaction = begin_locked(pool, &[FIRST_SHARD, shard]).await?;
    let moved = sqlx::query(
        "WITH moved AS (
            DELETE FROM status_counts c
            USING unnest($1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::bytea[])
                  AS g (project, stack_id, sequence_id, transition, reason_key)
            WHERE c.project = g.project AND c.stack_id = g.stack_id AND c.sequence_id = g.sequence_id
              AND c.transition = g.transition AND c.reason_key = g.reason_key AND c.shard = $6
            RETURNING c.*)
         INSERT INTO status_counts AS counts
         SELECT project, stack_id, sequence_id, transition, reason_key, $7, count FROM moved
         ON CONFLICT (project, stack_id, sequence_id, transition, reason_key, shard)
             DO UPDATE SET count = counts.count + excluded.count",
    )
    .bind(&groups.projects)
    .bind(&groups.stacks)
    .bind(&groups.sequences)
    .bind(&groups.transitions)
    .bind(&groups.reasons)
    .bind(shard)
    .bind(FIRST_SHARD)
    .affected(&mut *transaction, "move counts to one shard")
    .await?;
    transaction.commit().await.doing("commit the moved counts")?;
    Ok(moved)
}

/// Deletes the groups that add up to zero in the first shard.
async fn delete_zeros(pool: &PgPool, groups: &EmptyGroups) -> Result<u64> {
    let mut transaction = begin_locked(pool, &[FIRST_SHARD]).await?;
    let deleted = sqlx::query(
        "DELETE FROM status_counts WHERE shard = $1 AND count = 0 AND project = ANY($2) AND stack_id = ANY($3)",
    )
    .bind(FIRST_SHARD)
    .bind(&groups.projects)
    .bind(&groups.stacks)
    .affected(&mut *transaction, "delete empty counts")
    .await?;
    transaction.commit().await.doing("commit the deletion of empty counts")?;
    Ok(deleted)
}

/// Begins a transaction that may change these shards. In ascending order, so that two replicas cannot block each other.
async fn begin_locked(pool: &PgPool, shards: &[i16]) -> Result<Transaction<'static, Postgres>> {
    let mut transaction = pool.begin().await.doing("begin to delete empty counts")?;
    for shard in shards {
        sqlx::query("SELECT pg_advisory_xact_lock(1112690258, $1)")
            .bind(i32::from(*shard))
            .run(&mut *transaction, "lock a shard of the counts")
            .await?;
    }
    Ok(transaction)
}

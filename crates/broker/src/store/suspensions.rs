//! Suspensions: what agents leave alone for some time.

use brokkr_api::suspensions::{EndCause, NewSuspension, Suspension, SuspensionEnd};
use brokkr_api::{AgentId, StackId, SuspensionId};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use uuid::Uuid;

use super::stacks::LockedStack;
use super::{Columns as _, Fetch as _, Result, Run as _, known};

/// The most that counts at once, in seconds: a longer step is a clock that was set, or a time in which no broker ran.
const LONGEST_STEP: f64 = 60.0;

const COLUMNS: &str = "
    SELECT u.id, u.project, u.stack_id, s.name AS stack_name, a.name AS agent_name, u.selector, u.object, u.seconds, u.left_seconds,
           u.reason, u.created_by, u.created_at, u.ended_at, u.end_cause, u.ended_by
    FROM suspensions u
    JOIN stacks s ON s.project = u.project AND s.id = u.stack_id
    LEFT JOIN agents a ON a.id = u.agent_id";

fn read_suspension(row: PgRow) -> Result<Suspension, sqlx::Error> {
    let selector: Option<String> = row.field("selector")?;
    let ended = match row.field::<Option<String>>("end_cause")? {
        None => None,
        Some(cause) => Some(SuspensionEnd {
            at: row.time("ended_at")?,
            cause: known::<EndCause>(&cause)?,
            by: row.field("ended_by")?,
        }),
    };
    let left: f64 = row.field("left_seconds")?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is between zero and 30 days"
    )]
    let left_seconds = if ended.is_some() { 0 } else { left.ceil().max(1.0) as u32 };
    Ok(Suspension {
        id: SuspensionId(row.field("id")?),
        project: row.field("project")?,
        stack_id: StackId(row.field("stack_id")?),
        stack_name: row.field("stack_name")?,
        agent: row.field("agent_name")?,
        selector: selector.map(|selector| known(&selector)).transpose()?,
        object: row.field::<Option<Json<_>>>("object")?.map(|Json(object)| object),
        seconds: row.field::<i32>("seconds")?.unsigned_abs(),
        left_seconds,
        reason: row.field("reason")?,
        created_by: row.field("created_by")?,
        created_at: row.time("created_at")?,
        ended,
    })
}

/// Inserts a suspension of the stack.
pub async fn suspension_insert_on_conn(
    conn: &mut PgConnection,
    stack: &LockedStack,
    new: &NewSuspension,
    agent: Option<AgentId>,
    created_by: &str,
) -> Result<Suspension> {
    let id = SuspensionId::generate();
    sqlx::query(
        "INSERT INTO suspensions (id, project, stack_id, agent_id, selector, object, seconds, left_seconds, reason, created_by)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8, $9)",
    )
    .bind(id.0)
    .bind(&stack.project)
    .bind(stack.id.0)
    .bind(agent.map(|agent| agent.0))
    .bind(new.selector.as_ref().map(ToString::to_string))
    .bind(new.object.as_ref().map(Json))
    .bind(i32::try_from(new.seconds).unwrap_or(i32::MAX))
    .bind(&new.reason)
    .bind(created_by)
    .run(&mut *conn, "store the suspension")
    .await?;
    sqlx::query(AssertSqlSafe(format!("{COLUMNS} WHERE u.id = $1")))
        .bind(id.0)
        .try_map(read_suspension)
        .one(conn, "read the suspension")
        .await
}

/// Returns up to `limit` suspensions of the stack, newest first, plus one if there are more.
pub async fn suspension_list(
    pool: &PgPool,
    project: &str,
    stack: StackId,
    before: Option<SuspensionId>,
    limit: usize,
) -> Result<Vec<Suspension>> {
    sqlx::query(AssertSqlSafe(format!(
        "{COLUMNS} WHERE u.project = $1 AND u.stack_id = $2 AND ($3::uuid IS NULL OR u.id < $3) ORDER BY u.id DESC LIMIT $4"
    )))
    .bind(project)
    .bind(stack.0)
    .bind(before.map(|before| before.0))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .try_map(read_suspension)
    .all(pool, "list the suspensions")
    .await
}

/// Returns how many suspensions of the stack are in force.
pub async fn suspension_count_on_conn(conn: &mut PgConnection, stack: &LockedStack) -> Result<i64> {
    sqlx::query_scalar(
        "SELECT count(*) FROM suspensions WHERE project = $1 AND stack_id = $2 AND ended_at IS NULL",
    )
    .bind(&stack.project)
    .bind(stack.id.0)
    .one(conn, "count the suspensions")
    .await
}

/// Ends the suspensions of the stack that are in force, or one of them. Returns those that it ended.
pub async fn suspension_end_on_conn(
    conn: &mut PgConnection,
    stack: &LockedStack,
    only: Option<SuspensionId>,
    cause: EndCause,
    by: &str,
) -> Result<Vec<Suspension>> {
    sqlx::query(AssertSqlSafe(format!(
        "WITH ended AS (
            UPDATE suspensions SET ended_at = now(), end_cause = $4, ended_by = $5
            WHERE project = $1 AND stack_id = $2 AND ended_at IS NULL AND ($3::uuid IS NULL OR id = $3)
            RETURNING id, ended_at, end_cause, ended_by)
         SELECT u.id, u.project, u.stack_id, u.stack_name, u.agent_name, u.selector, u.object, u.seconds, u.left_seconds, u.reason,
                u.created_by, u.created_at, ended.ended_at, ended.end_cause, ended.ended_by
         FROM ended JOIN ({COLUMNS}) u ON u.id = ended.id ORDER BY u.id"
    )))
    .bind(&stack.project)
    .bind(stack.id.0)
    .bind(only.map(|only| only.0))
    .bind(cause.to_string())
    .bind(by)
    .try_map(read_suspension)
    .all(conn, "end the suspensions")
    .await
}

/// Counts the time since the last call, of any replica. Returns the suspensions that end with it, which are not ended yet.
pub async fn suspension_count_down(pool: &PgPool, at_least_seconds: f64) -> Result<Vec<(String, StackId)>> {
    // A replica that has waited for another one sees that the time is counted already.
    sqlx::query(
        "UPDATE suspensions
         SET left_seconds = left_seconds - least(greatest(extract(epoch FROM clock_timestamp() - counted_at), 0), $2),
             counted_at = clock_timestamp()
         WHERE ended_at IS NULL
           AND (counted_at < clock_timestamp() - make_interval(secs => $1) OR counted_at > clock_timestamp())",
    )
    .bind(at_least_seconds)
    .bind(LONGEST_STEP)
    .run(pool, "count the time of suspensions")
    .await?;
    let over: Vec<(String, Uuid)> = sqlx::query_as(
        "SELECT DISTINCT project, stack_id FROM suspensions WHERE ended_at IS NULL AND left_seconds <= 0",
    )
    .all(pool, "find suspensions that are over")
    .await?;
    Ok(over.into_iter().map(|(project, stack)| (project, StackId(stack))).collect())
}

/// Ends the suspensions of the stack that are over. Returns how many.
pub async fn suspension_expire_on_conn(
    conn: &mut PgConnection,
    project: &str,
    stack: StackId,
) -> Result<u64> {
    sqlx::query(
        "UPDATE suspensions SET ended_at = now(), end_cause = $3
         WHERE project = $1 AND stack_id = $2 AND ended_at IS NULL AND left_seconds <= 0",
    )
    .bind(project)
    .bind(stack.0)
    .bind(EndCause::Expired.to_string())
    .affected(conn, "end suspensions that are over")
    .await
}

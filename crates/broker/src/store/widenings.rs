//! Widenings: rollouts of a version that agents have, to agents that the stack has gained.

use brokkr_api::{SequenceId, StackId};
use jiff::Timestamp;
use sqlx::PgConnection;
use sqlx::types::Json;

use super::deployment_objects::NewRollout;
use super::stacks::LockedStack;
use super::{Columns as _, Fetch as _, Result, Run as _};

/// Inserts a widening of the version that every agent of the stack gets, before the targets are replaced: the present targets
/// are those whose agents have the version. If there is a widening that has not completed, its agents do not have it yet, so that
/// the targets before that one count. If it is not `open`, the gained agents get nothing before the next version.
///
/// Returns its sequence id, and when it began. The caller has ended the rollout that was under way, if this one is open.
pub async fn widening_insert_on_conn(
    conn: &mut PgConnection,
    stack: &LockedStack,
    new: &NewRollout,
    created_by: &str,
    open: bool,
) -> Result<(SequenceId, Timestamp)> {
    sqlx::query(
        "WITH widening AS (
            INSERT INTO rollouts (project, stack_id, sequence_id, widens, had, seed, policy, created_by, state, ended_at, windows)
            SELECT s.project, s.id, next_sequence_id(), s.newest_sequence_id,
                   coalesce(w.had, jsonb_build_object(
                       'agents', ARRAY(SELECT t.agent_id FROM stack_targets t
                                       WHERE t.project = s.project AND t.stack_id = s.id ORDER BY t.agent_id),
                       'selectors', ARRAY(SELECT t.selector FROM stack_selectors t
                                          WHERE t.project = s.project AND t.stack_id = s.id ORDER BY t.selector))),
                   $3, $4, $5, CASE WHEN $6 THEN 'running' ELSE 'superseded' END, CASE WHEN NOT $6 THEN now() END, windows_of($1)
            FROM stacks s
            LEFT JOIN rollouts w ON w.project = s.project AND w.stack_id = s.id AND w.sequence_id = s.widening_sequence_id
            WHERE s.project = $1 AND s.id = $2
            RETURNING sequence_id, created_at)
         UPDATE stacks SET widening_sequence_id = widening.sequence_id FROM widening
         WHERE stacks.project = $1 AND stacks.id = $2
         RETURNING widening.sequence_id, widening.created_at AS begun_at",
    )
    .bind(&stack.project)
    .bind(stack.id.0)
    .bind(new.seed.cast_signed())
    .bind(Json(&new.policy))
    .bind(created_by)
    .bind(open)
    .try_map(|row| Ok((SequenceId(row.field("sequence_id")?), row.time("begun_at")?)))
    .one(conn, "begin the widening")
    .await
}

/// Lets every target of the stack get its version.
pub async fn widening_forget_on_conn(conn: &mut PgConnection, project: &str, stack: StackId) -> Result<()> {
    sqlx::query("UPDATE stacks SET widening_sequence_id = NULL WHERE project = $1 AND id = $2")
        .bind(project)
        .bind(stack.0)
        .run(conn, "end the widening")
        .await
}

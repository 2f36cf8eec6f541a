//! The targets of a stack: agents and selectors. Targets that stay keep their creation time.

use brokkr_api::{AgentId, Selector};
use sqlx::PgConnection;
use uuid::Uuid;

use super::stacks::LockedStack;
use super::{Fetch as _, Result, Run as _};

/// Finds agents by name or id.
pub async fn stack_targets_resolve_on_conn(
    conn: &mut PgConnection,
    named: &[String],
) -> Result<Vec<(AgentId, String)>> {
    let ids: Vec<Uuid> = named.iter().filter_map(|text| text.parse().ok()).collect();
    let found: Vec<(Uuid, String)> =
        sqlx::query_as("SELECT id, name FROM agents WHERE name = ANY($1) OR id = ANY($2)")
            .bind(named)
            .bind(ids)
            .all(conn, "find the targeted agents")
            .await?;
    Ok(found.into_iter().map(|(id, name)| (AgentId(id), name)).collect())
}

pub async fn stack_targets_replace_on_conn(
    conn: &mut PgConnection,
    stack: &LockedStack,
    agents: &[AgentId],
    selectors: &[Selector],
) -> Result<()> {
    let agents: Vec<Uuid> = agents.iter().map(|agent| agent.0).collect();
    let selectors: Vec<String> = selectors.iter().map(ToString::to_string).collect();
    sqlx::query("DELETE FROM stack_targets WHERE project = $1 AND stack_id = $2 AND agent_id <> ALL($3)")
        .bind(&stack.project)
        .bind(stack.id.0)
        .bind(&agents)
        .run(&mut *conn, "remove targets")
        .await?;
    sqlx::query(
        "INSERT INTO stack_targets (project, stack_id, agent_id)
         SELECT $1, $2, id FROM unnest($3::uuid[]) AS wanted (id) ON CONFLICT DO NOTHING",
    )
    .bind(&stack.project)
    .bind(stack.id.0)
    .bind(&agents)
    .run(&mut *conn, "add targets")
    .await?;
    sqlx::query("DELETE FROM stack_selectors WHERE project = $1 AND stack_id = $2 AND selector <> ALL($3)")
        .bind(&stack.project)
        .bind(stack.id.0)
        .bind(&selectors)
        .run(&mut *conn, "remove selectors")
        .await?;
    sqlx::query(
        "INSERT INTO stack_selectors (project, stack_id, selector)
         SELECT $1, $2, selector FROM unnest($3::text[]) AS wanted (selector) ON CONFLICT DO NOTHING",
    )
    .bind(&stack.project)
    .bind(stack.id.0)
    .bind(&selectors)
    .run(conn, "add selectors")
    .await
}

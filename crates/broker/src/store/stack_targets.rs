//! The targets of a stack: agents and selectors. Targets that stay keep their creation time.

use brokkr_api::{AgentId, Selector};
use sqlx::PgConnection;
use uuid::Uuid;

use super::stacks::LockedStack;
use super::{Doing as _, StoreError};

/// Finds agents by name or id.
pub async fn stack_targets_resolve_on_conn(
    connection: &mut PgConnection,
    named: &[String],
) -> Result<Vec<(AgentId, String)>, StoreError> {
    let ids: Vec<Uuid> = named.iter().filter_map(|text| text.parse().ok()).collect();
    let found: Vec<(Uuid, String)> =
        sqlx::query_as("SELECT id, name FROM agents WHERE name = ANY($1) OR id = ANY($2)")
            .bind(named)
            .bind(ids)
            .fetch_all(connection)
            .await
            .doing("find the targeted agents")?;
    Ok(found.into_iter().map(|(id, name)| (AgentId(id), name)).collect())
}

pub async fn stack_targets_replace_on_conn(
    connection: &mut PgConnection,
    stack: &LockedStack,
    agents: &[AgentId],
    selectors: &[Selector],
) -> Result<(), StoreError> {
    let agents: Vec<Uuid> = agents.iter().map(|agent| agent.0).collect();
    let selectors: Vec<String> = selectors.iter().map(ToString::to_string).collect();
    sqlx::query("DELETE FROM stack_targets WHERE project = $1 AND stack_id = $2 AND agent_id <> ALL($3)")
        .bind(&stack.project)
        .bind(stack.id.0)
        .bind(&agents)
        .execute(&mut *connection)
        .await
        .doing("remove targets")?;
    sqlx::query(
        "INSERT INTO stack_targets (project, stack_id, agent_id)
         SELECT $1, $2, id FROM unnest($3::uuid[]) AS wanted (id) ON CONFLICT DO NOTHING",
    )
    .bind(&stack.project)
    .bind(stack.id.0)
    .bind(&agents)
    .execute(&mut *connection)
    .await
    .doing("add targets")?;
    sqlx::query("DELETE FROM stack_selectors WHERE project = $1 AND stack_id = $2 AND selector <> ALL($3)")
        .bind(&stack.project)
        .bind(stack.id.0)
        .bind(&selectors)
        .execute(&mut *connection)
        .await
        .doing("remove selectors")?;
    sqlx::query(
        "INSERT INTO stack_selectors (project, stack_id, selector)
         SELECT $1, $2, selector FROM unnest($3::text[]) AS wanted (selector) ON CONFLICT DO NOTHING",
    )
    .bind(&stack.project)
    .bind(stack.id.0)
    .bind(&selectors)
    .execute(connection)
    .await
    .map(|_| ())
    .doing("add selectors")
}

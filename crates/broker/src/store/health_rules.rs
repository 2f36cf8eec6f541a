//! Health rules: of the installation, and of stacks.

use brokkr_api::StackId;
use brokkr_api::health_rules::HealthRules;
use sqlx::{PgConnection, PgExecutor};
use uuid::Uuid;

use super::{Fetch as _, Result, Run as _};
use crate::domain::facts::HealthRuleFacts;

/// What rules apply to.
#[derive(Clone, Copy, Debug)]
pub enum RuleScope<'a> {
    Installation,
    Stack(&'a str, StackId),
}

impl<'a> RuleScope<'a> {
    fn key(self) -> (Option<&'a str>, Option<Uuid>) {
        match self {
            Self::Installation => (None, None),
            Self::Stack(project, stack) => (Some(project), Some(stack.0)),
        }
    }
}

/// Replaces the rules of a scope. An empty list is not stored.
pub async fn health_rules_put_on_conn(
    conn: &mut PgConnection,
    scope: RuleScope<'_>,
    rules: &HealthRules,
    by: &str,
) -> Result<()> {
    let (project, stack) = scope.key();
    let statement = if rules.rules.is_empty() {
        "DELETE FROM health_rules WHERE project IS NOT DISTINCT FROM $1 AND stack_id IS NOT DISTINCT FROM $2
            AND $3::text IS NOT NULL AND $4::text IS NOT NULL"
    } else {
        "INSERT INTO health_rules (project, stack_id, rules, changed_by) VALUES ($1, $2, $3, $4)
         ON CONFLICT (project, stack_id)
         DO UPDATE SET rules = excluded.rules, changed_by = excluded.changed_by, changed_at = now()"
    };
    let query = sqlx::query(statement).bind(project).bind(stack).bind(rules.to_json()).bind(by);
    query.run(conn, "set the health rules").await
}

/// Returns the rules of a scope as they are stored: a list in JSON.
async fn stored(executor: impl PgExecutor<'_>, scope: RuleScope<'_>) -> Result<Option<String>> {
    let (project, stack) = scope.key();
    sqlx::query_scalar(
        "SELECT rules FROM health_rules
         WHERE project IS NOT DISTINCT FROM $1 AND stack_id IS NOT DISTINCT FROM $2",
    )
    .bind(project)
    .bind(stack)
    .optional(executor, "read the health rules")
    .await
}

/// Returns the rules of a scope.
pub async fn health_rules_fetch(
    executor: impl PgExecutor<'_>,
    scope: RuleScope<'_>,
) -> Result<Result<HealthRules, serde_json::Error>> {
    let stored = stored(executor, scope).await?;
    let rules = stored.map_or(Ok(Vec::new()), |rules| serde_json::from_str(&rules));
    Ok(rules.map(|rules| HealthRules { rules }))
}

/// Returns the rules of the installation as agents get them.
pub async fn facts_of_health_rules_on_conn(conn: &mut PgConnection) -> Result<Option<HealthRuleFacts>> {
    Ok(stored(conn, RuleScope::Installation).await?.map(HealthRuleFacts::new))
}

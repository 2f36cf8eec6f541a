//! Policies for rollouts: of the installation, of a project, and of a stack.

use brokkr_api::StackId;
use brokkr_api::rollouts::{RolloutPolicies, RolloutPolicy};
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor};
use uuid::Uuid;

use super::{Fetch as _, Result, Run as _};

/// What a policy applies to.
#[derive(Clone, Copy, Debug)]
pub enum PolicyScope<'a> {
    Installation,
    Project(&'a str),
    Stack(&'a str, StackId),
}

impl<'a> PolicyScope<'a> {
    fn key(self) -> (Option<&'a str>, Option<Uuid>) {
        match self {
            Self::Installation => (None, None),
            Self::Project(project) => (Some(project), None),
            Self::Stack(project, stack) => (Some(project), Some(stack.0)),
        }
    }
}

/// Replaces the policy of a scope. An empty policy is not stored.
pub async fn rollout_policy_put_on_conn(
    conn: &mut PgConnection,
    scope: PolicyScope<'_>,
    policy: &RolloutPolicy,
    by: &str,
) -> Result<()> {
    let (project, stack) = scope.key();
    let statement = if *policy == RolloutPolicy::default() {
        "DELETE FROM rollout_policies WHERE project IS NOT DISTINCT FROM $1 AND stack_id IS NOT DISTINCT FROM $2
            AND $3::jsonb IS NOT NULL AND $4::text IS NOT NULL"
    } else {
        "INSERT INTO rollout_policies (project, stack_id, policy, changed_by) VALUES ($1, $2, $3, $4)
         ON CONFLICT (project, stack_id)
         DO UPDATE SET policy = excluded.policy, changed_by = excluded.changed_by, changed_at = now()"
    };
    let query = sqlx::query(statement).bind(project).bind(stack).bind(Json(policy)).bind(by);
    query.run(conn, "set the rollout policy").await
}

/// Returns the policies that apply to a project, or to a stack of it.
pub async fn rollout_policies_fetch(
    executor: impl PgExecutor<'_>,
    project: &str,
    stack: Option<StackId>,
) -> Result<RolloutPolicies> {
    let rows: Vec<(Option<String>, Option<Uuid>, Json<RolloutPolicy>)> = sqlx::query_as(
        "SELECT project, stack_id, policy FROM rollout_policies
         WHERE (project IS NULL OR project = $1) AND (stack_id IS NULL OR stack_id = $2)",
    )
    .bind(project)
    .bind(stack.map(|stack| stack.0))
    .all(executor, "read the rollout policies")
    .await?;
    let mut policies = RolloutPolicies::default();
    for (project, stack, Json(policy)) in rows {
        *match (project, stack) {
            (_, Some(_)) => &mut policies.stack,
            (Some(_), None) => &mut policies.project,
            (None, None) => &mut policies.installation,
        } = policy;
    }
    Ok(policies)
}

//! What belongs to others, as rows of the database. No attempt may change them.

use std::collections::BTreeSet;

use anyhow::Result;
use uuid::Uuid;

use super::world::World;

/// $1: the agents of the attacker, $2: the agents of the load, $3: the stacks of the load, $4: the stacks that never
/// targeted the attacker.
const ROWS: &str = "
    SELECT 'installation ' || to_jsonb(i)::text FROM installation i
    UNION ALL SELECT 'project ' || to_jsonb(p)::text FROM projects p
    UNION ALL SELECT 'grant ' || to_jsonb(g)::text FROM grants g
    UNION ALL SELECT 'token ' || to_jsonb(t)::text FROM api_tokens t
    UNION ALL SELECT 'agent ' || (to_jsonb(a) - '{refused_at,refused_because,last_seen_at,poll_seconds,silent_since}'::text[])::text
        FROM agents a WHERE id <> ALL($1)
    UNION ALL SELECT 'stack ' || to_jsonb(s)::text FROM stacks s WHERE id <> ALL($3)
    UNION ALL SELECT 'version ' || (to_jsonb(o) - 'content')::text || md5(o.content)
        FROM deployment_objects o WHERE stack_id <> ALL($3)
    UNION ALL SELECT 'target ' || to_jsonb(t)::text FROM stack_targets t
    UNION ALL SELECT 'selector ' || to_jsonb(s)::text FROM stack_selectors s
    UNION ALL SELECT 'hold ' || to_jsonb(h)::text FROM agent_holds h WHERE agent_id <> ALL($1::uuid[] || $2::uuid[])
    UNION ALL SELECT 'status ' || to_jsonb(s)::text FROM stack_status s WHERE agent_id <> ALL($1::uuid[] || $2::uuid[])
    UNION ALL SELECT 'event ' || to_jsonb(e)::text FROM events e WHERE agent_id <> ALL($1::uuid[] || $2::uuid[])
    UNION ALL SELECT 'count ' || stack_id || ' ' || sequence_id || transition || sum(count)
        FROM status_counts WHERE stack_id = ANY($4) GROUP BY stack_id, sequence_id, transition
    UNION ALL SELECT 'webhook ' || to_jsonb(w)::text FROM webhooks w
    UNION ALL SELECT 'message ' || webhook_id || ' ' || id || body::text FROM webhook_deliveries
    UNION ALL SELECT 'alarm ' || to_jsonb(a)::text FROM webhook_alarms a WHERE agent_id <> ALL($1::uuid[] || $2::uuid[])
    UNION ALL SELECT 'approval ' || to_jsonb(a)::text FROM prune_approvals a
    UNION ALL SELECT 'suspension ' || (to_jsonb(u) - 'left_seconds' - 'counted_at')::text FROM suspensions u
    UNION ALL SELECT 'health rule ' || to_jsonb(h)::text FROM health_rules h
    UNION ALL SELECT 'bar ' || to_jsonb(b)::text FROM barred_contents b
    UNION ALL SELECT 'claim ' || agent_id || ' ' || stack_id FROM agent_holds
        WHERE agent_id = ANY($1) AND stack_id = ANY($4) AND confirmed
    UNION ALL SELECT 'status ' || agent_id || ' ' || stack_id FROM stack_status WHERE agent_id = ANY($1) AND stack_id = ANY($4)
    UNION ALL SELECT 'event ' || agent_id || ' ' || stack_id FROM events WHERE agent_id = ANY($1) AND stack_id = ANY($4)
    UNION ALL SELECT 'alarm ' || agent_id || ' ' || stack_id FROM webhook_alarms WHERE agent_id = ANY($1) AND stack_id = ANY($4)
    UNION ALL SELECT 'future ' || id FROM events WHERE at > now() + interval '10 minutes'
    UNION ALL SELECT 'future ' || stack_id FROM stack_status WHERE at > now() + interval '10 minutes'";

/// The rows of others.
#[derive(Debug, PartialEq, Eq)]
pub struct OthersRows(BTreeSet<String>);

impl OthersRows {
    pub async fn read(world: &World) -> Result<Self> {
        let mut connection = world.harness.database.connect().await?;
        let ids = |ids: Vec<Uuid>| ids;
        let rows: Vec<String> = sqlx::query_scalar(ROWS)
            .bind(ids(world.own_agents().map(|agent| agent.id.0).collect()))
            .bind(ids(world.load.agents.iter().map(|agent| agent.0).collect()))
            .bind(ids(world.load.stacks.iter().map(|stack| stack.0).collect()))
            .bind(ids(world.others().map(|stack| stack.id.0).collect()))
            .fetch_all(&mut connection)
            .await?;
        anyhow::ensure!(rows.len() > 40, "there is too little to change: {rows:?}");
        Ok(Self(rows.into_iter().collect()))
    }

    /// Describes each kind of row that differs: `changed event: …`.
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let mut kinds = BTreeSet::new();
        let changed = self.0.symmetric_difference(&now.0);
        let describe = |row: &String| {
            let kind = row.split(' ').next().unwrap_or_default();
            kinds.insert(kind.to_owned()).then(|| format!("changed {kind}: {row}"))
        };
        changed.filter_map(describe).collect()
    }

    pub fn is_on_hold(&self) -> bool {
        self.0.iter().any(|row| row.starts_with("installation ") && !row.contains("\"held_since\": null"))
    }
}

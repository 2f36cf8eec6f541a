//! The metrics of the fleet match the content of the database.

use std::time::Duration;

use anyhow::Result;
use brokkr_testkit::{Attempt, eventually};
use sqlx::AssertSqlSafe;

use crate::fleet::Fleet;

/// Twelve agents with different times of last contact, a stack on some of them, and a webhook with an unreachable receiver.
const WORLD: &[&str] = &[
    "UPDATE agents SET last_seen_at = now() - interval '2 minutes' WHERE name IN ('shop-1', 'shop-2')",
    "UPDATE agents SET last_seen_at = now() - interval '1 hour' WHERE name IN ('shop-3', 'shop-4', 'shop-5')",
    "UPDATE agents SET last_seen_at = now() - interval '1 hour', poll_seconds = 3600 WHERE name = 'shop-6'",
    "UPDATE agents SET status = 'INACTIVE' WHERE name = 'shop-7'",
    "INSERT INTO stacks (project, id, name, labels, newest_sequence_id)
     VALUES ('default', gen_random_uuid(), 'web', '{\"team\": \"payments\"}', 2)",
    "INSERT INTO deployment_objects (project, stack_id, sequence_id, checksum, parsed_digest, resources, content,
                                     submitted_by, created_at)
     SELECT 'default', id, sequence, decode(repeat('00', 32), 'hex'), decode(repeat('00', 32), 'hex'), 1, '', 'me',
            now() - make_interval(hours => 4 - sequence)
     FROM stacks, generate_series(1, 2) AS sequence",
    "INSERT INTO reasons (project, key, reason) VALUES ('default', 'k', 'PruneNeedsApproval')",
    "INSERT INTO stack_status (project, stack_id, agent_id, sequence_id, transition, reason, message, objects, hops,
                               ready, total, at, reason_key)
     SELECT 'default', stacks.id, agents.id, given.sequence, given.transition, '', '', '[]', '{}', 1, 1,
            now() - interval '30 minutes', given.key::bytea
     FROM stacks, agents JOIN (VALUES ('shop-1', 2, 'healthy', NULL), ('shop-2', 2, 'healthy', NULL),
                                      ('shop-3', 1, 'healthy', NULL), ('shop-4', 1, 'failed', NULL),
                                      ('shop-5', 1, 'removed', NULL), ('shop-6', 2, 'blocked', 'k'))
                         AS given (name, sequence, transition, key) USING (name)",
    "INSERT INTO deployment_objects (project, stack_id, sequence_id, checksum, parsed_digest, resources, content, submitted_by)
     SELECT project, stack_id, sequence, checksum, parsed_digest, 1, '', 'me'
     FROM deployment_objects, generate_series(3, 4) AS sequence WHERE sequence_id = 2",
    "UPDATE stacks SET staged_sequence_id = 4",
    "INSERT INTO rollouts (project, stack_id, sequence_id, seed, policy, created_by, state, figures, created_at, state_changed_at, ended_at)
     SELECT 'default', id, sequence, 1, '{}', 'me', CASE sequence WHEN 4 THEN 'stopped' ELSE 'superseded' END,
            '{\"bad\": 3, \"owed\": 2}', now() - make_interval(hours => 6 - sequence), now() - interval '1 hour',
            CASE sequence WHEN 4 THEN NULL ELSE now() END
     FROM stacks, generate_series(3, 4) AS sequence",
    "INSERT INTO webhooks (project, id, name, url, filter, enabled)
     SELECT 'default', gen_random_uuid(), name, 'https://example.com', '{}', name <> 'off'
     FROM unnest(ARRAY['well', 'away', 'off']) AS name",
    "INSERT INTO webhook_deliveries (project, webhook_id, id, event, body, created_at, due_at, last_attempt_at)
     SELECT project, id, gen_random_uuid(), 'ping', '{}', now() - interval '10 minutes', now() + interval '1 hour', now()
     FROM webhooks WHERE name = 'away'",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_fleet_is_counted_by_presence_state_and_pending_work() -> Result<()> {
    let fleet = Fleet::start(12, &["--stack-metrics", "default/web,default/other"]).await?;
    let mut connection = fleet.database.connect().await?;
    for statement in WORLD {
        sqlx::query(AssertSqlSafe(*statement)).execute(&mut connection).await?;
    }
    let expected = [
        (r#"brokkr_agents{status="ACTIVE",presence="never"}"#, 5.0),
        (r#"brokkr_agents{status="ACTIVE",presence="fresh"}"#, 1.0),
        (r#"brokkr_agents{status="ACTIVE",presence="late"}"#, 2.0),
        (r#"brokkr_agents{status="ACTIVE",presence="silent"}"#, 3.0),
        (r#"brokkr_agents{status="INACTIVE",presence="never"}"#, 1.0),
        (r#"brokkr_placements{state="healthy"}"#, 3.0),
        (r#"brokkr_placements{state="failed"}"#, 1.0),
        (r#"brokkr_placements{state="degraded"}"#, 0.0),
        (r#"brokkr_placements{state="blocked"}"#, 1.0),
        (r#"brokkr_placements{state="removed"}"#, 1.0),
        ("brokkr_placements_behind", 2.0),
        ("brokkr_approvals_waiting", 1.0),
        (r#"brokkr_rollouts{state="stopped"}"#, 1.0),
        (r#"brokkr_rollouts{state="running"}"#, 0.0),
        (r#"brokkr_rollout_agents{state="bad"}"#, 3.0),
        (r#"brokkr_rollout_agents{state="owed"}"#, 2.0),
        ("brokkr_rollout_look_age_seconds", 0.0),
        (r#"brokkr_webhooks{state="working"}"#, 1.0),
        (r#"brokkr_webhooks{state="failing"}"#, 1.0),
        (r#"brokkr_webhooks{state="off"}"#, 1.0),
        ("brokkr_webhook_messages_waiting", 1.0),
        (r#"brokkr_stack_agents{project="default",stack="web",team="payments",state="healthy"}"#, 3.0),
        (r#"brokkr_stack_agents{project="default",stack="web",team="payments",state="failed"}"#, 1.0),
        (r#"brokkr_stack_agents{project="default",stack="web",team="payments",state="blocked"}"#, 1.0),
        (r#"brokkr_stack_agents{project="default",stack="web",team="payments",state="degraded"}"#, 0.0),
    ];
    // Figures are cached for some seconds.
    eventually(Duration::from_secs(30), "the fleet to be counted", async || {
        for (figure, value) in expected {
            match fleet.figure(figure).await {
                Ok(found) if found == value => {}
                other => return Attempt::NotYet(format!("{figure} is {other:?}, not {value}")),
            }
        }
        Attempt::Done(())
    })
    .await?;
    for (figure, about) in [
        ("brokkr_placements_behind_seconds", 2.0 * 3600.0),
        ("brokkr_approvals_waiting_seconds", 1800.0),
        ("brokkr_webhook_messages_waiting_seconds", 600.0),
        (r#"brokkr_rollout_state_seconds{state="stopped"}"#, 3600.0),
        ("brokkr_rollout_base_age_seconds", 3.0 * 3600.0),
    ] {
        let found = fleet.figure(figure).await?;
        assert!((about..about + 120.0).contains(&found), "{figure} is {found}, not {about}");
    }
    Ok(())
}

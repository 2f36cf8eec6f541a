//! Daily event partitions, expired contents and silent agents: each is processed once, by any replica.

use anyhow::Result;
use brokkr_api::ErrorCode;
use brokkr_api::audit::AuditEntry;
use brokkr_api::events::Event;
use brokkr_api::page::Page;
use brokkr_api::projects::Project;
use brokkr_api::report::{ReportReceipt, Transition};
use brokkr_api::stacks::PurgedStack;
use brokkr_api::tokens::Role;
use brokkr_broker::domain::retention::Retention;
use brokkr_broker::store::content_retention::content_drop_old;
use brokkr_broker::store::partitions::{events_delete_before, partition_create};
use brokkr_broker::store::presence::{SeenAgent, presence_mark_silent, presence_store};
use brokkr_broker::tasks::retention;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::harness::{Caller, Harness, YAML, current, read, refused};

#[tokio::test(flavor = "multi_thread")]
async fn events_are_in_the_partition_of_their_day_and_are_dropped_with_it() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let pool = &harness.server.broker.pool;
    let now = Timestamp::now();
    let object = harness.submit("web", YAML).await?;
    // Two replicas at once.
    tokio::join!(
        retention::once(pool, Retention::default(), now),
        retention::once(pool, Retention::default(), now)
    );
    let day = 24 * 3600;
    let (today, old, far) = (now.as_second(), now.as_second() - 40 * day, now.as_second() + 400 * day);
    let reports: Vec<_> = [today, old, far]
        .into_iter()
        .map(|second| agent.report(stack.id, object.sequence_id, Transition::Healthy, second))
        .collect();
    let receipt: ReportReceipt = read(agent.send_reports(&reports).await?).await?;
    assert_eq!(receipt.accepted.len(), 3, "no event is refused for its time");
    let mut connection = harness.database.connect().await?;
    let default = async |connection: &mut sqlx::PgConnection| -> Result<i64> {
        Ok(sqlx::query_scalar("SELECT count(*) FROM events_default").fetch_one(connection).await?)
    };
    assert_eq!(default(&mut connection).await?, 1, "today has a partition, and the future counts as now");

    // When its partition is created, a row of the default partition moves, and a repetition is still a duplicate, also
    // that of the report whose time was replaced.
    let day_of =
        |second| Ok::<_, jiff::Error>(Timestamp::from_second(second)?.to_zoned(TimeZone::UTC).date());
    let (one, other) =
        tokio::join!(partition_create(pool, day_of(old)?), partition_create(pool, day_of(old)?));
    assert!(one? != other?, "created once");
    assert_eq!(default(&mut connection).await?, 0);
    let again: ReportReceipt = read(agent.send_reports(&reports).await?).await?;
    assert_eq!((again.accepted.len(), again.duplicates.len()), (0, 3));

    let oldest = day_of(today - 30 * day)?;
    retention::once(pool, Retention::default(), now).await;
    let events: Page<Event> = harness.admin.get_json("events").await?;
    assert_eq!(events.items.len(), 2, "the day of 40 days ago is gone");
    // An event that arrives after its partition was dropped is kept as long as others, counted from when it
    // was recorded.
    let late = agent.report(stack.id, object.sequence_id, Transition::Applied, old);
    agent.send_reports(&[late]).await?;
    assert_eq!(events_delete_before(pool, oldest).await?, 0);
    sqlx::query("UPDATE events_default SET recorded_at = now() - interval '31 days'")
        .execute(&mut connection)
        .await?;
    assert_eq!(events_delete_before(pool, oldest).await?, 1);
    Ok(())
}

/// P4: a partition that cannot be created or dropped does not end the retention of the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_fails_does_not_stop_the_others() -> Result<()> {
    let harness = Harness::open().await?;
    let pool = &harness.server.broker.pool;
    let mut connection = harness.database.connect().await?;
    let partitions = async |connection: &mut sqlx::PgConnection| -> Result<Vec<String>> {
        let sql = "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                   WHERE i.inhparent = 'events'::regclass ORDER BY 1";
        Ok(sqlx::query_scalar(sql).fetch_all(connection).await?)
    };
    // The replica keeps 30 days, so it drops none of these itself.
    let (now, retention) =
        (Timestamp::now() - 240.hours(), Retention { event_days: 5, ..Retention::default() });
    let today = now.to_zoned(TimeZone::UTC).date();
    let name = |ahead: i64| today.saturating_add(ahead.days()).strftime("events_%Y%m%d").to_string();
    for ahead in [-8, -7] {
        partition_create(pool, today.saturating_add(ahead.days())).await?;
    }
    // A view depends on one of the old ones, and a type of someone else has the name of a new one.
    for sql in [
        format!("CREATE VIEW in_the_way AS SELECT id FROM {}", name(-8)),
        format!("CREATE DOMAIN {} AS integer", name(0)),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await?;
    }
    retention::once(pool, retention, now).await;
    let after = partitions(&mut connection).await?;
    assert!(after.contains(&name(-8)), "a view depends on it: {after:?}");
    assert!(!after.contains(&name(-7)), "the other old one is dropped: {after:?}");
    assert!(!after.contains(&name(0)), "its name is taken: {after:?}");
    assert!(after.contains(&name(1)), "the days after the bad one exist: {after:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_old_contents_that_no_agent_can_need_are_deleted() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let mut objects = Vec::new();
    for number in 0..6 {
        objects.push(harness.submit("web", &format!("{YAML}  labels:\n    version: v{number}\n")).await?);
    }
    let pool = &harness.server.broker.pool;
    let mut connection = harness.database.connect().await?;
    // An object cannot be changed, not even manually.
    let by_hand = "UPDATE deployment_objects SET created_at = created_at - interval '400 days'";
    assert!(sqlx::query(by_hand).execute(&mut connection).await.is_err());
    for sql in [
        "ALTER TABLE deployment_objects DISABLE TRIGGER deployment_objects_immutable",
        by_hand,
        "ALTER TABLE deployment_objects ENABLE TRIGGER deployment_objects_immutable",
    ] {
        sqlx::query(sql).execute(&mut connection).await?;
    }
    for sql in [
        "UPDATE deployment_objects SET content = ''",
        "UPDATE deployment_objects SET content = '', content_dropped_at = now(), submitted_by = 'x'",
        "UPDATE deployment_objects SET content = 'other', content_dropped_at = now()",
        "UPDATE deployment_objects SET content = '', content_dropped_at = now()
         WHERE sequence_id = (SELECT max(sequence_id) FROM deployment_objects)",
    ] {
        assert!(sqlx::query(sql).execute(&mut connection).await.is_err(), "{sql}");
    }
    // The agent holds the stack and has not reported a version: everything is kept.
    agent.hold(&[stack.id]).await?;
    assert_eq!(content_drop_old(pool, 180, 1).await?, 0);
    // The agent has the third version, and failed to apply the newest.
    let applied = agent.report(stack.id, objects[2].sequence_id, Transition::Applied, 1_700_000_000);
    let failed = agent.report(stack.id, objects[5].sequence_id, Transition::Failed, 1_700_000_001);
    agent.send_reports(&[applied]).await?;
    agent.send_reports(&[failed]).await?;
    assert_eq!(content_drop_old(pool, 180, 5).await?, 1, "the last five are kept besides the newest");
    assert_eq!(content_drop_old(pool, 180, 1).await?, 1, "older than what the agent has");
    assert_eq!(content_drop_old(pool, 500, 1).await?, 0, "not old enough");
    let path = |at: usize| format!("deployment-objects/{}", objects[at].sequence_id);
    for at in [0, 1] {
        assert_eq!(refused(harness.admin.get(&path(at)).await?).await?, ErrorCode::BRK2019);
    }
    for at in 2..6 {
        assert!(harness.admin.get(&path(at)).await?.text().await?.contains(&format!("version: v{at}")));
    }
    // No agent holds it any more.
    agent.hold(&[]).await?;
    assert_eq!(content_drop_old(pool, 180, 1).await?, 3, "all but the newest, and the last one before it");
    Ok(())
}

/// Makes everything of the stack older.
async fn age(harness: &Harness, days: i32) -> Result<()> {
    let mut connection = harness.database.connect().await?;
    for sql in [
        "ALTER TABLE deployment_objects DISABLE TRIGGER deployment_objects_immutable",
        "UPDATE deployment_objects SET created_at = created_at - make_interval(days => $1)",
        "ALTER TABLE deployment_objects ENABLE TRIGGER deployment_objects_immutable",
        "UPDATE stacks SET deleted_at = deleted_at - make_interval(days => $1)",
    ] {
        let query = sqlx::query(sql);
        let query = if sql.contains("$1") { query.bind(days) } else { query };
        query.execute(&mut connection).await?;
    }
    Ok(())
}

async fn stored_bytes(harness: &Harness) -> Result<u64> {
    Ok(harness.admin.get_json::<Project>("projects/default").await?.used.stored_bytes)
}

/// P10: all contents of a deleted stack are deleted, however few versions it had.
#[tokio::test(flavor = "multi_thread")]
async fn the_contents_of_a_deleted_stack_are_deleted_once_no_agent_holds_it() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let object = harness.submit("web", YAML).await?;
    agent.hold(&[stack.id]).await?;
    let pool = &harness.server.broker.pool;
    age(&harness, 400).await?;
    harness.delete("web").await?;
    assert_eq!(content_drop_old(pool, 180, 20).await?, 0, "it was deleted just now");
    age(&harness, 181).await?;
    assert_eq!(content_drop_old(pool, 180, 20).await?, 0, "the agent still holds it");
    agent.hold(&[]).await?;
    assert_eq!(stored_bytes(&harness).await?, YAML.len() as u64);
    assert_eq!(content_drop_old(pool, 180, 20).await?, 1);
    assert_eq!(stored_bytes(&harness).await?, 0, "the quota is free again");
    let path = format!("deployment-objects/{}", object.sequence_id);
    assert_eq!(refused(harness.admin.get(&path).await?).await?, ErrorCode::BRK2019);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_deletes_the_contents_of_a_deleted_stack_at_once_on_every_replica() -> Result<()> {
    let harness = Harness::open().await?;
    let second = harness.replica().await?;
    let elsewhere = harness.admin.at(second.address);
    harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let mut objects = Vec::new();
    for number in 0..3 {
        objects.push(harness.submit("web", &format!("{YAML}  labels:\n    version: v{number}\n")).await?);
    }
    let path = |at: usize| format!("deployment-objects/{}", objects[at].sequence_id);
    // Both replicas have it in memory.
    for caller in [&harness.admin, &elsewhere] {
        assert_eq!(caller.get(&path(1)).await?.status(), StatusCode::OK);
    }
    let purge = async |caller: &Caller, reason: &str| {
        caller.send(Method::POST, "stacks/web/purge", &json!({ "reason": reason })).await
    };
    assert_eq!(refused(purge(&harness.admin, "law").await?).await?, ErrorCode::BRK2021, "it is not deleted");
    harness.delete("web").await?;
    assert_eq!(refused(purge(&harness.admin, " ").await?).await?, ErrorCode::BRK2003, "no reason");
    let owner = harness.with_role(Role::Owner).await?;
    assert_eq!(refused(purge(&owner, "law").await?).await?, ErrorCode::BRK1002);

    let purged: PurgedStack = read(purge(&harness.admin, "contained personal data").await?).await?;
    assert_eq!((purged.stack_name.as_str(), purged.versions), ("web", 3));
    for at in 0..3 {
        assert_eq!(refused(harness.admin.get(&path(at)).await?).await?, ErrorCode::BRK2019);
    }
    current(&second.broker).await?;
    assert_eq!(refused(elsewhere.get(&path(1)).await?).await?, ErrorCode::BRK2019);
    assert_eq!(stored_bytes(&harness).await?, 0);
    let again: PurgedStack = read(purge(&harness.admin, "again").await?).await?;
    assert_eq!(again.versions, 0);
    let what = "audit?what=/api/v1/stacks/%7Bstack%7D/purge&kind=change";
    let entries = harness.admin.get_json::<Page<AuditEntry>>(what).await?.items;
    let reasons: Vec<&str> = entries.iter().map(|entry| entry.reason.as_str()).collect();
    assert_eq!(reasons, ["again", "contained personal data"]);
    second.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_falls_silent_and_returns_is_recorded_once_each() -> Result<()> {
    let harness = Harness::open().await?;
    let second = harness.replica().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    harness.agent("shop-2", json!({})).await?;
    let (here, there) = (&harness.server.broker.pool, &second.broker.pool);
    let mut connection = harness.database.connect().await?;
    let kinds = async |connection: &mut sqlx::PgConnection| -> Result<Vec<String>> {
        Ok(sqlx::query_scalar("SELECT kind FROM agent_events ORDER BY at, kind DESC")
            .fetch_all(connection)
            .await?)
    };
    let aged = "UPDATE agents SET last_seen_at = now() - interval '301 seconds' WHERE id = $1";
    sqlx::query(aged).bind(agent.id.0).execute(&mut connection).await?;
    harness.checked_for("0 seconds").await?;
    let both = async || -> Result<usize> {
        let (one, other) = tokio::join!(presence_mark_silent(here), presence_mark_silent(there));
        Ok(one?.len() + other?.len())
    };
    assert_eq!(both().await?, 0, "no check has covered that time yet");
    harness.checked_for("1 hour").await?;
    // One of the two records it, unless a task of the replicas was faster.
    assert!(both().await? <= 1);
    assert_eq!(both().await?, 0);
    assert_eq!(kinds(&mut connection).await?, ["silent"]);

    let seen = |ago: i64| SeenAgent {
        agent: agent.id,
        at: Timestamp::from_second(Timestamp::now().as_second() - ago).expect("a time"),
        poll_seconds: 30,
        allows_upgrades: false,
    };
    presence_store(here, &[seen(250)]).await?;
    assert_eq!(kinds(&mut connection).await?, ["silent"], "an old poll that is stored late");
    let now = [seen(0)];
    let (one, other) = tokio::join!(presence_store(here, &now), presence_store(there, &now));
    one?;
    other?;
    assert_eq!(kinds(&mut connection).await?, ["silent", "back"]);
    assert_eq!(both().await?, 0);
    second.stop().await;
    Ok(())
}

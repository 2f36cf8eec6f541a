//! A migration of a large table while brokers write to it.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use brokkr_api::report::Transition;
use brokkr_broker::store::privileges::ServingRole;
use brokkr_broker::store::schema::schema_run;
use brokkr_testkit::postgres::Durability;
use brokkr_testkit::{Attempt, Database, Postgres, Scratch, eventually};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::json;
use sqlx::migrate::Migrator;
use sqlx::{Connection as _, PgConnection};

use super::{SOON, migrate};
use crate::harness::{Agent, Caller, Harness, YAML};

const COLUMN: &str = "ALTER TABLE stack_status ADD COLUMN note text NOT NULL DEFAULT ''";
const INDEX: &str =
    "-- no-transaction\nCREATE INDEX CONCURRENTLY IF NOT EXISTS stack_status_by_time ON stack_status (at)";
const ONE_SECOND: Duration = Duration::from_secs(1);

/// Returns the migrations of a later release: those of this one, and a column and an index of a table that exists.
async fn later_release() -> Result<(Scratch, Migrator)> {
    let scratch = Scratch::new("migrations")?;
    for file in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations"))? {
        let file = file?;
        fs::copy(file.path(), scratch.path().join(file.file_name()))?;
    }
    for (name, sql) in [("9001_column", COLUMN), ("9002_index", INDEX)] {
        fs::write(scratch.path().join(format!("{name}.sql")), sql)?;
    }
    let migrator = Migrator::new(scratch.path()).await?;
    Ok((scratch, migrator))
}

/// Returns whether the column exists and the index can be used.
async fn is_migrated(connection: &mut PgConnection) -> Result<bool> {
    let sql = "SELECT indisvalid AND EXISTS (SELECT FROM pg_attribute
                                             WHERE attrelid = 'stack_status'::regclass AND attname = 'note')
               FROM pg_index WHERE indexrelid = 'stack_status_by_time'::regclass";
    Ok(sqlx::query_scalar(sql).fetch_one(connection).await?)
}

/// Calls `request` until the end, and returns the longest response time.
async fn longest(done: &AtomicBool, mut request: impl AsyncFnMut() -> Result<()>) -> Result<Duration> {
    let mut longest = Duration::ZERO;
    while !done.load(Ordering::Relaxed) {
        let begun = Instant::now();
        request().await?;
        longest = longest.max(begun.elapsed());
    }
    Ok(longest)
}

/// Submits and reports until the end. Returns the longest response time of a submission and of a report.
async fn load(harness: &Harness, agent: &Agent, done: &AtomicBool) -> Result<(Duration, Duration)> {
    let admin: Caller = harness.admin.without_waiting();
    let object = harness.submit("web", YAML).await?;
    let (mut count, mut second) = (0, Timestamp::now().as_second() - 10_000);
    let submit = longest(done, async || {
        count += 1;
        let yaml = format!("{YAML}  labels:\n    count: \"{count}\"\n");
        let request = admin.request(Method::POST, "stacks/web/deployment-objects").body(yaml);
        anyhow::ensure!(request.send().await?.status().is_success());
        Ok(())
    });
    let report = longest(done, async || {
        second += 1;
        let report = agent.report(object.stack_id, object.sequence_id, Transition::Healthy, second);
        anyhow::ensure!(agent.send_reports(&[report]).await?.status().is_success());
        Ok(())
    });
    tokio::try_join!(submit, report)
}

/// Returns the longest time for which a session waited for a lock on a table, until the end.
async fn longest_lock_wait(database: &Database, done: &AtomicBool) -> Result<Duration> {
    let mut connection = database.connect().await?;
    let mut longest = 0.0_f64;
    while !done.load(Ordering::Relaxed) {
        let waits: f64 = sqlx::query_scalar(
            "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - waitstart)), 0)::float8 FROM pg_locks
             WHERE NOT granted AND locktype = 'relation'",
        )
        .fetch_one(&mut connection)
        .await?;
        longest = longest.max(waits);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(Duration::from_secs_f64(longest.max(0.0)))
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_a_second_for_a_migration_of_a_table_with_a_million_rows() -> Result<()> {
    // A separate server, because others would notice the load.
    let harness = Harness::open_on(Arc::new(Postgres::start().await?)).await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let mut connection = harness.database.connect().await?;
    sqlx::raw_sql("SET session_replication_role = replica").execute(&mut connection).await?;
    sqlx::query(
        "INSERT INTO stack_status (project, stack_id, agent_id, sequence_id, transition, reason, message, objects, hops,
                                   ready, total, at)
         SELECT 'default', lpad(to_hex(number), 32, '0')::uuid, $1, 1, 'healthy', 'none', '', '[]', '{}', 1, 1, now()
         FROM generate_series(1, 1000000) AS number",
    )
    .bind(agent.id.0)
    .execute(&mut connection)
    .await?;

    // The same load without a migration, for comparison.
    let done = AtomicBool::new(false);
    let control = async {
        tokio::time::sleep(ONE_SECOND).await;
        done.store(true, Ordering::Relaxed);
        Ok(())
    };
    let ((submit_alone, report_alone), ()) = tokio::try_join!(load(&harness, &agent, &done), control)?;

    // Someone reads the table in a transaction that stays open, so that the migration cannot lock it.
    let mut reader = harness.database.connect().await?;
    let mut reading = reader.begin().await?;
    sqlx::raw_sql("LOCK TABLE stack_status IN ACCESS SHARE MODE").execute(&mut *reading).await?;
    let (_scratch, migrator) = later_release().await?;
    let (url, done) = (harness.database.url(), AtomicBool::new(false));
    let migration = async {
        let migrated = schema_run(&url, &migrator, &ServingRole::default()).await;
        done.store(true, Ordering::Relaxed);
        anyhow::Ok(migrated?)
    };
    let ending = async {
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'stack_status'::regclass
                     AND mode = 'AccessExclusiveLock'";
        let mut attempts = 0;
        let mut was_waiting = false;
        eventually(SOON, "the migration to give up twice", async || {
            let waiting: i64 = match sqlx::query_scalar(waits).fetch_one(&mut connection).await {
                Ok(waiting) => waiting,
                Err(error) => return Attempt::NotYet(error.to_string()),
            };
            attempts += i32::from(was_waiting && waiting == 0);
            was_waiting = waiting > 0;
            if attempts >= 2 { Attempt::Done(()) } else { Attempt::NotYet(format!("{attempts} attempts")) }
        })
        .await?;
        anyhow::Ok(reading.rollback().await?)
    };
    let ((submit, report), lock, (), ()) = tokio::try_join!(
        load(&harness, &agent, &done),
        longest_lock_wait(&harness.database, &done),
        migration,
        ending
    )?;
    println!(
        "longest lock wait {lock:?}; submission {submit:?} (alone {submit_alone:?}), report {report:?} (alone {report_alone:?})"
    );
    assert!(is_migrated(&mut connection).await?);
    assert!(lock > Duration::from_millis(100), "reports waited behind the migration: {lock:?}");
    assert!(lock < ONE_SECOND, "a session waited {lock:?} for a lock");
    assert!(submit < ONE_SECOND + submit_alone, "a submission took {submit:?}, alone {submit_alone:?}");
    assert!(report < ONE_SECOND + report_alone, "a report took {report:?}, alone {report_alone:?}");
    Ok(())
}

/// An index that is created concurrently is invalid when the migration is interrupted.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_was_not_completed_is_created_again() -> Result<()> {
    let database = Postgres::shared().await?.database().await?;
    migrate(&database).await?;
    let mut connection = database.connect().await?;
    sqlx::raw_sql(
        "CREATE INDEX stack_status_by_time ON stack_status (at);
         UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'stack_status_by_time'::regclass",
    )
    .execute(&mut connection)
    .await?;
    let (_scratch, migrator) = later_release().await?;
    for _ in 0..2 {
        schema_run(&database.url(), &migrator, &ServingRole::default()).await?;
        assert!(is_migrated(&mut connection).await?);
    }
    Ok(())
}

/// An autovacuum of a large table takes long, and PostgreSQL interrupts it only for sessions that wait longer than a migration.
#[tokio::test(flavor = "multi_thread")]
async fn a_migration_interrupts_an_autovacuum() -> Result<()> {
    let postgres = Postgres::start_with_settings(Durability::None, &["autovacuum_naptime=1s"]).await?;
    let database = postgres.database().await?;
    migrate(&database).await?;
    let mut connection = database.connect().await?;
    // As slow as it can be.
    sqlx::raw_sql(
        "SET session_replication_role = replica;
         ALTER TABLE stack_status SET (autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1);
         INSERT INTO stack_status (project, stack_id, agent_id, sequence_id, transition, reason, message, objects, hops,
                                   ready, total, at)
         SELECT 'default', gen_random_uuid(), gen_random_uuid(), 1, 'healthy', 'none', '', '[]', '{}', 1, 1, now()
         FROM generate_series(1, 50000)",
    )
    .execute(&mut connection)
    .await?;
    eventually(SOON, "an autovacuum", async || {
        let sql = "SELECT count(*) FROM pg_stat_progress_vacuum WHERE relid = 'stack_status'::regclass";
        sqlx::query_scalar::<_, i64>(sql).fetch_one(&mut connection).await.is_ok_and(|running| running == 1)
    })
    .await?;
    let (_scratch, migrator) = later_release().await?;
    tokio::time::timeout(SOON, schema_run(&database.url(), &migrator, &ServingRole::default())).await??;
    assert!(is_migrated(&mut connection).await?);
    Ok(())
}

//! Migrations: killed at every step and run again, two at once, behind a lock, and under a broker that still runs.

mod load;
mod rules;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brokkr_testkit::process::run;
use brokkr_testkit::{Attempt, Database, Launch, Output, Postgres, Process, Scratch, eventually};
use sqlx::{Connection as _, PgConnection};

const PROGRAM: &str = env!("CARGO_BIN_EXE_brokkr-broker");
const SOON: Duration = Duration::from_secs(60);
/// The schema that brokers of the first version work with.
const FIRST: &str = include_str!("../../migrations/0001_schema.sql");

fn migrator(database: &Database) -> Launch {
    Launch::new("brokkr-broker", PROGRAM).args(["migrate", "--database-url", &database.url()])
}

async fn migrate(database: &Database) -> Result<Output> {
    run(migrator(database), SOON).await?.ok()
}

/// Returns everything in the schema, as PostgreSQL describes it.
async fn catalog(database: &Database) -> Result<Vec<String>> {
    let mut connection = database.connect().await?;
    let lines = sqlx::query_scalar(
        "SELECT format('column %s.%s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
                       a.attnotnull, pg_get_expr(d.adbin, d.adrelid))
         FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
         LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'S', 'v')
         UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'public'
         UNION ALL SELECT format('constraint %s %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint
                   WHERE connamespace = 'public'::regnamespace
         UNION ALL SELECT 'function ' || pg_get_functiondef(oid) FROM pg_proc
                   WHERE pronamespace = 'public'::regnamespace
         UNION ALL SELECT 'trigger ' || pg_get_triggerdef(t.oid) FROM pg_trigger t
                   JOIN pg_class c ON c.oid = t.tgrelid
                   WHERE NOT tgisinternal AND c.relnamespace = 'public'::regnamespace
         UNION ALL SELECT format('migration %s %s', version, success) FROM _sqlx_migrations
         ORDER BY 1",
    )
    .fetch_all(&mut connection)
    .await?;
    Ok(lines)
}

/// Makes the n-th statement that changes the schema hang, in the middle of the migration.
async fn hang_at(database: &Database, step: i64) -> Result<PgConnection> {
    let mut connection = database.connect().await?;
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
        "CREATE SCHEMA fault;
         CREATE SEQUENCE fault.step;
         CREATE FUNCTION fault.hang() RETURNS event_trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF nextval('fault.step') = {step} THEN PERFORM pg_sleep(600); END IF;
         END $$;
         CREATE EVENT TRIGGER hang ON ddl_command_end EXECUTE FUNCTION fault.hang();"
    )))
    .execute(&mut connection)
    .await?;
    // The statements above, which set up the trigger, must not count as steps.
    sqlx::query("SELECT setval('fault.step', 1, false)").execute(&mut connection).await?;
    Ok(connection)
}

/// The server process of a migration that is blocked in this database.
const BLOCKED_MIGRATION: &str = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()
                        AND application_name = 'brokkr-broker migrate' AND wait_event = 'PgSleep'";

/// Runs the migrator and kills it at the step; returns false if there are fewer steps.
async fn killed_at(database: &Database, step: i64) -> Result<bool> {
    let mut connection = hang_at(database, step).await?;
    let scratch = Scratch::new("migrator")?;
    let process = Process::start(migrator(database), scratch.path())?;
    let deadline = Instant::now() + SOON;
    let blocked = loop {
        let found: Option<i32> =
            sqlx::query_scalar(BLOCKED_MIGRATION).fetch_optional(&mut connection).await?;
        if found.is_some() || !process.is_running() {
            break found;
        }
        anyhow::ensure!(Instant::now() < deadline, "neither done nor at step {step}: {}", process.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    process.kill9();
    if let Some(pid) = blocked {
        // The server ends the session once it notices the lost client. Until then, the next migration would wait.
        sqlx::query("SELECT pg_terminate_backend($1)").bind(pid).execute(&mut connection).await?;
    }
    sqlx::raw_sql("DROP EVENT TRIGGER hang; DROP SCHEMA fault CASCADE").execute(&mut connection).await?;
    Ok(blocked.is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_is_killed_at_any_step_is_completed_by_the_next_run() -> Result<()> {
    // A separate server, because a blocked transaction delays the outbox tails of all databases of a server.
    let postgres = Postgres::start().await?;
    let fresh = postgres.database().await?;
    migrate(&fresh).await?;
    let wanted = catalog(&fresh).await?;
    let mut step = 1;
    loop {
        let database = postgres.database().await?;
        let killed = killed_at(&database, step).await?;
        migrate(&database).await?;
        assert_eq!(catalog(&database).await?, wanted, "killed at step {step}");
        if !killed {
            break;
        }
        if step % 10 == 0 {
            // And again: nothing is left to do.
            migrate(&database).await?;
            assert_eq!(catalog(&database).await?, wanted, "run again after step {step}");
        }
        step += 1;
    }
    assert!(step > 30, "it was killed at {step} steps only");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_migrators_at_once_make_the_same_schema_as_one() -> Result<()> {
    let postgres = Postgres::shared().await?;
    let (one, two) = (postgres.database().await?, postgres.database().await?);
    migrate(&one).await?;
    let (first, second, third) = tokio::join!(migrate(&two), migrate(&two), migrate(&two));
    first.and(second).and(third)?;
    assert_eq!(catalog(&two).await?, catalog(&one).await?);
    Ok(())
}

/// `helm rollback` runs `migrate` and `serve` of the older release.
#[tokio::test(flavor = "multi_thread")]
async fn migrate_and_serve_accept_a_schema_that_a_newer_release_has_migrated() -> Result<()> {
    let database = Postgres::shared().await?.database().await?;
    migrate(&database).await?;
    let mut connection = database.connect().await?;
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'of a newer release', true, '\\x00', 1)",
    )
    .execute(&mut connection)
    .await?;
    migrate(&database).await?;
    let server = crate::harness::serve_with(&database, None).await?;
    server.stop().await;
    Ok(())
}

/// A migrator that waits for a lock gives up soon, so that no session waits behind it, and tries again.
#[tokio::test(flavor = "multi_thread")]
async fn a_migrator_behind_a_lock_gives_up_and_tries_again() -> Result<()> {
    // A separate server: an open transaction delays every outbox tail of a server.
    let postgres = Postgres::start().await?;
    let database = postgres.database().await?;
    let mut other = database.connect().await?;
    let mut creating = other.begin().await?;
    sqlx::query("CREATE TABLE agents ()").execute(&mut *creating).await?;
    let scratch = Scratch::new("migrator")?;
    let process = Process::start(migrator(&database), scratch.path())?;
    let mut connection = database.connect().await?;
    // When the waiting transaction began: each attempt of the migrator is a new transaction.
    let waits = "SELECT xact_start::text FROM pg_stat_activity WHERE datname = current_database()
                 AND application_name = 'brokkr-broker migrate' AND wait_event_type = 'Lock'";
    let mut attempts = std::collections::BTreeSet::new();
    eventually(SOON, "the migrator to wait for the lock in two attempts", async || {
        match sqlx::query_scalar::<_, String>(waits).fetch_optional(&mut connection).await {
            Ok(started) => attempts.extend(started),
            Err(error) => return Attempt::NotYet(error.to_string()),
        }
        if attempts.len() > 1 { Attempt::Done(()) } else { Attempt::NotYet(format!("{attempts:?}")) }
    })
    .await?;
    assert!(process.is_running(), "it tries again: {}", process.log());
    creating.rollback().await?;
    assert!(process.ended(SOON).await?.success(), "{}", process.log());
    migrate(&database).await?;
    Ok(())
}

type Columns = BTreeMap<(String, String), (String, bool, bool)>;

/// Returns the type of every column, whether an INSERT may omit it, and whether it may be null.
async fn columns(connection: &mut PgConnection) -> Result<Columns> {
    type Row = (String, String, String, bool, bool);
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT table_name::text, column_name::text, data_type::text,
                is_nullable = 'YES' OR column_default IS NOT NULL OR is_identity = 'YES', is_nullable = 'YES'
         FROM information_schema.columns WHERE table_schema = 'public'",
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|(table, column, kind, free, null)| ((table, column), (kind, free, null)))
        .collect())
}

/// Migrations expand the schema, and contract it one release later: a broker that is running keeps working.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_of_the_first_version_can_work_on_the_newest_schema() -> Result<()> {
    let postgres = Postgres::shared().await?;
    let (old, new) = (postgres.database().await?, postgres.database().await?);
    let mut connection = old.connect().await?;
    sqlx::raw_sql(FIRST).execute(&mut connection).await?;
    let before = columns(&mut connection).await?;
    migrate(&new).await?;
    let mut connection = new.connect().await?;
    let now = columns(&mut connection).await?;
    for ((table, column), (kind, free, null)) in &before {
        let known = now.get(&(table.clone(), column.clone()));
        let (kind_now, free_now, null_now) =
            known.with_context(|| format!("{table}.{column} is gone, but running brokers still read it"))?;
        assert_eq!(kind, kind_now, "{table}.{column} has another type");
        assert!(!free || *free_now, "{table}.{column} is now required, but running brokers do not set it");
        assert!(
            *null || !null_now || table == "events",
            "{table}.{column} may now be null, but running brokers cannot read that"
        );
    }
    let tables: std::collections::BTreeSet<&String> = before.keys().map(|(table, _)| table).collect();
    for ((table, column), (_, free, _)) in &now {
        let added = tables.contains(table) && !before.contains_key(&(table.clone(), column.clone()));
        assert!(!added || *free, "{table}.{column} is required, but running brokers do not know it");
    }
    Ok(())
}

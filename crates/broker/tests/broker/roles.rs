//! Two database roles: one owns the tables and migrates, the other serves. What the second must not do, PostgreSQL refuses.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::audit::AuditVerdict;
use brokkr_api::events::Event;
use brokkr_api::page::Page;
use brokkr_api::report::{ReportReceipt, Transition};
use brokkr_api::system::{MissingPrivilege, System};
use brokkr_broker::args::{RetentionArgs, ServeArgs};
use brokkr_broker::domain::retention::Retention;
use brokkr_broker::serve::{ServeError, Server};
use brokkr_broker::store::audit_partitions::audit_partition_create;
use brokkr_broker::store::partitions::partition_create;
use brokkr_broker::tasks::{audit_retention, retention};
use brokkr_testkit::broker::policy_set;
use brokkr_testkit::process::run;
use brokkr_testkit::{Attempt, Database, Launch, Output, Postgres, eventually, unique};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::harness::{Caller, Harness, SERVING, YAML, read, role_create, serve_with, token};

const PROGRAM: &str = env!("CARGO_BIN_EXE_brokkr-broker");
const SOON: Duration = Duration::from_secs(60);

/// Runs a command of the broker with this role.
async fn broker(database: &Database, role: &str, arguments: &[&str]) -> Result<Output> {
    let url = database.url_as(role);
    run(Launch::new("brokkr-broker", PROGRAM).args(arguments).args(["--database-url", &url]), SOON).await
}

/// Returns an empty database of one role without further rights, the name of this role, and the name of another role.
async fn two_roles(postgres: &Postgres) -> Result<(Database, String, String)> {
    let database = postgres.database().await?;
    let (owner, serving) = (unique("owner").replace('-', "_"), unique("serving").replace('-', "_"));
    for role in [&owner, &serving] {
        role_create(&database.url(), role).await?;
    }
    let sql = format!("ALTER DATABASE {} OWNER TO {owner}", database.name());
    sqlx::query(AssertSqlSafe(sql)).execute(&mut database.connect().await?).await?;
    Ok((database, owner, serving))
}

/// Starts a replica that drops nothing by itself.
async fn serve_as(database: &Database, role: &str) -> Result<Server, ServeError> {
    let retention = RetentionArgs { event_days: 3650, audit_days: 36_500, ..RetentionArgs::default() };
    Server::start(ServeArgs { retention, ..ServeArgs::on_loopback(&database.url_as(role)) }).await
}

/// Returns the SQLSTATE with which PostgreSQL refuses a statement of this role.
async fn refusal(connection: &mut PgConnection, sql: &str) -> Result<String> {
    let error = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await.err();
    let error = error.with_context(|| format!("{sql} is not refused"))?;
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    Ok(code.with_context(|| format!("{sql}: {error}"))?.into_owned())
}

async fn audit_is_valid(caller: &Caller) -> Result<()> {
    let verdict: AuditVerdict = caller.get_json("audit/verify").await?;
    anyhow::ensure!(verdict.broken.is_none() && verdict.links > 0, "{verdict:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_does_not_own_the_tables_serves_through_a_whole_life() -> Result<()> {
    let postgres = Postgres::shared().await?;
    let (database, owner, serving) = two_roles(&postgres).await?;
    broker(&database, &owner, &["migrate", "--serving-role", &serving]).await?.ok()?;
    // The agent reports without waiting for its release.
    policy_set(&database.url(), &json!({ "staged": false })).await?;
    let server = serve_as(&database, &serving).await?;
    let harness = Harness::of(Arc::clone(&postgres), database, server).await?;
    let mut agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let object = harness.submit("web", YAML).await?;
    agent.hold(&[stack.id]).await?;
    assert!(agent.poll().await?.status.is_success());

    // Retention creates the partitions that it needs, and drops those that are too old.
    let (pool, now) = (&harness.server.broker.pool, Timestamp::now());
    let old = now - (40 * 24).hours();
    partition_create(pool, old.to_zoned(TimeZone::UTC).date()).await?;
    audit_partition_create(pool, "2020-03-10".parse()?).await?;
    let reports =
        [now, old].map(|at| agent.report(stack.id, object.sequence_id, Transition::Healthy, at.as_second()));
    let receipt: ReportReceipt = read(agent.send_reports(&reports).await?).await?;
    assert_eq!(receipt.accepted.len(), 2);
    retention::once(pool, Retention::default(), now).await;
    let events: Page<Event> = harness.admin.get_json("events").await?;
    assert_eq!(events.items.len(), 1, "the old one is gone");
    assert_eq!(audit_retention::drop_old(pool, Retention::default(), now).await?, 1);
    harness.delete("web").await?;
    eventually(SOON, "the audit log to be chained", async || {
        audit_is_valid(&harness.admin)
            .await
            .map_or_else(|error| Attempt::NotYet(error.to_string()), Attempt::Done)
    })
    .await?;

    // The commands for operators work with either role.
    for role in [&serving, &owner] {
        for command in [&["epoch", "hold"][..], &["epoch", "raise"], &["audit", "verify"]] {
            broker(&harness.database, role, command).await?.ok()?;
        }
    }
    let second = broker(&harness.database, &serving, &["bootstrap"]).await?;
    assert!(second.stderr.contains("an admin token exists"), "{}", second.stderr);
    let migrated = broker(&harness.database, &serving, &["migrate"]).await?;
    assert!(migrated.stderr.contains("permission denied"), "{}", migrated.stderr);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_serving_role_cannot_change_tables_or_the_audit_log() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    let month = Timestamp::now().to_zoned(TimeZone::UTC).date().strftime("audit_%Y%m").to_string();
    let mut connection = PgConnection::connect(&harness.database.url_as(SERVING)).await?;
    for sql in [
        "DROP TABLE audit",
        "DROP TABLE stacks CASCADE",
        "ALTER TABLE audit DISABLE TRIGGER ALL",
        "ALTER TABLE audit DETACH PARTITION audit_default",
        "ALTER TABLE stacks ADD COLUMN mine integer",
        "ALTER TABLE audit OWNER TO brokkr_serving",
        "TRUNCATE audit",
        "DELETE FROM audit",
        "UPDATE audit SET name = 'nobody'",
        &format!("DELETE FROM {month}"),
        &format!("UPDATE {month} SET name = 'nobody'"),
        &format!("DROP TABLE {month}"),
        "DELETE FROM audit_default",
        "DELETE FROM audit_chain",
        "UPDATE audit_chain SET number = number + 1",
        "DELETE FROM audit_heads",
        "UPDATE epochs SET raised_by = 'nobody'",
        "DELETE FROM epochs",
        "DELETE FROM deployment_objects",
        "UPDATE partition_limits SET min_days = 1",
        "INSERT INTO partition_limits VALUES ('stacks', 'day', 1)",
        "UPDATE _sqlx_migrations SET success = false",
        "CREATE TABLE mine ()",
        "CREATE TRIGGER mine BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION audit_append_only()",
        "CREATE OR REPLACE FUNCTION partition_drop(text, date, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "SET session_replication_role = replica",
        // This month and those that are younger than the shortest retention.
        "SELECT partition_drop('audit', current_date)",
        "SELECT partition_drop('audit', current_date - 31)",
        "SELECT partition_drop('events', current_date)",
        "SELECT partition_drop('events', current_date + 1)",
    ] {
        assert_eq!(refusal(&mut connection, sql).await?, "42501", "{sql}");
    }
    // Neither other tables nor days that have the name of another partition.
    for sql in [
        "SELECT partition_drop('stacks', '2020-01-01')",
        "SELECT partition_drop('audit_chain', '2020-01-01')",
        "SELECT partition_drop('pg_catalog.pg_class', '2020-01-01')",
        "SELECT partition_drop('audit', (current_date::text || ' BC')::date)",
        "SELECT partition_drop('audit', NULL)",
        "SELECT partition_drop(NULL, current_date)",
        "SELECT partition_create('stacks', current_date)",
        "SELECT partition_create('events', '-infinity')",
    ] {
        assert_eq!(refusal(&mut connection, sql).await?, "22023", "{sql}");
    }
    // A table of the caller does not replace one of the schema.
    let shadow = "CREATE TEMP TABLE partition_limits AS SELECT 'audit' AS table_name, 'month' AS unit, -400 AS min_days";
    sqlx::raw_sql(shadow).execute(&mut connection).await?;
    sqlx::raw_sql("SET search_path = pg_temp, public").execute(&mut connection).await?;
    assert_eq!(refusal(&mut connection, "SELECT partition_drop('audit', current_date)").await?, "42501");

    // Another role has no rights at all.
    let stranger = unique("stranger").replace('-', "_");
    role_create(&harness.database.url(), &stranger).await?;
    let mut connection = PgConnection::connect(&harness.database.url_as(&stranger)).await?;
    for sql in ["SELECT * FROM stacks", "SELECT partition_create('audit', current_date)"] {
        assert_eq!(refusal(&mut connection, sql).await?, "42501", "{sql}");
    }
    Ok(())
}

/// A table without a privilege is missing in the list of `store/privileges.rs`.
#[tokio::test(flavor = "multi_thread")]
async fn the_serving_role_can_read_every_table_of_the_schema() -> Result<()> {
    let harness = Harness::open().await?;
    let mut connection = PgConnection::connect(&harness.database.url_as(SERVING)).await?;
    let unreadable: Vec<String> = sqlx::query_scalar(
        "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'public'::regnamespace
         AND relkind IN ('r', 'p') AND NOT relispartition AND NOT has_table_privilege(oid, 'SELECT')",
    )
    .fetch_all(&mut connection)
    .await?;
    assert_eq!(unreadable, [""; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_privilege_is_named_and_the_next_migration_grants_it_again() -> Result<()> {
    let postgres = Postgres::shared().await?;
    let (database, owner, serving) = two_roles(&postgres).await?;
    broker(&database, &owner, &["migrate"]).await?.ok()?;
    let refused = serve_as(&database, &serving).await.err().context("no privilege at all")?;
    let hint = format!("brokkr-broker migrate --serving-role {serving}");
    assert!(matches!(refused, ServeError::MissingPrivileges(_)), "{refused}");
    assert!(
        refused.to_string().contains("SELECT on installation") && refused.to_string().contains(&hint),
        "{refused}"
    );

    broker(&database, &owner, &["migrate", "--serving-role", &serving]).await?.ok()?;
    let server = serve_as(&database, &serving).await?;
    let harness = Harness::of(Arc::clone(&postgres), database, server).await?;
    let role = async || {
        anyhow::Ok(harness.admin.get_json::<System>("system").await?.database_role.context("a role")?)
    };
    let found = role().await?;
    assert_eq!(
        (found.name.as_str(), found.owns_tables, found.missing),
        (serving.as_str(), false, Vec::new())
    );

    // As if a migration had added them, or someone had granted too much.
    let mut connection = harness.database.connect().await?;
    let sql = format!(
        "REVOKE INSERT ON prune_approvals, audit FROM {serving}; REVOKE EXECUTE ON FUNCTION partition_create FROM {serving};
         REVOKE UPDATE ON SEQUENCE deployment_object_sequence FROM {serving}; GRANT ALL ON audit, audit_default TO {serving}; REVOKE INSERT ON audit FROM {serving}"
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await?;
    let missing = |object: &str, privilege: &str| MissingPrivilege {
        object: object.into(),
        privilege: privilege.into(),
    };
    let expected = [
        missing("audit", "INSERT"),
        missing("prune_approvals", "INSERT"),
        missing("deployment_object_sequence", "UPDATE"),
        missing("partition_create(text, date)", "EXECUTE"),
    ];
    assert_eq!(role().await?.missing, expected);
    // Without the flag: it remembers the role.
    broker(&harness.database, &owner, &["migrate"]).await?.ok()?;
    assert_eq!(role().await?.missing, []);
    let mut connection = PgConnection::connect(&harness.database.url_as(&serving)).await?;
    for sql in ["DELETE FROM audit", "DELETE FROM audit_default"] {
        assert_eq!(refusal(&mut connection, sql).await?, "42501", "{sql}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_role_still_works_and_says_that_it_owns_the_tables() -> Result<()> {
    let postgres = Postgres::shared().await?;
    let (database, owner, _) = two_roles(&postgres).await?;
    broker(&database, &owner, &["migrate"]).await?.ok()?;
    let harness = {
        let server = serve_as(&database, &owner).await?;
        Harness::of(Arc::clone(&postgres), database, server).await?
    };
    harness.stack("web", json!({ "selectors": ["*"] })).await?;
    harness.submit("web", YAML).await?;
    retention::once(&harness.server.broker.pool, Retention::default(), Timestamp::now()).await;
    let role = harness.admin.get_json::<System>("system").await?.database_role.context("a role")?;
    assert_eq!((role.name, role.owns_tables, role.missing), (owner, true, Vec::new()));

    // A superuser owns everything.
    let server = serve_with(&harness.database, None).await?;
    let caller =
        Caller::new(server.address, Some(token(&harness.database, brokkr_api::tokens::Role::Admin).await?));
    let role = caller.get_json::<System>("system").await?.database_role.context("a role")?;
    assert!(role.owns_tables, "{role:?}");
    server.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_refuses_a_serving_role_that_it_cannot_limit_and_sets_the_shortest_retention() -> Result<()> {
    let postgres = Postgres::shared().await?;
    let (database, owner, serving) = two_roles(&postgres).await?;
    for (role, why) in
        [("nobody_has_this_name", "does not exist"), (&owner, "owns the tables"), ("postgres", "superuser")]
    {
        let refused = broker(&database, &owner, &["migrate", "--serving-role", role]).await?;
        assert!(refused.code != 0 && refused.stderr.contains(why), "{role}: {}", refused.stderr);
    }
    // As in a database that was created by PostgreSQL 14 or older.
    let mut superuser = database.connect().await?;
    sqlx::raw_sql("GRANT CREATE ON SCHEMA public TO PUBLIC").execute(&mut superuser).await?;
    let refused = broker(&database, &owner, &["migrate", "--serving-role", &serving]).await?;
    let revoke = "REVOKE CREATE ON SCHEMA public FROM PUBLIC";
    assert!(refused.code != 0 && refused.stderr.contains(revoke), "{}", refused.stderr);
    sqlx::raw_sql(revoke).execute(&mut superuser).await?;
    broker(&database, &owner, &["migrate", "--serving-role", &serving, "--min-audit-days", "100"])
        .await?
        .ok()?;
    let mut connection = PgConnection::connect(&database.url_as(&serving)).await?;
    let drop = async |connection: &mut PgConnection, days: i32| {
        sqlx::query_scalar::<_, bool>("SELECT partition_drop('audit', current_date - $1)")
            .bind(days)
            .fetch_one(connection)
            .await
    };
    for days in [90, 140] {
        sqlx::query("SELECT partition_create('audit', current_date - $1)")
            .bind(days)
            .execute(&mut connection)
            .await?;
    }
    assert!(drop(&mut connection, 90).await.is_err());
    // A later migration without the flag keeps the limit.
    broker(&database, &owner, &["migrate"]).await?.ok()?;
    assert!(drop(&mut connection, 90).await.is_err());
    assert!(drop(&mut connection, 140).await?);
    Ok(())
}

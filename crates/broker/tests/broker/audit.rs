//! The audit log contains every change, reveals tampering, and is chained by one replica at a time.

use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::audit::{AuditEntry, AuditHead, AuditKind, AuditVerdict, RefusalReason};
use brokkr_api::ids::Checksum;
use brokkr_api::page::Page;
use brokkr_api::tokens::{Role, WhoAmI};
use brokkr_broker::domain::retention::Retention;
use brokkr_broker::store::audit_partitions::audit_partition_create;
use brokkr_broker::store::leases::{lease_hold_on_conn, lease_release_on_conn, lease_take_on_conn};
use brokkr_broker::tasks::audit_retention::{create_ahead, drop_old};
use brokkr_testkit::eventually;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::json;
use sqlx::Connection as _;
use uuid::Uuid;

use crate::harness::{Caller, Harness, YAML, token};

const SECRET: &str =
    "apiVersion: v1\nkind: Secret\nmetadata:\n  name: key\n  namespace: default\nstringData:\n  key: hush\n";

async fn entries(caller: &Caller, query: &str) -> Result<Vec<AuditEntry>> {
    Ok(caller.get_json::<Page<AuditEntry>>(&format!("audit?{query}")).await?.items)
}

/// Waits until the chain has at least this many links.
async fn chained(caller: &Caller, links: i64) -> Result<AuditHead> {
    eventually(Duration::from_secs(30), "the entries to be chained", async || {
        caller.get_json::<AuditHead>("audit/head").await.is_ok_and(|head| head.number >= links)
    })
    .await?;
    caller.get_json("audit/head").await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_logged_with_caller_route_address_and_digest() -> Result<()> {
    let harness = Harness::open().await?;
    let owner = harness.project("shop", Role::Owner).await?;
    let who: WhoAmI = owner.get_json("whoami").await?;
    owner.send(Method::PUT, "stacks/web", &json!({})).await?.error_for_status()?;
    let submit = owner.request(Method::POST, "stacks/web/deployment-objects").body(YAML);
    submit.header("x-request-id", "mine-7").send().await?.error_for_status()?;

    let log = entries(&owner, "").await?;
    assert_eq!(log.len(), 2, "and nothing of other projects");
    let newest = &log[0];
    assert_eq!((newest.method.as_str(), newest.status), ("POST", 201));
    assert_eq!(newest.route, "/api/v1/stacks/{stack}/deployment-objects");
    assert_eq!(newest.path, "/api/v1/stacks/web/deployment-objects");
    assert_eq!((newest.kind, newest.address.as_str()), (AuditKind::Change, "127.0.0.1"));
    assert_eq!((&newest.principal, newest.name.as_str()), (&format!("token:{}", who.token_id), "test"));
    assert_eq!((newest.request_id.as_str(), newest.after), ("mine-7", Some(Checksum::of(YAML.as_bytes()))));

    assert_eq!(entries(&owner, "what=PUT%20/api/v1/stacks/%7Bstack%7D").await?.len(), 1);
    assert_eq!(entries(&owner, "who=test&limit=1").await?.len(), 1);
    assert_eq!(entries(&owner, "who=nobody").await?.len(), 0);
    assert_eq!(entries(&owner, "since=2999-01-01T00:00:00Z").await?.len(), 0);
    let agent = harness.agent("shop-1", json!({})).await?;
    agent.poll().await?;
    let joined = entries(&harness.admin, "who=nobody").await?;
    assert_eq!(joined.len(), 1, "joins are logged, routine requests of agents are not: {joined:?}");
    Ok(())
}

/// Returns the digest of a representation, as the log has it.
async fn shown(caller: &Caller, path: &str) -> Result<Checksum> {
    Ok(Checksum::of(&caller.get(path).await?.error_for_status()?.bytes().await?))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_logged_with_digests_before_and_after() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    let grant = json!({ "project": "spare", "selector": "env=prod", "namespaces": ["shop"], "kinds": ["*"],
        "account": "shop/brokkr-spare" });
    for (method, thing, path, body) in [
        (Method::PUT, "stacks/web", "stacks/web", json!({ "labels": { "team": "shop" } })),
        (Method::PUT, "stacks/web", "stacks/web/targets", json!({ "selectors": ["env=prod"] })),
        (Method::PUT, "projects/spare", "projects/spare", json!({})),
        (Method::PUT, "grants/shop", "grants/shop", grant),
    ] {
        let before = shown(&harness.admin, thing).await.ok();
        harness.admin.send(method, path, &body).await?.error_for_status()?;
        let after = shown(&harness.admin, thing).await?;
        let newest = &entries(&harness.admin, "limit=1").await?[0];
        assert_eq!((newest.before, newest.after), (before, Some(after)), "{path}");
    }
    let before = shown(&harness.admin, "grants/shop").await?;
    harness.admin.request(Method::DELETE, "grants/shop").send().await?.error_for_status()?;
    let newest = &entries(&harness.admin, "limit=1").await?[0];
    assert_eq!((newest.before, newest.after), (Some(before), None));

    harness.agent("shop-1", json!({})).await?;
    for (env, changes) in [("prod", true), ("prod", false)] {
        let labels = json!({ "labels": { "env": env } });
        harness.admin.send(Method::PATCH, "agents/shop-1", &labels).await?.error_for_status()?;
        let newest = &entries(&harness.admin, "limit=1").await?[0];
        assert!(newest.before.is_some() && newest.after.is_some());
        assert_eq!(newest.before != newest.after, changes, "{labels}");
    }

    let first = harness.submit("web", YAML).await?;
    let second = harness.submit("web", &YAML.replace("greeting", "farewell")).await?;
    harness.admin.send(Method::POST, "stacks/web/roll-back", &json!({})).await?.error_for_status()?;
    let newest = &entries(&harness.admin, "limit=1").await?[0];
    assert_eq!((newest.before, newest.after), (Some(second.checksum), Some(first.checksum)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_attempts_and_reads_of_secrets_are_logged_at_a_bounded_rate() -> Result<()> {
    let harness = Harness::open().await?;
    let viewer = harness.with_role(Role::Viewer).await?;
    harness.stack("web", json!({})).await?;
    let object = harness.submit("web", SECRET).await?;
    let path = format!("deployment-objects/{}", object.sequence_id);
    let shown = viewer.get(&path).await?.text().await?;
    assert!(!shown.contains("hush"), "{shown}");
    assert!(entries(&harness.admin, "kind=secrets_read").await?.is_empty(), "nothing was read");
    assert!(harness.admin.get(&path).await?.text().await?.contains("hush"));
    assert_eq!(entries(&harness.admin, "kind=secrets_read").await?.len(), 1);

    let replica = harness.replica().await?;
    let viewer = Caller::new(replica.address, Some(token(&harness.database, Role::Viewer).await?));
    let flood = (0..600).map(|_| async { viewer.request(Method::DELETE, "stacks/web").send().await });
    for answered in futures::future::join_all(flood).await {
        assert_eq!(answered?.status(), 403);
    }
    // One entry a minute; what is not written yet is written at the end. Together they count every attempt.
    replica.stop().await;
    let log = entries(&harness.admin, "kind=refused&limit=500").await?;
    assert_eq!(log.iter().map(|entry| entry.count).sum::<u64>(), 600, "{log:?}");
    assert!(log.len() <= 2, "{log:?}");
    assert_eq!((log[0].status, log[0].name.as_str()), (403, "test"));
    assert_eq!(log[0].refusal, Some(RefusalReason::PermissionDenied));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_append_only_and_tampering_is_detected() -> Result<()> {
    let harness = Harness::open().await?;
    for name in ["one", "two", "three", "four"] {
        harness.stack(name, json!({})).await?;
    }
    let head = chained(&harness.admin, 8).await?;
    let verdict = async || harness.admin.get_json::<AuditVerdict>("audit/verify").await;
    let whole = verdict().await?;
    assert_eq!((whole.broken, whole.last.as_ref(), whole.links), (None, Some(&head), 8));

    let mut connection = harness.database.connect().await?;
    for statement in [
        "UPDATE audit SET name = 'somebody'",
        "DELETE FROM audit",
        "TRUNCATE audit",
        "UPDATE audit_chain SET hash = hash",
        "DELETE FROM audit_chain",
    ] {
        let refused = sqlx::query(statement).execute(&mut connection).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("append-only")), "{statement}");
    }
    // The owner of the database can disable the triggers, but the chain shows the change.
    sqlx::query("SET session_replication_role = replica").execute(&mut connection).await?;
    let third: i64 = sqlx::query_scalar("SELECT audit_id FROM audit_chain WHERE number = 3")
        .fetch_one(&mut connection)
        .await?;
    for (tamper, number, restore) in [
        (
            "UPDATE audit SET name = 'somebody' WHERE id = $1",
            3,
            "UPDATE audit SET name = 'test' WHERE id = $1",
        ),
        (
            "UPDATE audit SET path = path || '/' WHERE id = $1",
            3,
            "UPDATE audit SET path = rtrim(path, '/') WHERE id = $1",
        ),
        (
            "UPDATE audit_chain SET number = 99 WHERE audit_id = $1",
            4,
            "UPDATE audit_chain SET number = 3 WHERE audit_id = $1",
        ),
        ("DELETE FROM audit WHERE id = $1", 3, ""),
    ] {
        sqlx::query(tamper).bind(third).execute(&mut connection).await?;
        let broken = verdict().await?.broken.with_context(|| tamper.to_owned())?;
        assert_eq!(broken.number, number, "{tamper}: {broken:?}");
        if !restore.is_empty() {
            sqlx::query(restore).bind(third).execute(&mut connection).await?;
            assert_eq!(verdict().await?.broken, None, "{restore}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_chain_and_unchained_entries_are_detected() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("one", json!({})).await?;
    chained(&harness.admin, 2).await?;
    let mut connection = harness.database.connect().await?;
    sqlx::query("SET session_replication_role = replica").execute(&mut connection).await?;
    sqlx::query(
        "INSERT INTO audit (xid, project, kind, principal, name, method, route, path, address, status, request_id)
         SELECT '1'::xid8, project, kind, principal, name, method, route, path, address, status, request_id
         FROM audit LIMIT 1",
    )
    .execute(&mut connection)
    .await?;
    let broken = harness
        .admin
        .get_json::<AuditVerdict>("audit/verify")
        .await?
        .broken
        .context("an entry without a link")?;
    assert_eq!(broken.why, "an entry is not part of the chain");
    sqlx::query("DELETE FROM audit_chain WHERE number = 2").execute(&mut connection).await?;
    let broken = harness.admin.get_json::<AuditVerdict>("audit/verify").await?.broken.context("cut")?;
    assert!(broken.why.starts_with("the chain does not end with its stored head"), "{broken:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_holder_of_a_lost_lease_cannot_write() -> Result<()> {
    let harness = Harness::open().await?;
    let mut one = harness.database.connect().await?;
    let mut other = harness.database.connect().await?;
    let (first, second) = (Uuid::now_v7(), Uuid::now_v7());
    let lease = lease_take_on_conn(&mut one, "duty", first, 0.2).await?.context("it is free")?;
    assert_eq!(lease_take_on_conn(&mut other, "duty", second, 60.0).await?, None, "another holder has it");
    assert_eq!(
        lease_take_on_conn(&mut one, "duty", first, 0.2).await?,
        Some(lease),
        "it extends its own lease"
    );
    // The first holder is paused, and its lease expires.
    eventually(Duration::from_secs(10), "the lease to expire", async || {
        let mut connection = harness.database.connect().await.expect("a connection");
        lease_take_on_conn(&mut connection, "duty", second, 60.0).await.is_ok_and(|lease| lease.is_some())
    })
    .await?;
    let taken = lease_take_on_conn(&mut other, "duty", second, 60.0).await?.context("the second has it")?;
    assert!(taken.token > lease.token);
    // It wakes up, and its transaction is fenced.
    let mut transaction = one.begin().await?;
    assert!(!lease_hold_on_conn(&mut transaction, lease, 60.0).await?);
    transaction.rollback().await?;
    assert!(lease_hold_on_conn(&mut other, taken, 60.0).await?);
    lease_release_on_conn(&mut other, taken).await?;
    assert!(lease_take_on_conn(&mut one, "duty", first, 1.0).await?.is_some());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_and_many_writers_make_one_chain_without_a_gap() -> Result<()> {
    let harness = Harness::open().await?;
    let second = harness.replica().await?;
    let there =
        Caller::new(second.address, Some(crate::harness::token(&harness.database, Role::Admin).await?));
    let writes = (0..60).map(|number| {
        let caller = if number % 2 == 0 { &harness.admin } else { &there };
        async move { caller.send(Method::PUT, &format!("stacks/s{number}"), &json!({})).await }
    });
    for written in futures::future::join_all(writes).await {
        assert_eq!(written?.status(), 201);
    }
    chained(&harness.admin, 60).await?;
    let verdict: AuditVerdict = there.get_json("audit/verify").await?;
    assert_eq!((verdict.broken, verdict.links), (None, 60));
    second.stop().await;
    Ok(())
}

/// Adds entries of this project with a time of long ago, in the partition of that month.
/// After a dump and restore, transaction ids begin again below those in the dump.
#[tokio::test(flavor = "multi_thread")]
async fn the_chain_continues_after_a_dump_and_restore() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    let before = chained(&harness.admin, 2).await?;
    let mut connection = harness.database.connect().await?;
    sqlx::query("SET session_replication_role = replica").execute(&mut connection).await?;
    for sql in ["UPDATE audit SET xid = '900000000000'", "UPDATE audit_cursor SET xid = '900000000000'"] {
        sqlx::query(sql).execute(&mut connection).await?;
    }
    crate::restore::epoch(&harness.database, &["raise"]).await?;
    eventually(Duration::from_secs(30), "changes after the raise", async || {
        harness.stack("api", json!({})).await.is_ok()
    })
    .await?;
    chained(&harness.admin, before.number + 2).await?;
    let verdict: AuditVerdict = harness.admin.get_json("audit/verify").await?;
    assert!(verdict.broken.is_none() && verdict.links > before.number, "{verdict:?}");
    Ok(())
}

async fn add_old(harness: &Harness, project: &str, day: &str, entries: i32) -> Result<()> {
    audit_partition_create(&harness.server.broker.pool, day.parse()?).await?;
    let mut connection = harness.database.connect().await?;
    sqlx::query(
        "INSERT INTO audit (at, project, kind, principal, name, method, route, path, address, status, request_id)
         SELECT ($2 || ' 12:00:00+00')::timestamptz, $1, 'change', 'token:1', 'ci', 'PUT', '/', '/', '', 200, ''
         FROM generate_series(1, $3)",
    )
    .bind(project)
    .bind(day)
    .bind(entries)
    .execute(&mut connection)
    .await?;
    Ok(())
}

async fn partitions(connection: &mut sqlx::PgConnection) -> Result<Vec<String>> {
    let sql = "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
               WHERE i.inhparent = 'audit'::regclass ORDER BY 1";
    Ok(sqlx::query_scalar(sql).fetch_all(connection).await?)
}

/// P11: retention drops whole months behind a floor, and nothing else may be missing.
#[tokio::test(flavor = "multi_thread")]
async fn old_months_are_dropped_behind_a_floor_that_is_part_of_the_chain() -> Result<()> {
    let harness = Harness::open().await?;
    let (pool, now) = (&harness.server.broker.pool, Timestamp::now());
    let owner = harness.project("shop", Role::Owner).await?;
    add_old(&harness, "shop", "2020-03-10", 3).await?;
    chained(&owner, 3).await?;
    owner.send(Method::PUT, "stacks/web", &json!({})).await?.error_for_status()?;
    chained(&owner, 4).await?;
    let verdict = async || owner.get_json::<AuditVerdict>("audit/verify").await;
    let anchor = owner.get_json::<AuditHead>("audit/head").await?;

    assert_eq!(drop_old(pool, Retention::default(), now).await?, 0, "the floor is not in the chain yet");
    chained(&owner, 5).await?;
    assert_eq!(verdict().await?.broken, None);
    assert_eq!(drop_old(pool, Retention::default(), now).await?, 1);
    let mut connection = harness.database.connect().await?;
    assert!(!partitions(&mut connection).await?.contains(&"audit_202003".to_owned()));
    let after = verdict().await?;
    assert_eq!((after.broken, after.links, after.floor.map(|floor| floor.number)), (None, 5, Some(3)));
    let log = entries(&owner, "").await?;
    let routes: Vec<&str> = log.iter().map(|entry| entry.route.as_str()).collect();
    assert_eq!(routes, ["audit.floor", "/api/v1/stacks/{stack}"]);
    let kept: Vec<u8> =
        sqlx::query_scalar("SELECT hash FROM audit_chain WHERE project = 'shop' AND number = 4")
            .fetch_one(&mut connection)
            .await?;
    assert_eq!(kept, anchor.hash.0, "a head that was stored before can still be verified");
    assert_eq!(drop_old(pool, Retention::default(), now).await?, 0, "and no floor is added again");
    assert_eq!(entries(&owner, "").await?.len(), 2);

    // A floor that was changed is none.
    sqlx::query("SET session_replication_role = replica").execute(&mut connection).await?;
    sqlx::query("UPDATE audit SET path = '4' WHERE route = 'audit.floor'").execute(&mut connection).await?;
    let broken = verdict().await?.broken.context("the floor was changed")?;
    assert_eq!((broken.number, broken.why.as_str()), (1, "the entry is missing"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_prefix_without_a_floor_is_detected() -> Result<()> {
    let harness = Harness::open().await?;
    let owner = harness.project("shop", Role::Owner).await?;
    add_old(&harness, "shop", "2020-04-10", 2).await?;
    chained(&owner, 2).await?;
    owner.send(Method::PUT, "stacks/web", &json!({})).await?.error_for_status()?;
    chained(&owner, 3).await?;
    let mut connection = harness.database.connect().await?;
    sqlx::query("DROP TABLE audit_202004").execute(&mut connection).await?;
    let verdict: AuditVerdict = owner.get_json("audit/verify").await?;
    let broken = verdict.broken.context("entries are missing")?;
    assert_eq!((broken.number, broken.why.as_str()), (1, "the entry is missing"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_in_the_partition_of_their_month_and_move_there_unchanged() -> Result<()> {
    let harness = Harness::open().await?;
    let pool = &harness.server.broker.pool;
    let owner = harness.project("shop", Role::Owner).await?;
    let mut connection = harness.database.connect().await?;
    let now: Timestamp = "2031-05-10T12:00:00Z".parse()?;
    // Before its partition exists, an entry is in the default partition.
    sqlx::query(
        "INSERT INTO audit (at, project, kind, principal, name, method, route, path, address, status, request_id)
         VALUES ('2031-05-10 12:00:00+00', 'shop', 'change', 'token:1', 'ci', 'PUT', '/', '/', '', 200, '')",
    )
    .execute(&mut connection)
    .await?;
    chained(&owner, 1).await?;
    let (one, other) = tokio::join!(create_ahead(pool, now), create_ahead(pool, now));
    one?;
    other?;
    let found = partitions(&mut connection).await?;
    for month in ["audit_203104", "audit_203105", "audit_203106", "audit_203107"] {
        assert!(found.contains(&month.to_owned()), "{found:?}");
    }
    let moved: i64 =
        sqlx::query_scalar("SELECT count(*) FROM audit_203105").fetch_one(&mut connection).await?;
    assert_eq!(moved, 1);
    assert_eq!(owner.get_json::<AuditVerdict>("audit/verify").await?.broken, None);
    // Also after the move, no partition lets entries be deleted.
    sqlx::query(
        "INSERT INTO audit (at, project, kind, principal, name, method, route, path, address, status, request_id)
         VALUES ('2041-05-10 12:00:00+00', 'shop', 'change', 'token:1', 'ci', 'PUT', '/', '/', '', 200, '')",
    )
    .execute(&mut connection)
    .await?;
    for delete in ["DELETE FROM audit_default", "DELETE FROM audit_203105"] {
        let refused = sqlx::query(delete).execute(&mut connection).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("append-only")), "{delete}");
    }
    Ok(())
}

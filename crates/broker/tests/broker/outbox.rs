//! The outbox tail loses nothing; a naive cursor, in the same run and on the same rows, does.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use brokkr_api::StackId;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_broker::index::Index;
use brokkr_broker::state::history::History;
use brokkr_broker::state::restore::RestoreState;
use brokkr_broker::state::tail_notifier::TailNotifier;
use brokkr_broker::store::outbox::{
    OutboxNotification, READ_ONLY_SNAPSHOT, outbox_delete_below, outbox_insert_on_conn, outbox_read_on_conn,
    outbox_snapshot, outbox_snapshot_on_conn, outbox_terminate_abandoned, outbox_transaction_id_on_conn,
};
use brokkr_broker::tasks::outbox_tail::OutboxTail;
use brokkr_testkit::{Postgres, eventually};
use sqlx::{Connection as _, PgPool, Row as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::harness::{Harness, SERVING, YAML};

const WRITERS: usize = 16;
const EACH: usize = 150;

/// Reads like the tail: up to the horizon.
async fn careful(pool: &PgPool, done: &AtomicBool) -> Result<Vec<Uuid>> {
    let mut seen = Vec::new();
    let mut cursor = 0;
    // When all writers have finished, reading ends once the horizon has passed every transaction that had
    // begun by then.
    let mut end = None;
    loop {
        let last = done.load(Ordering::Acquire);
        let mut transaction = pool.begin_with(READ_ONLY_SNAPSHOT).await?;
        let (snapshot, _) = outbox_snapshot_on_conn(&mut transaction, &[]).await?;
        for notification in outbox_read_on_conn(&mut transaction, cursor, snapshot.horizon).await? {
            if let OutboxNotification::Stack(stack) = notification {
                seen.push(stack.0);
            }
        }
        transaction.commit().await?;
        cursor = snapshot.horizon;
        if last && cursor >= *end.get_or_insert(snapshot.ceiling) {
            return Ok(seen);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Reads naively: from the last id on.
async fn naive(pool: &PgPool, done: &AtomicBool) -> Result<Vec<Uuid>> {
    let mut seen = Vec::new();
    let mut cursor = 0i64;
    loop {
        let last = done.load(Ordering::Acquire);
        let rows =
            sqlx::query("SELECT id, key FROM outbox WHERE id > $1 ORDER BY id").bind(cursor).fetch_all(pool);
        for row in rows.await? {
            cursor = row.get("id");
            seen.push(row.get("key"));
        }
        if last {
            return Ok(seen);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn write(pool: PgPool) -> Result<Vec<Uuid>> {
    let mut written = Vec::new();
    for _ in 0..EACH {
        let stack = StackId::generate();
        let mut transaction = pool.begin().await?;
        outbox_insert_on_conn(&mut transaction, DEFAULT_PROJECT, OutboxNotification::Stack(stack)).await?;
        tokio::time::sleep(Duration::from_micros(rand::random_range(0..6000))).await;
        // Some never commit: their ids are gaps, not losses.
        if rand::random_range(0..10) == 0 {
            transaction.rollback().await?;
        } else {
            transaction.commit().await?;
            written.push(stack.0);
        }
    }
    Ok(written)
}

#[tokio::test(flavor = "multi_thread")]
async fn outbox_tail_loses_nothing_under_concurrent_commits() -> Result<()> {
    let (harness, other) = (Harness::open().await?, Harness::open().await?);
    let url = harness.database.url();
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(24).connect(&url).await?;
    let mut other_database = other.database.connect().await?;
    let done = Arc::new(AtomicBool::new(false));
    let reading = |naively: bool| {
        let (pool, done) = (pool.clone(), Arc::clone(&done));
        tokio::spawn(
            async move { if naively { naive(&pool, &done).await } else { careful(&pool, &done).await } },
        )
    };
    let (careful, naive) = (reading(false), reading(true));
    let writers: Vec<_> = (0..WRITERS).map(|_| tokio::spawn(write(pool.clone()))).collect();
    let mut written = HashSet::new();
    for writer in writers {
        written.extend(writer.await??);
    }
    // Something else on the same server is still writing when the last row is committed: the horizon waits for it.
    let mut elsewhere = other_database.begin().await?;
    sqlx::query("SELECT pg_current_xact_id()").execute(&mut *elsewhere).await?;
    let stack = StackId::generate();
    let mut transaction = pool.begin().await?;
    outbox_insert_on_conn(&mut transaction, DEFAULT_PROJECT, OutboxNotification::Stack(stack)).await?;
    transaction.commit().await?;
    written.insert(stack.0);
    done.store(true, Ordering::Release);
    tokio::time::sleep(Duration::from_millis(200)).await;
    elsewhere.rollback().await?;
    let (careful, naive) = (careful.await??, naive.await??);

    let found: HashSet<Uuid> = careful.iter().copied().collect();
    assert_eq!(found.len(), careful.len(), "nothing is read twice");
    let lost = written.difference(&found).count();
    assert_eq!(lost, 0, "the tail lost {lost} of {}", written.len());
    assert_eq!(found.len(), written.len(), "nothing that was rolled back is read");
    let naive: HashSet<Uuid> = naive.into_iter().collect();
    let naively_lost = written.difference(&naive).count();
    println!("of {} rows the naive cursor lost {naively_lost}, the tail none", written.len());
    assert!(naively_lost > 0, "the naive cursor has to lose rows, or this test proves nothing");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_index_agrees_with_the_database_after_a_storm_of_writes() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", serde_json::json!({ "env": "prod" })).await?;
    let storm = (0..8).map(|count| {
        let (harness, name) = (&harness, format!("stack-{count}"));
        async move {
            for round in 0..10 {
                let selector = if round % 2 == 0 { "env=dev" } else { "env" };
                harness.stack(&name, serde_json::json!({ "selectors": [selector] })).await?;
                harness.submit(&name, YAML).await?;
            }
            anyhow::Ok(())
        }
    });
    futures::future::try_join_all(storm).await?;
    // A replica that loads everything now has the same state as the one that followed the changes.
    let fresh = harness.replica().await?;
    let there = crate::harness::polled(agent.poll_request_at(fresh.address)).await?;
    let here = agent.poll().await?;
    assert_eq!(here.envelope()?.stacks.len(), 8);
    assert_eq!(here.body, there.body);
    assert_eq!(harness.server.broker.index.mismatches(), 0, "it followed the changes, and was not reloaded");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stamp_rises_only_with_changes_above_the_horizon_that_were_read() -> Result<()> {
    let harness = Harness::open_on(Arc::new(Postgres::start().await?)).await?;
    let one = harness.stack("one", serde_json::json!({ "selectors": ["*"] })).await?;
    let two = harness.stack("two", serde_json::json!({ "selectors": ["*"] })).await?;
    // A tail that reads only when the test calls it.
    let pool = PgPool::connect(&harness.database.url()).await?;
    let index = Arc::new(Index::new(harness.server.broker.installation));
    let tail = OutboxTail::new(
        pool.clone(),
        Arc::clone(&index),
        TailNotifier::default(),
        History::default(),
        RestoreState::default(),
    );
    let cursor = tail.load().await?;
    assert_eq!(index.freshness().stamp().0, index.position(), "all that is loaded is below the horizon");
    let notify = async |stack: StackId| -> Result<u64> {
        let mut transaction = pool.begin().await?;
        outbox_insert_on_conn(&mut transaction, DEFAULT_PROJECT, OutboxNotification::Stack(stack)).await?;
        let xid = outbox_transaction_id_on_conn(&mut transaction).await?;
        transaction.commit().await?;
        Ok(xid)
    };
    notify(one.id).await?;
    let mut open = pool.begin().await?;
    let horizon = outbox_transaction_id_on_conn(&mut open).await?;
    let again = notify(one.id).await?;
    notify(two.id).await?;
    let cursor = tail.step(cursor).await?;
    let seen = index.freshness();
    assert_eq!((seen.position.horizon, seen.shown), (horizon, again + 1), "the first stack was read again");
    let cursor = tail.step(cursor).await?;
    assert_eq!(index.freshness().shown, again + 1, "it does not go back");
    open.rollback().await?;
    // The replica of the harness may have open transactions at this moment.
    let cursor = tokio::sync::Mutex::new(cursor);
    eventually(Duration::from_secs(20), "the horizon to pass all of it", async || {
        let mut cursor = cursor.lock().await;
        *cursor = tail.step(*cursor).await?;
        anyhow::ensure!(index.position().horizon > again + 1, "it is at {}", index.position());
        anyhow::Ok(())
    })
    .await?;
    assert_eq!(index.freshness().stamp().0, index.position());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_rows_below_the_horizon_are_deleted_however_many_there_are() -> Result<()> {
    let harness = Harness::open_on(Arc::new(Postgres::start().await?)).await?;
    let pool = PgPool::connect(&harness.database.url()).await?;
    let notify = async |rows: i32| {
        let many = "INSERT INTO outbox (project, kind, key)
                    SELECT 'default', 'stack', gen_random_uuid() FROM generate_series(1, $1)";
        sqlx::query(many).bind(rows).execute(&pool).await
    };
    notify(12_000).await?;
    let mut open = pool.begin().await?;
    outbox_transaction_id_on_conn(&mut open).await?;
    notify(3).await?;
    let horizon = outbox_snapshot(&pool).await?.horizon;
    assert_eq!(outbox_delete_below(&pool, horizon).await?, 12_000, "in slices, to the end");
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM outbox").fetch_one(&pool).await?;
    assert_eq!(left, 3, "these are not readable yet");
    Ok(())
}

/// A session that has sent only the first messages of a request: the server executes these, and waits for the
/// rest. The session only reads: a write transaction would delay every test on this server.
async fn abandoned_session(port: u16, database: &str) -> Result<TcpStream> {
    let text =
        |parts: &[&str]| parts.iter().flat_map(|part| [part.as_bytes(), b"\0"].concat()).collect::<Vec<u8>>();
    let message = |kind: &[u8], body: &[u8]| -> Result<Vec<u8>> {
        Ok([kind, &i32::try_from(body.len() + 4)?.to_be_bytes(), body].concat())
    };
    let mut session = TcpStream::connect(("127.0.0.1", port)).await?;
    let who = text(&["user", SERVING, "database", database, "application_name", "brokkr-broker", ""]);
    session.write_all(&message(b"", &[&196_608_i32.to_be_bytes()[..], &who].concat())?).await?;
    session.write_all(&message(b"Q", &text(&["BEGIN"]))?).await?;
    let parse = [text(&["", "SELECT 1"]), vec![0, 0]].concat();
    let bind = [text(&["", ""]), vec![0, 0, 0, 0, 0, 0]].concat();
    let execute = [text(&[""]), vec![0, 0, 0, 0]].concat();
    for (kind, body) in [(b"P", parse), (b"B", bind), (b"E", execute), (b"H", Vec::new())] {
        session.write_all(&message(kind, &body)?).await?;
    }
    Ok(session)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_session_is_terminated_and_no_other() -> Result<()> {
    let postgres = Postgres::shared().await?;
    let harness = Harness::open().await?;
    let pool = &harness.server.broker.pool;
    let mut bystander = pool.begin().await?;
    sqlx::query("SELECT 1").execute(&mut *bystander).await?;
    let mut session = abandoned_session(postgres.facts().port, harness.database.name()).await?;
    eventually(Duration::from_secs(20), "the abandoned session to be terminated", async || {
        outbox_terminate_abandoned(pool, Duration::from_secs(1)).await.is_ok_and(|ended| ended == 1)
    })
    .await?;
    let mut received = Vec::new();
    tokio::time::timeout(Duration::from_secs(10), session.read_to_end(&mut received)).await??;
    assert!(String::from_utf8_lossy(&received).contains("57P01"), "the server terminated the session");
    bystander.commit().await?;
    Ok(())
}

//! Rows 1 to 4, 12 and 13: a submission that is killed, cut, slowed down or refused at any of its statements.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::eventually;
use brokkr_testkit::pgproxy::{Fault, Matcher, When};
use sqlx::{Connection as _, PgConnection};

use crate::broker_pair::BrokerPair;
use crate::clients::{ChangeRequest, object};
use crate::{RECOVERY_TIMEOUT, WAIT_TIMEOUT};
use brokkr_e2e::{rounds, runs_in_full};

const INSERT: &str = "insert into deployment_objects";

/// Every statement of a submission before its COMMIT, in order.
const STEPS: [&str; 6] = [
    "insert into idempotency_keys",
    "from stacks where project",
    INSERT,
    "update stacks set newest",
    "insert into outbox",
    "update idempotency_keys",
];

#[tokio::test(flavor = "multi_thread")]
async fn row_01_killed_before_the_commit_of_a_submission_nothing_is_visible_and_a_retry_makes_one()
-> Result<()> {
    let mut pair = BrokerPair::start().await?;
    pair.start_load().await?;
    let mut steps = vec![None];
    if runs_in_full() {
        steps.extend(STEPS.map(Some));
    }
    for step in steps {
        let change = ChangeRequest::submit("web", 200);
        let matcher = match step {
            None => Matcher::commit_of(INSERT).carrying(&change.mark),
            Some(step) => Matcher::statement(step),
        };
        let held = pair.proxies[0].when(matcher.nth(1), When::Before, Fault::Hold);
        let (caller, key) = (pair.caller.clone(), change.key.clone());
        let submitting = tokio::spawn(async move { caller.send_until_known(0, change).await });
        held.wait_for_hits(1, WAIT_TIMEOUT).await?;
        pair.replicas[0].kill9();
        held.discard();
        let visible: i64 = sqlx::query_scalar("SELECT count(*) FROM idempotency_keys WHERE status IS NULL")
            .fetch_one(&mut pair.connect_directly().await?)
            .await?;
        assert_eq!(visible, 0, "uncommitted rows are not visible");
        pair.replicas[0].start_again().await?;
        object(&tokio::time::timeout(WAIT_TIMEOUT, submitting).await??).with_context(|| key)?;
        pair.wait_for_progress(3).await?;
    }
    pair.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_02_killed_between_the_commit_and_the_reply_a_retry_gets_the_same_object() -> Result<()> {
    let mut pair = BrokerPair::start().await?;
    pair.start_load().await?;
    for round in 0..rounds(2, 10) {
        let killed = round % 2;
        let stack = format!("only-{round}");
        pair.caller.put_stack(0, &stack).await?;
        let change = ChangeRequest::submit(&stack, 200);
        let commit = Matcher::commit_of(INSERT).carrying(&change.mark).nth(1);
        let held = pair.proxies[killed].when(commit, When::After, Fault::Hold);
        let caller = pair.caller.clone();
        let submitting = tokio::spawn(async move { caller.send_until_known(killed, change).await });
        held.wait_for_hits(1, WAIT_TIMEOUT).await?;
        pair.replicas[killed].kill9();
        held.discard();
        let sequence = object(&tokio::time::timeout(WAIT_TIMEOUT, submitting).await??)?;
        pair.replicas[killed].start_again().await?;
        let stored: Vec<i64> = sqlx::query_scalar(
            "SELECT o.sequence_id FROM deployment_objects o JOIN stacks s ON s.id = o.stack_id WHERE s.name = $1",
        )
        .bind(&stack)
        .fetch_all(&mut pair.connect_directly().await?)
        .await?;
        assert_eq!(stored, [sequence.0], "one object, and the same one");
        pair.wait_for_progress(3).await?;
    }
    pair.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_03_after_a_connection_cut_between_commit_and_its_response_the_key_gives_the_outcome()
-> Result<()> {
    let mut pair = BrokerPair::start().await?;
    pair.start_load().await?;
    let cuts: Vec<_> = pair
        .proxies
        .iter()
        .flat_map(|proxy| {
            [INSERT, "insert into events", "stack_selectors"].map(|what| {
                proxy.when(Matcher::commit_of(what).first(rounds(3, 20)), When::After, Fault::Cut)
            })
        })
        .collect();
    for cut in &cuts[..2] {
        cut.wait_for_hits(1, WAIT_TIMEOUT).await?;
    }
    pair.wait_for_progress_within(rounds(10, 60), WAIT_TIMEOUT).await?;
    assert!(
        pair.unknown_outcomes("503") > 0,
        "a committed request without a response is reported as retryable"
    );
    assert_eq!(
        pair.unknown_outcomes("500 Internal"),
        0,
        "an unknown outcome is not an internal error of the broker"
    );
    pair.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_04_submissions_that_overlap_slowly_are_seen_all_and_in_order() -> Result<()> {
    let mut pair = BrokerPair::start().await?;
    pair.start_load().await?;
    for proxy in &pair.proxies {
        let slow = Fault::Delay(Duration::from_millis(150));
        proxy.when(Matcher::statement("update stacks set newest").first(rounds(10, 60)), When::Before, slow);
        proxy.when(Matcher::statement("insert into outbox").first(rounds(10, 60)), When::After, slow);
    }
    for round in 0..rounds(3, 8) {
        // This submission begins before many others and commits after them: by then, the reader has already
        // passed the position of this submission in the outbox.
        let stack = format!("late-{round}");
        pair.caller.put_stack(0, &stack).await?;
        pair.caller.send_until_known(0, ChangeRequest::target(&stack, &["group=a"])).await;
        let change = ChangeRequest::submit(&stack, 200);
        let commit = Matcher::commit_of(INSERT).carrying(&change.mark).nth(1);
        let held = pair.proxies[0].when(commit, When::Before, Fault::Hold);
        let caller = pair.caller.clone();
        let submitting = tokio::spawn(async move { caller.send_until_known(0, change).await });
        held.wait_for_hits(1, WAIT_TIMEOUT).await?;
        pair.wait_for_progress_at(1, 5).await?;
        held.release();
        let sequence = object(&submitting.await?)?;
        // A short deadline: a skipped row would also be found, but a minute later, when the index is compared
        // with the database.
        eventually(Duration::from_secs(10), "both replicas to show the late submission", async || {
            for replica in 0..2 {
                let view = pair.agents[0].view(replica).await?;
                let shown = view.stacks.iter().any(|(_, shown)| *shown == sequence);
                ensure!(shown, "L1: replica {replica} does not show {sequence}");
            }
            Ok(())
        })
        .await?;
    }
    pair.proxies.iter().for_each(brokkr_testkit::PgProxy::heal);
    pair.wait_for_progress(3).await?;
    pair.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_12_a_statement_timeout_rolls_the_submission_back_and_the_error_is_retryable() -> Result<()> {
    let mut pair = BrokerPair::start().await?;
    let mut direct = pair.connect_directly().await?;
    pair.caller.put_stack(0, "slow").await?;
    for statement in [
        "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(120); RETURN NEW; END $$",
        "CREATE TRIGGER slowly BEFORE UPDATE ON stacks FOR EACH ROW WHEN (NEW.name = 'slow') EXECUTE FUNCTION slowly()",
    ] {
        sqlx::query(statement).execute(&mut direct).await?;
    }
    pair.start_load().await?;
    let change = ChangeRequest::submit("slow", 200);
    let submitting = tokio::spawn({
        let (caller, change) = (pair.caller.clone(), change.clone());
        async move {
            let request = caller.request(0, reqwest::Method::POST, "stacks/slow/deployment-objects");
            let request = request.header("idempotency-key", &change.key).timeout(Duration::from_secs(60));
            request.body(change.body().to_vec()).send().await
        }
    });
    if !runs_in_full() {
        // The error that PostgreSQL returns after 30 s, without the wait.
        eventually(WAIT_TIMEOUT, "the slow statement to be cancelled", async || {
            let cancelled: Vec<bool> = sqlx::query_scalar(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'",
            )
            .fetch_all(&mut direct)
            .await?;
            ensure!(!cancelled.is_empty(), "no statement sleeps");
            Ok(())
        })
        .await?;
    }
    let response = submitting.await??;
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
    let problem: serde_json::Value = serde_json::from_slice(&response.bytes().await?)?;
    assert_eq!(problem["code"], "BRK3003");
    let left: i64 = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM deployment_objects o JOIN stacks s ON s.id = o.stack_id WHERE s.name = 'slow')
              + (SELECT count(*) FROM idempotency_keys WHERE status IS NULL)",
    )
    .fetch_one(&mut direct)
    .await?;
    assert_eq!(left, 0, "nothing of the submission is left");
    sqlx::query("DROP TRIGGER slowly ON stacks").execute(&mut direct).await?;
    object(&pair.caller.send_until_known(1, change).await)?;
    pair.wait_for_progress(3).await?;
    pair.finish().await
}

/// PostgreSQL publishes its counters about once a second.
const COUNTED_WITHIN: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn row_13_deadlocks_and_serialization_failures_are_retried_and_take_effect_once() -> Result<()> {
    let mut pair = BrokerPair::start().await?;
    let mut direct = pair.connect_directly().await?;
    for statement in [
        // Sequences are not rolled back, so they count the errors.
        "CREATE SEQUENCE serialization_failures MINVALUE 0",
        "CREATE SEQUENCE deadlocks MINVALUE 0",
        "SELECT nextval('serialization_failures'), nextval('deadlocks')",
        "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
            IF random() < 0.2 THEN
                PERFORM nextval('serialization_failures');
                RAISE EXCEPTION 'could not serialize' USING ERRCODE = '40001';
            END IF;
            IF random() < 0.1 THEN
                PERFORM nextval('deadlocks');
                RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01';
            END IF;
            RETURN NEW; END $$",
        "CREATE TRIGGER fails BEFORE INSERT ON deployment_objects FOR EACH ROW EXECUTE FUNCTION fails()",
        "CREATE TRIGGER fails BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION fails()",
        "CREATE TRIGGER fails BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION fails()",
    ] {
        sqlx::query(statement).execute(&mut direct).await?;
    }
    pair.start_load().await?;
    pair.wait_for_progress_within(rounds(10, 60), WAIT_TIMEOUT).await?;
    // A few requests may meet only one kind.
    let (serialization, deadlocks) = eventually(WAIT_TIMEOUT, "both kinds of errors to occur", async || {
        let counts: (i64, i64) = sqlx::query_as(
            "SELECT s.last_value, d.last_value FROM serialization_failures s CROSS JOIN deadlocks d",
        )
        .fetch_one(&mut direct)
        .await?;
        ensure!(counts.0 > 0 && counts.1 > 0, "so far {counts:?}");
        anyhow::Ok(counts)
    })
    .await?;
    println!("{serialization} serialization failures, {deadlocks} deadlocks");
    // The triggers are not dropped, because under load that locks the tables and can itself cause a deadlock.
    let harmless =
        "CREATE OR REPLACE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$";
    sqlx::query(harmless).execute(&mut direct).await?;
    // And a real deadlock: two transactions lock the same two rows in opposite order. Other requests run as well, so it is
    // repeated until the two meet.
    let before = real_deadlocks(&mut direct).await?;
    let mut has_met = false;
    for number in 200..220 {
        let change = ChangeRequest::submit("web", number);
        let mut foreign = direct.begin().await?;
        sqlx::query("SELECT FROM project_usage FOR UPDATE").execute(&mut *foreign).await?;
        let inserts = Matcher::statement(INSERT).nth(1);
        let waits = pair.proxies[0].when(inserts, When::Before, Fault::Delay(Duration::ZERO));
        let caller = pair.caller.clone();
        let submitting = tokio::spawn(async move { caller.send_until_known(0, change).await });
        waits.wait_for_hits(1, RECOVERY_TIMEOUT).await?;
        // One is aborted, the other continues.
        let _ = sqlx::query("SELECT FROM stacks WHERE name = 'web' FOR UPDATE").execute(&mut *foreign).await;
        foreign.rollback().await?;
        object(&tokio::time::timeout(WAIT_TIMEOUT, submitting).await??)?;
        let counted = eventually(COUNTED_WITHIN, "PostgreSQL to count the deadlock", async || {
            let now = real_deadlocks(&mut direct).await?;
            ensure!(now > before, "still {now}");
            Ok(())
        });
        has_met = counted.await.is_ok();
        if has_met {
            break;
        }
    }
    ensure!(has_met, "no deadlock in 20 attempts");
    assert_eq!(pair.unknown_outcomes("500 Internal"), 0);
    pair.wait_for_progress(3).await?;
    pair.finish().await
}

/// Returns how many deadlocks PostgreSQL has resolved in this database.
async fn real_deadlocks(connection: &mut PgConnection) -> Result<i64> {
    let count =
        sqlx::query_scalar("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()");
    Ok(count.fetch_one(connection).await?)
}

//! The index of a replica: it wakes exactly the affected agents, it matches the database, a write is in it when it is
//! answered, and two replicas usually agree after a few reads of the outbox.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use brokkr_broker::index::{Changes, Index};
use brokkr_broker::state::history::History;
use brokkr_broker::state::restore::RestoreState;
use brokkr_broker::state::tail_notifier::TailNotifier;
use brokkr_broker::tasks::outbox_tail::OutboxTail;
use brokkr_testkit::{Postgres, eventually};
use reqwest::{Method, StatusCode};
use serde_json::json;
use sqlx::PgPool;

use crate::harness::{Harness, YAML, polled};

const SOON: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_change_wakes_exactly_the_polls_of_affected_agents() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agents = Vec::new();
    for (name, env) in [("shop-1", "prod"), ("shop-2", "prod"), ("shop-3", "test"), ("shop-4", "test")] {
        agents.push(Arc::new(harness.agent(name, json!({ "env": env })).await?));
    }
    harness.stack("web", json!({ "selectors": ["env=prod"] })).await?;
    harness.submit("web", YAML).await?;
    let index = &harness.server.broker.index;
    let mut waits = Vec::new();
    for agent in &agents {
        let (agent, etag) = (Arc::clone(agent), agent.poll().await?.etag);
        waits.push(tokio::spawn(async move { agent.wait(&etag, 60).await }));
    }
    eventually(SOON, "all four to wait", async || index.waiting() == 4).await?;
    assert_eq!(index.woken(), 0);

    // None of these affects an agent: the same targets again, an agent's annotations, labels that no selector
    // uses, and a stack without agents.
    harness.target("web", json!({ "selectors": ["env=prod"] })).await?;
    for patch in [json!({ "annotations": { "a": "b" } }), json!({ "labels": { "env": "test", "site": "x" } })]
    {
        let patched = harness.admin.send(Method::PATCH, "agents/shop-3", &patch).await?;
        assert_eq!(patched.status(), StatusCode::OK);
    }
    harness.stack("untargeted", json!({ "selectors": ["env=none"] })).await?;
    harness.submit("untargeted", YAML).await?;
    assert_eq!(index.woken(), 0, "no agent was affected");

    let patch = json!({ "labels": { "env": "prod" } });
    harness.admin.send(Method::PATCH, "agents/shop-4", &patch).await?.error_for_status()?;
    let fourth = waits.pop().expect("four").await??;
    assert_eq!(fourth.envelope()?.stacks.len(), 1);
    // A poll is counted only after it was woken, so the count may be late.
    eventually(SOON, "only the agent with changed labels to be counted", async || index.woken() == 1).await?;

    harness.submit("web", &format!("{YAML}# two\n")).await?;
    let third = waits.pop().expect("three");
    for wait in waits {
        assert_eq!(wait.await??.status, StatusCode::OK);
    }
    assert_eq!(index.woken(), 3, "two more: those that wait and have the stack");
    assert_eq!(index.waiting(), 1);
    third.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_differs_from_the_database_is_noticed_and_reloaded() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({ "env": "prod", "a-longer-key": "x", "b": "" })).await?;
    let unlabelled = harness.agent("shop-2", json!({})).await?;
    harness
        .stack("web", json!({ "selectors": ["env=prod", "b,!c", "*"], "agents": ["shop-1", "shop-2"] }))
        .await?;
    let stack = harness.submit("web", YAML).await?.stack_id;
    agent.hold(&[stack]).await?;
    let grant = json!({ "project": "default", "selector": "*", "namespaces": ["*"], "kinds": ["*"],
                        "account": "shop/brokkr-shop" });
    harness.admin.send(Method::PUT, "grants/all", &grant).await?.error_for_status()?;

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
    let mut cursor = tail.load().await?;
    cursor = tail.check(cursor, 0..=255).await?;
    assert_eq!(index.mismatches(), 0, "a fresh load matches the database");
    let right = index.envelope(agent.id).expect("it is there").0.etag.clone();

    // As a bug would do: wrong labels, a wrong key, missing holds, a missing selector, missing grants.
    let corrupted = |what: usize| {
        let snapshot = index.snapshot();
        let (mut one, mut other) = (
            snapshot.agent(agent.id).expect("it is there").clone(),
            snapshot.agent(unlabelled.id).expect("it is there").clone(),
        );
        let mut wrong_stack = snapshot.stack(stack).expect("it is there").clone();
        let mut changes = Changes::default();
        match what {
            0 => {
                one.labels = [].into_iter().collect();
                changes.agents.push(one);
            }
            1 => {
                other.public_key = [0; 32];
                changes.agents.push(other);
            }
            2 => {
                one.hold(Vec::new(), Vec::new());
                changes.agents.push(one);
            }
            3 => {
                wrong_stack.selectors.pop();
                changes.stacks.push(wrong_stack);
            }
            _ => changes.rules = Some(brokkr_broker::domain::grants::Rules::default()),
        }
        changes
    };
    for what in 0..5 {
        let index_before = index.mismatches();
        let changes = corrupted(what);
        index.apply(changes, index.freshness());
        cursor = tail.check(cursor, 0..=255).await?;
        assert_eq!(index.mismatches(), index_before + 1, "case {what} is noticed");
        if what == 0 {
            assert_eq!(
                index.envelope(agent.id).expect("it is there").0.etag,
                right,
                "and the index is reloaded"
            );
            cursor = tail.check(cursor, 0..=255).await?;
            assert_eq!(index.mismatches(), 1, "it stays correct");
        } else {
            // So soon after a reload, the tail does not reload again by itself.
            cursor = tail.load().await?;
        }
    }
    // A change above the horizon is not a mismatch.
    let mut open = pool.begin().await?;
    sqlx::query("SELECT pg_current_xact_id()").execute(&mut *open).await?;
    let before = index.mismatches();
    for count in 0..3 {
        sqlx::query("UPDATE agents SET session_count = session_count + 1 WHERE id = $1")
            .bind(unlabelled.id.0)
            .execute(&pool)
            .await?;
        sqlx::query("INSERT INTO outbox (project, kind, key) VALUES ('default', 'agent', $1)")
            .bind(unlabelled.id.0)
            .execute(&pool)
            .await?;
        cursor = tail.check(cursor, 0..=255).await?;
        assert_eq!(index.mismatches(), before, "check {count}");
    }
    open.rollback().await?;
    eventually(SOON, "the tail to apply the change", async || {
        tail.check(cursor, 0..=255).await.is_ok()
            && index.snapshot().agent(unlabelled.id).is_some_and(|agent| agent.session.count == 4)
    })
    .await?;
    assert_eq!(index.mismatches(), before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_in_the_index_when_it_is_answered() -> Result<()> {
    let mut harness = Harness::open_on(Arc::new(Postgres::start().await?)).await?;
    harness.admin = harness.admin.without_waiting();
    let agent = harness.agent("shop-1", json!({})).await?;
    harness.stack("web", json!({ "selectors": ["*"] })).await?;
    for round in 0..20 {
        let object = harness.submit("web", &format!("{YAML}# {round}\n")).await?;
        let envelope = polled(agent.poll_request()).await?.envelope()?;
        assert_eq!(envelope.stacks[0].sequence_id, object.sequence_id);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_usually_agree_after_a_few_reads_of_the_outbox() -> Result<()> {
    // On a server of its own: open transactions of other tests hold back the horizon.
    let harness = Harness::open_on(Arc::new(Postgres::start().await?)).await?;
    let other = harness.replica().await?;
    let agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    harness.stack("web", json!({ "selectors": ["env=prod"] })).await?;
    let mut behind = Vec::new();
    for round in 0..11 {
        harness.submit("web", &format!("{YAML}# {round}\n")).await?;
        let here = agent.poll().await?;
        // Reads are counted instead of time, because a machine can stall.
        let mut reads = BTreeSet::new();
        eventually(SOON, "the other replica to have the same envelope", async || {
            reads.insert(other.broker.index.freshness().at);
            polled(agent.poll_request_at(other.address)).await.is_ok_and(|there| there.etag == here.etag)
        })
        .await?;
        behind.push(reads.len());
    }
    behind.sort_unstable();
    // The median. There are about five reads in a second; comparing the index with the database, which would also find the
    // change, takes a minute.
    assert!(behind[behind.len() / 2] <= 5, "{behind:?}");
    Ok(())
}

//! Reports of many agents are stored in one transaction, and no agent can make those of another fail or wait.

use std::time::Duration;

use anyhow::Result;
use brokkr_api::report::{Report, ReportReceipt, Transition};
use brokkr_api::{SequenceId, StackId};
use brokkr_broker::tasks::report_writer::WRITERS;
use brokkr_testkit::eventually;
use reqwest::{Response, StatusCode};
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinHandle;

use crate::harness::{Agent, Harness, YAML, read};

const DEADLINE: Duration = Duration::from_secs(30);
/// More batches than are stored on their own at the same time.
const BUSY: usize = 6;

/// Agents with a stack, and a connection that blocks all writers: they wait for it with a batch each.
struct Crowd {
    harness: Harness,
    agents: Vec<Agent>,
    stack: StackId,
    sequence_id: SequenceId,
    blocker: PgConnection,
}

impl Crowd {
    async fn open(count: usize) -> Result<Self> {
        let harness = Harness::open().await?;
        let mut agents = Vec::new();
        for number in 0..count {
            agents.push(harness.agent(&format!("shop-{number}"), json!({})).await?);
        }
        let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
        let object = harness.submit("web", YAML).await?;
        let blocker = harness.database.connect().await?;
        Ok(Self { harness, agents, stack: stack.id, sequence_id: object.sequence_id, blocker })
    }

    fn report(&self, agent: usize) -> Report {
        self.agents[agent].report(self.stack, self.sequence_id, Transition::Healthy, 1_760_000_000)
    }

    fn send(&self, agent: usize) -> JoinHandle<Result<Response>> {
        let (caller, path) = (self.agents[agent].caller(), self.agents[agent].path("reports"));
        let body = json!({ "reports": [self.report(agent)] });
        tokio::spawn(async move { caller.send(reqwest::Method::POST, &path, &body).await })
    }

    /// Sends a report of each agent. The first ones occupy the writers, so the others form a group.
    async fn send_all(&mut self) -> Result<Vec<JoinHandle<Result<Response>>>> {
        sqlx::raw_sql("BEGIN; LOCK TABLE events").execute(&mut self.blocker).await?;
        let mut sent = Vec::new();
        for writer in 0..WRITERS {
            sent.push(self.send(writer));
            self.until_blocked(writer + 1).await?;
        }
        let rest = self.agents.len() - WRITERS;
        sent.extend((WRITERS..self.agents.len()).map(|agent| self.send(agent)));
        let queue = &self.harness.server.broker.reports;
        eventually(DEADLINE, "the reports to wait", async || {
            anyhow::ensure!(queue.waiting() == rest, "{} of {rest}", queue.waiting());
            anyhow::Ok(())
        })
        .await?;
        Ok(sent)
    }

    async fn until_blocked(&self, writers: usize) -> Result<()> {
        eventually(DEADLINE, "the writers to be blocked", async || {
            let mut watch = self.harness.database.connect().await?;
            let blocked: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                 AND wait_event_type = 'Lock' AND query ILIKE '%INSERT INTO events%'",
            )
            .fetch_one(&mut watch)
            .await?;
            watch.close().await?;
            anyhow::ensure!(blocked == i64::try_from(writers)?, "{blocked} of {writers}");
            anyhow::Ok(())
        })
        .await
    }

    async fn unblock(&mut self) -> Result<()> {
        sqlx::raw_sql("COMMIT").execute(&mut self.blocker).await?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_of_many_agents_are_stored_in_one_transaction_and_without_idempotency_keys() -> Result<()> {
    let mut crowd = Crowd::open(WRITERS + 8).await?;
    let keys = "SELECT count(*) FROM idempotency_keys";
    let before: i64 = sqlx::query_scalar(keys).fetch_one(&mut crowd.blocker).await?;
    let sent = crowd.send_all().await?;
    crowd.unblock().await?;
    for (agent, response) in sent.into_iter().enumerate() {
        let receipt: ReportReceipt = read(response.await??).await?;
        assert_eq!(receipt.accepted, [crowd.report(agent).id], "each gets its own receipt");
    }
    let (events, transactions): (i64, i64) =
        sqlx::query_as("SELECT count(*), count(DISTINCT xid) FROM events")
            .fetch_one(&mut crowd.blocker)
            .await?;
    let expected = (i64::try_from(WRITERS + 8)?, i64::try_from(WRITERS + 1)?);
    assert_eq!((events, transactions), expected);
    let healthy: i64 =
        sqlx::query_scalar("SELECT sum(count)::bigint FROM status_counts WHERE transition = 'healthy'")
            .fetch_one(&mut crowd.blocker)
            .await?;
    assert_eq!(healthy, events);
    let after: i64 = sqlx::query_scalar(keys).fetch_one(&mut crowd.blocker).await?;
    assert_eq!(after, before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_cannot_be_stored_does_not_make_the_others_of_its_group_fail() -> Result<()> {
    let mut crowd = Crowd::open(WRITERS + 4).await?;
    let bad = WRITERS + 1;
    let id = crowd.agents[bad].id;
    let trigger = format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'planted'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON events FOR EACH ROW WHEN (NEW.agent_id = '{id}')
         EXECUTE FUNCTION refuse()"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(trigger)).execute(&mut crowd.blocker).await?;
    let sent = crowd.send_all().await?;
    crowd.unblock().await?;
    for (agent, response) in sent.into_iter().enumerate() {
        let status = response.await??.status();
        let expected = if agent == bad { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
        assert_eq!(status, expected, "agent {agent}");
    }
    let events: i64 = sqlx::query_scalar("SELECT count(*) FROM events").fetch_one(&mut crowd.blocker).await?;
    assert_eq!(events, i64::try_from(WRITERS + 3)?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_of_agents_that_another_replica_is_storing_do_not_delay_others() -> Result<()> {
    let mut crowd = Crowd::open(WRITERS + BUSY + 2).await?;
    let is_busy = |agent: usize| (WRITERS..WRITERS + BUSY).contains(&agent);
    let mut replica = crowd.harness.database.connect().await?;
    sqlx::raw_sql("BEGIN").execute(&mut replica).await?;
    for agent in crowd.agents.iter().skip(WRITERS).take(BUSY) {
        sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1::uuid::text, 1))")
            .bind(agent.id.0)
            .execute(&mut replica)
            .await?;
    }
    let sent = crowd.send_all().await?;
    crowd.unblock().await?;
    for (agent, response) in sent.into_iter().enumerate() {
        let response = response.await??;
        if is_busy(agent) {
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "agent {agent}");
            assert_eq!(response.headers()["retry-after"], "1");
        } else {
            assert_eq!(response.status(), StatusCode::OK, "agent {agent}");
        }
    }
    sqlx::raw_sql("COMMIT").execute(&mut replica).await?;
    for agent in (0..crowd.agents.len()).filter(|agent| is_busy(*agent)) {
        let receipt: ReportReceipt = read(crowd.send(agent).await??).await?;
        assert_eq!(receipt.accepted, [crowd.report(agent).id], "nothing was stored before");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_wait_a_short_time_for_those_that_another_replica_is_storing() -> Result<()> {
    let crowd = Crowd::open(BUSY).await?;
    let mut replica = crowd.harness.database.connect().await?;
    let ids: Vec<_> = crowd.agents.iter().map(|agent| agent.id.0).collect();
    // On a slow machine, the locks may be held for too long.
    eventually(DEADLINE, "the reports to be stored", async || {
        sqlx::raw_sql("BEGIN").execute(&mut replica).await?;
        sqlx::query(
            "SELECT pg_advisory_xact_lock(hashtextextended(id::text, 1)) FROM unnest($1::uuid[]) AS id",
        )
        .bind(&ids)
        .execute(&mut replica)
        .await?;
        let waiting: Vec<_> = (0..BUSY).map(|agent| crowd.send(agent)).collect();
        tokio::time::sleep(Duration::from_millis(150)).await;
        sqlx::raw_sql("COMMIT").execute(&mut replica).await?;
        for (agent, response) in waiting.into_iter().enumerate() {
            let receipt = read::<ReportReceipt>(response.await??).await?;
            let stored: Vec<_> = receipt.accepted.into_iter().chain(receipt.duplicates).collect();
            assert_eq!(stored, [crowd.report(agent).id]);
        }
        anyhow::Ok(())
    })
    .await
}

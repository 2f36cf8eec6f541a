//! Counts follow every report, whichever replica receives it; errors are grouped by their reason.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::objects::DeploymentObject;
use brokkr_api::page::Page;
use brokkr_api::reason::{ObjectRef, Reason};
use brokkr_api::report::{ObjectNote, Report, ReportReceipt, Transition};
use brokkr_api::stacks::Stack;
use brokkr_api::status::{ErrorGroup, StackSummary};
use brokkr_api::tokens::Role;
use brokkr_api::{SequenceId, StackId};
use brokkr_broker::store::status_counts::status_counts_tidy;
use brokkr_testkit::{Postgres, eventually};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::Method;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};

use crate::harness::{Agent, Harness, YAML, read};

type Counted = Vec<(StackId, i64, String, Vec<u8>, i64)>;

/// Returns the maintained counts, and the same counts computed from the rows.
async fn both(connection: &mut PgConnection) -> Result<(Counted, Counted)> {
    let rows = |sql| sqlx::query_as::<_, (uuid::Uuid, i64, String, Vec<u8>, i64)>(sql);
    let maintained = rows(
        "SELECT stack_id, sequence_id, transition, reason_key, sum(count)::bigint FROM status_counts
         GROUP BY 1, 2, 3, 4 HAVING sum(count) <> 0 ORDER BY 1, 2, 3, 4",
    );
    let counted = rows(
        "SELECT stack_id, sequence_id, transition, coalesce(reason_key, ''), count(*) FROM stack_status
         GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4",
    );
    let typed = |rows: Vec<(uuid::Uuid, i64, String, Vec<u8>, i64)>| {
        rows.into_iter().map(|(stack, a, b, c, d)| (StackId(stack), a, b, c, d)).collect()
    };
    Ok((
        typed(maintained.fetch_all(&mut *connection).await?),
        typed(counted.fetch_all(&mut *connection).await?),
    ))
}

fn random_report(agent: &Agent, stacks: &[StackId], random: &mut SmallRng) -> Report {
    let transitions = [
        Transition::Applied,
        Transition::Healthy,
        Transition::Degraded,
        Transition::Failed,
        Transition::Repaired,
        Transition::Blocked,
        Transition::Removed,
    ];
    let stack = *stacks.choose(random).expect("stacks");
    let transition = transitions.choose(random).expect("transitions").clone();
    let second = 1_700_000_000 + random.random_range(0..20);
    let mut report = agent.report(stack, SequenceId(random.random_range(1..4)), transition, second);
    // Two error groups: the random number in the second reason must not split that group.
    report.reason = match random.random_bool(0.5) {
        true => Reason::CrashLoopBackOff,
        false => Reason::PruneNeedsApproval { delete: random.random_range(51..100), total: 100 },
    };
    report.message = report.reason.message();
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_match_the_rows_after_random_reports_at_two_replicas_at_once() -> Result<()> {
    let harness = Harness::open().await?;
    let second = harness.replica().await?;
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    let mut stacks = Vec::new();
    for name in ["web", "api", "db"] {
        stacks.push(harness.stack(name, json!({ "selectors": ["*"] })).await?.id);
    }
    // Reports are about versions 1 to 3, and each stack has a newer one.
    for name in ["web", "api", "db", "web", "api", "db"] {
        harness.submit(name, YAML).await?;
    }
    let mut agents = Vec::new();
    for number in 0..6u64 {
        agents.push((number, harness.agent(&format!("shop-{number}"), json!({})).await?));
    }
    let joined = harness.server.broker.index.position();
    assert!(second.broker.index.reached(joined, Duration::from_secs(30)).await);
    let mut tasks = Vec::new();
    for (number, agent) in agents {
        let (stacks, addresses) = (stacks.clone(), [harness.server.address, second.address]);
        tasks.push(tokio::spawn(async move {
            let mut random = SmallRng::seed_from_u64(seed ^ number);
            for _ in 0..12 {
                let count = random.random_range(1..6);
                let mut reports: Vec<Report> =
                    (0..count).map(|_| random_report(&agent, &stacks, &mut random)).collect();
                // The first report is twice in the batch, and both replicas get the same batch at the same
                // time.
                reports.extend(reports.first().cloned());
                let body = json!({ "reports": reports });
                let send = |address| {
                    let (caller, body, path) = (agent.at(address), body.clone(), agent.path("reports"));
                    async move { read::<ReportReceipt>(caller.send(Method::POST, &path, &body).await?).await }
                };
                let (one, other) = tokio::join!(send(addresses[0]), send(addresses[1]));
                let (one, other) = (one?, other?);
                for id in reports.iter().map(|report| report.id) {
                    let new = [&one, &other].iter().filter(|receipt| receipt.accepted.contains(&id)).count();
                    let old =
                        [&one, &other].iter().filter(|receipt| receipt.duplicates.contains(&id)).count();
                    anyhow::ensure!(new <= 1 && new + old == 2, "{id}: new {new}, duplicate {old}");
                }
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    let mut connection = harness.database.connect().await?;
    let (maintained, counted) = both(&mut connection).await?;
    assert_eq!(maintained, counted);
    let total: i64 = maintained.iter().map(|(.., count)| count).sum();
    assert_eq!(total, 18, "each agent has a state of each stack: {maintained:?}");
    assert!(maintained.len() > 5, "they differ: {maintained:?}");
    // Changes by other statements are counted, too, and compacting does not change the sums.
    sqlx::query("DELETE FROM stack_status WHERE stack_id = $1")
        .bind(stacks[0].0)
        .execute(&mut connection)
        .await?;
    status_counts_tidy(&harness.server.broker.pool).await?;
    let (maintained, counted) = both(&mut connection).await?;
    assert_eq!(maintained, counted);
    let over: i64 = sqlx::query_scalar("SELECT count(*) FROM status_counts WHERE stack_id = $1")
        .bind(stacks[0].0)
        .fetch_one(&mut connection)
        .await?;
    assert_eq!(over, 0, "counts that add up to zero are deleted");
    second.stop().await;
    Ok(())
}

/// Counts are compacted while another transaction uses a shard for a long time: reports do not wait for either.
#[tokio::test(flavor = "multi_thread")]
async fn reports_do_not_wait_while_counts_are_compacted() -> Result<()> {
    // A separate server: the open transaction delays every outbox tail of a server.
    let harness = Harness::open_on(Arc::new(Postgres::start().await?)).await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let at = 1_700_000_000;
    for (later, transition) in
        [Transition::Applied, Transition::Healthy, Transition::Degraded].into_iter().enumerate()
    {
        let report = agent.report(stack.id, object.sequence_id, transition, at + i64::try_from(later)?);
        agent.send_reports(&[report]).await?;
    }
    let mut connection = harness.database.connect().await?;
    let mut long = connection.begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock(1112690258, 15)").execute(&mut *long).await?;
    let pool = harness.server.broker.pool.clone();
    let compacting = tokio::spawn(async move { status_counts_tidy(&pool).await });
    let mut other = harness.database.connect().await?;
    eventually(Duration::from_secs(30), "it to wait for the last shard", async || {
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        let waiting: i64 = sqlx::query_scalar(waiting).fetch_one(&mut other).await?;
        anyhow::ensure!(waiting > 0, "not yet");
        anyhow::Ok(())
    })
    .await?;
    for later in 10..15 {
        let report = agent.report(stack.id, object.sequence_id, Transition::Healthy, at + later);
        let sent = agent.send_reports(&[report]).await?;
        assert!(sent.status().is_success(), "{}", sent.text().await?);
    }
    assert!(!compacting.is_finished(), "it still waited while reports were stored");
    long.rollback().await?;
    compacting.await??;
    let (maintained, counted) = both(&mut other).await?;
    assert_eq!(maintained, counted);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_belong_to_the_project_of_their_stack() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let here = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let other = harness.project("other", Role::Owner).await?;
    let grant = json!({ "project": "other", "selector": "*", "namespaces": ["other"], "kinds": ["*"], "account": "other/brokkr-other" });
    harness.admin.send(Method::PUT, "grants/other", &grant).await?.error_for_status()?;
    other.send(Method::PUT, "stacks/web", &json!({})).await?.error_for_status()?;
    let there: Stack =
        read(other.send(Method::PUT, "stacks/web/targets", &json!({ "selectors": ["*"] })).await?).await?;
    let submitted =
        other.request(Method::POST, "stacks/web/deployment-objects").body(YAML.replace("default", "other"));
    let elsewhere: DeploymentObject = read(other.write(submitted).await?).await?;
    let reports = [
        agent.report(here.id, object.sequence_id, Transition::Applied, 1_700_000_000),
        agent.report(there.id, elsewhere.sequence_id, Transition::Failed, 1_700_000_000),
    ];
    let receipt: ReportReceipt = read(agent.send_reports(&reports).await?).await?;
    assert_eq!(receipt.accepted.len(), 2);
    let mut connection = harness.database.connect().await?;
    for table in ["events", "stack_status"] {
        let sql = match table {
            "events" => "SELECT stack_id, project FROM events",
            _ => "SELECT stack_id, project FROM stack_status",
        };
        let mut rows: Vec<(uuid::Uuid, String)> = sqlx::query_as(sql).fetch_all(&mut connection).await?;
        let mut expected = vec![(here.id.0, "default".to_owned()), (there.id.0, "other".to_owned())];
        rows.sort();
        expected.sort();
        assert_eq!(rows, expected, "{table}");
    }
    // Sent again, each report is a duplicate in its own project.
    let again: ReportReceipt = read(agent.send_reports(&reports).await?).await?;
    assert_eq!((again.accepted.len(), again.duplicates.len()), (0, 2));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_adds_up_and_errors_are_listed_once_with_their_count() -> Result<()> {
    let harness = Harness::open().await?;
    let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let mut agents = Vec::new();
    for number in 1..=6 {
        agents.push(harness.agent(&format!("shop-{number}"), json!({})).await?);
    }
    for (number, agent) in agents.iter().enumerate().take(3) {
        let mut failed = agent.report(stack.id, object.sequence_id, Transition::Failed, 1_700_000_000);
        failed.message = "1 object was refused".into();
        failed.objects = vec![ObjectNote {
            object: ObjectRef {
                kind: "Deployment".into(),
                name: format!("web-{number}"),
                ..ObjectRef::default()
            },
            reason: Reason::Immutable { fields: vec!["spec.selector".into()] },
            message: format!("Deployment.apps \"web-{number}\" is invalid: spec.selector is immutable")
                .into(),
        }];
        agent.send_reports(&[failed]).await?;
    }
    let mut degraded = agents[3].report(stack.id, object.sequence_id, Transition::Degraded, 1_700_000_000);
    (degraded.reason, degraded.message) = (Reason::ImagePullBackOff, "cannot pull web:17".into());
    agents[3].send_reports(&[degraded]).await?;
    let healthy = agents[4].report(stack.id, object.sequence_id, Transition::Healthy, 1_700_000_000);
    agents[4].send_reports(&[healthy]).await?;

    let summary: StackSummary = harness.admin.get_json("stacks/web/status/summary").await?;
    assert_eq!(
        (
            summary.targeted,
            summary.pending,
            summary.counts.failed,
            summary.counts.degraded,
            summary.counts.healthy
        ),
        (6, 1, 3, 1, 1)
    );
    assert_eq!(summary.sequence_id, Some(object.sequence_id));

    for path in ["errors", "stacks/web/errors"] {
        let first: Page<ErrorGroup> = harness.admin.get_json(&format!("{path}?limit=1")).await?;
        let group = first.items.first().context("a group")?;
        assert_eq!((group.count, group.stacks, group.reason.code()), (3, 1, "Immutable"));
        assert_eq!(group.reason, Reason::Immutable { fields: vec!["spec.selector".into()] });
        assert_eq!(group.message, group.reason.message());
        assert_eq!(group.examples.len(), 3);
        assert_eq!(group.examples[0].agent_name, "shop-1");
        let after = first.next.context("there is more")?;
        let rest: Page<ErrorGroup> = harness.admin.get_json(&format!("{path}?limit=1&after={after}")).await?;
        assert_eq!(
            (rest.items[0].count, rest.items[0].reason.code(), rest.next),
            (1, "ImagePullBackOff", None)
        );
    }
    // One agent is healthy with a newer object.
    let newer = harness.submit("web", YAML).await?;
    let over = agents[0].report(stack.id, newer.sequence_id, Transition::Healthy, 1_700_000_001);
    agents[0].send_reports(&[over]).await?;
    let groups: Page<ErrorGroup> = harness.admin.get_json("errors").await?;
    assert_eq!(groups.items[0].count, 2);
    let summary: StackSummary = harness.admin.get_json("stacks/web/status/summary").await?;
    assert_eq!((summary.pending, summary.counts.healthy, summary.behind), (5, 1, 4));
    assert_eq!(summary.sequences.len(), 2);
    Ok(())
}

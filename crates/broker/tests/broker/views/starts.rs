//! A replica that has just started says that its views are not complete, and two replicas show the same.

use anyhow::Result;
use brokkr_api::ErrorCode;
use brokkr_api::fleet::FleetMatrix;
use brokkr_api::report::Transition;
use brokkr_broker::store::outcomes::outcomes_send_on_conn;
use brokkr_broker::store::{CopyConnection, connect};
use brokkr_testkit::{Attempt, eventually};
use serde_json::json;
use tokio::sync::mpsc;

use super::{SOON, deployed, settled};
use crate::harness::{Harness, SERVING, refused};

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_serves_before_it_has_loaded_what_agents_reported() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({ "region": "eu" })).await?;
    let (web, version) = deployed(&harness.admin, "web", json!({ "selectors": ["*"] })).await?;
    let report = agent.report(web.id, version, Transition::Healthy, 1_700_000_000);
    agent.send_reports(&[report]).await?.error_for_status()?;
    settled(&harness.server.broker).await?;

    // Nobody can read what agents have reported.
    let mut lock = harness.database.connect().await?;
    sqlx::query("BEGIN").execute(&mut lock).await?;
    sqlx::query("LOCK TABLE stack_status IN ACCESS EXCLUSIVE MODE").execute(&mut lock).await?;
    let replica = harness.replica().await?;
    let caller = harness.admin.at(replica.address);
    let matrix: FleetMatrix = caller.get_json("fleet/matrix?by=region").await?;
    assert!(!matrix.freshness.complete && matrix.freshness.as_of.is_none(), "{matrix:?}");
    let cell = matrix.rows[0].cells[0];
    assert_eq!((cell.agents, cell.pending), (1, 1), "it does not know the report");
    let counted = caller.get("stacks/web/status?count=true").await?;
    assert_eq!(counted.headers().get("retry-after").and_then(|value| value.to_str().ok()), Some("1"));
    assert_eq!(refused(counted).await?, ErrorCode::BRK3002);

    sqlx::query("COMMIT").execute(&mut lock).await?;
    eventually(SOON, "the views to be complete", async || {
        let matrix: FleetMatrix = caller.get_json("fleet/matrix?by=region").await?;
        anyhow::ensure!(matrix.freshness.complete && matrix.rows[0].cells[0].on_intent == 1, "{matrix:?}");
        anyhow::Ok(())
    })
    .await?;
    replica.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_on_which_a_copy_has_failed_is_not_used_again() -> Result<()> {
    let harness = Harness::open().await?;
    let pool = connect(&harness.database.url_as(SERVING), 1).await?;
    let mut owner = harness.database.connect().await?;
    sqlx::query("ALTER TABLE stack_status RENAME TO elsewhere").execute(&mut owner).await?;
    let (sender, _receiver) = mpsc::channel(1);
    let mut conn = CopyConnection::begin(&pool).await?;
    assert!(outcomes_send_on_conn(&mut conn, &sender).await.is_err(), "it fails before the first row");
    drop(conn);
    for number in 1..5 {
        let selected: i32 = sqlx::query_scalar("SELECT $1::int").bind(number).fetch_one(&pool).await?;
        assert_eq!(selected, number, "the response to another statement");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_show_the_same() -> Result<()> {
    let harness = Harness::open().await?;
    let replica = harness.replica().await?;
    let (web, version) = deployed(&harness.admin, "web", json!({ "selectors": ["*"] })).await?;
    let transitions = [Transition::Healthy, Transition::Failed, Transition::Applied, Transition::Blocked];
    for (number, transition) in transitions.into_iter().enumerate() {
        let agent =
            harness.agent(&format!("shop-{number}"), json!({ "zone": format!("z{}", number % 2) })).await?;
        let report = agent.report(web.id, version, transition, 1_700_000_000);
        // Some are received by each of the two.
        let address = if number < 2 { harness.server.address } else { replica.address };
        let caller = agent.at(address);
        eventually(SOON, "the report to be accepted", async || {
            let body = json!({ "reports": [report] });
            match caller.send(reqwest::Method::POST, &agent.path("reports"), &body).await {
                Ok(response) if response.status().is_success() => Attempt::Done(()),
                other => Attempt::NotYet(format!("{other:?}")),
            }
        })
        .await?;
    }
    settled(&harness.server.broker).await?;
    settled(&replica.broker).await?;
    let here: FleetMatrix = harness.admin.get_json("fleet/matrix?by=zone").await?;
    let there: FleetMatrix = harness.admin.at(replica.address).get_json("fleet/matrix?by=zone").await?;
    assert_eq!((&here.columns, &here.rows), (&there.columns, &there.rows));
    let cells = &here.rows[0].cells;
    assert_eq!((cells[0].on_intent, cells[0].pending), (1, 1), "{cells:?}");
    assert_eq!((cells[1].failing, cells[1].blocked), (1, 1), "{cells:?}");
    replica.stop().await;
    Ok(())
}

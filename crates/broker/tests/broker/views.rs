//! Views of a fleet: what they count, and what of other projects they do not show.
//!
//! | module    | contents                                                            |
//! |-----------|---------------------------------------------------------------------|
//! | `filters` | rows of a status that are found in the index                        |
//! | `history` | the views after random changes, compared with the database          |
//! | `starts`  | a replica that has just started                                     |
//! | `stream`  | the stream of a matrix                                              |

mod filters;
mod history;
mod starts;
mod stream;

use std::time::Duration;

use anyhow::Result;
use brokkr_api::SequenceId;
use brokkr_api::fleet::{AgentStack, FleetColumn, FleetMatrix, FleetSummary, LabelKey, SearchResults};
use brokkr_api::page::Page;
use brokkr_api::reason::Reason;
use brokkr_api::report::{Report, Transition};
use brokkr_api::stacks::Stack;
use brokkr_api::status::State;
use brokkr_api::tokens::Role;
use brokkr_broker::state::Broker;
use brokkr_testkit::{Attempt, eventually};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Agent, Caller, Harness, YAML, current, read};

const SOON: Duration = Duration::from_secs(60);

/// Waits until the views of a replica contain everything that is committed.
async fn settled(broker: &Broker) -> Result<()> {
    current(broker).await?;
    let wanted = broker.index.position();
    eventually(SOON, "the views to be current", async || {
        let freshness = broker.index.outcomes().freshness();
        match freshness.complete && freshness.position >= wanted {
            true => Attempt::Done(()),
            false => Attempt::NotYet(format!("{freshness:?} instead of {wanted}")),
        }
    })
    .await
}

/// Creates a stack of the caller's project with a version and these targets.
async fn deployed(caller: &Caller, name: &str, targets: Value) -> Result<(Stack, SequenceId)> {
    caller.send(Method::PUT, &format!("stacks/{name}"), &json!({})).await?.error_for_status()?;
    let stack: Stack =
        read(caller.send(Method::PUT, &format!("stacks/{name}/targets"), &targets).await?).await?;
    let path = format!("stacks/{name}/deployment-objects");
    let object: brokkr_api::objects::DeploymentObject =
        read(caller.write(caller.request(Method::POST, &path).body(YAML)).await?).await?;
    Ok((stack, object.sequence_id))
}

/// Returns the report of a failure.
fn failed(agent: &Agent, stack: &Stack, version: SequenceId, second: i64) -> Report {
    let mut report = agent.report(stack.id, version, Transition::Failed, second);
    report.reason = Reason::CrashLoopBackOff;
    report.message = report.reason.message();
    report
}

fn value(value: &str) -> FleetColumn {
    FleetColumn::Value { value: value.to_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_is_counted_by_stack_and_label() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agents = Vec::new();
    for (name, labels) in [
        ("eu-1", json!({ "region": "eu" })),
        ("eu-2", json!({ "region": "eu" })),
        ("us-1", json!({ "region": "us" })),
        ("lab", json!({})),
    ] {
        agents.push(harness.agent(name, labels).await?);
    }
    let (web, first) = deployed(&harness.admin, "web", json!({ "selectors": ["*"] })).await?;
    let (api, version) = deployed(&harness.admin, "api", json!({ "selectors": ["region=eu"] })).await?;
    for agent in &agents {
        let report = agent.report(web.id, first, Transition::Healthy, 1_700_000_000);
        agent.send_reports(&[report]).await?.error_for_status()?;
    }
    let failure = failed(&agents[1], &api, version, 1_700_000_001);
    agents[1].send_reports(&[failure]).await?.error_for_status()?;
    let second = harness.submit("web", &YAML.replace("greeting", "farewell")).await?.sequence_id;
    let updated = agents[0].report(web.id, second, Transition::Healthy, 1_700_000_002);
    agents[0].send_reports(&[updated]).await?.error_for_status()?;
    settled(&harness.server.broker).await?;

    let matrix: FleetMatrix = harness.admin.get_json("fleet/matrix?by=region").await?;
    assert!(matrix.freshness.complete && matrix.freshness.as_of.is_some());
    assert_eq!(matrix.columns, [value("eu"), value("us"), FleetColumn::Unset]);
    let names: Vec<_> = matrix.rows.iter().map(|row| row.stack_name.as_deref()).collect();
    assert_eq!(names, [Some("api"), Some("web")]);
    let numbers = |row: usize| -> Vec<_> {
        let cells = matrix.rows[row].cells.iter();
        cells
            .map(|cell| (cell.agents, cell.on_intent, cell.pending, cell.failing, cell.current, cell.older))
            .collect()
    };
    assert_eq!(numbers(0), [(2, 0, 1, 1, 1, 0), (0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 0)]);
    assert_eq!(numbers(1), [(2, 1, 1, 0, 1, 1), (1, 0, 1, 0, 0, 1), (1, 0, 1, 0, 0, 1)]);
    assert_eq!(matrix.rows[1].sequence_id, Some(second));

    let some: FleetMatrix = harness.admin.get_json("fleet/matrix?selector=region%3Deu").await?;
    assert_eq!(some.columns, [FleetColumn::All]);
    assert!(some.rows.iter().all(|row| row.cells[0].agents == 2), "{some:?}");

    let summary: FleetSummary = harness.admin.get_json("fleet/summary").await?;
    let counts = summary.counts;
    // eu-1 waits for the api, eu-2 fails, and the others wait for the new version.
    assert_eq!((summary.stacks, counts.agents, counts.on_intent), (2, 4, 0), "{counts:?}");
    assert_eq!((counts.failing, counts.pending, counts.silent), (1, 3, 0), "{counts:?}");
    assert_eq!(summary.needs_attention[0].reason, Reason::CrashLoopBackOff);
    assert_eq!(summary.needs_attention[0].count, 1);

    let mut connection = harness.database.connect().await?;
    sqlx::query("UPDATE agents SET silent_since = now() WHERE name = 'us-1'")
        .execute(&mut connection)
        .await?;
    eventually(SOON, "the silent agent to be counted", async || {
        let summary: FleetSummary = harness.admin.get_json("fleet/summary").await?;
        anyhow::ensure!(summary.counts.silent == 1 && summary.counts.pending == 2, "{summary:?}");
        anyhow::Ok(())
    })
    .await?;
    for bad in ["by=%2F", "selector=%3D", "by=region&after=web"] {
        let response = harness.admin.get(&format!("fleet/matrix?{bad}")).await?;
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY, "{bad}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_another_project_is_shown_or_counted() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agents = Vec::new();
    for (name, labels) in [
        ("shop-1", json!({ "team": "shop" })),
        ("shop-2", json!({ "team": "shop" })),
        ("bank-1", json!({ "team": "bank", "vault": "yes" })),
    ] {
        agents.push(harness.agent(name, labels).await?);
    }
    let mut projects = Vec::new();
    for name in ["shop", "bank"] {
        let project = harness.project(name, Role::Owner).await?;
        let grant = json!({ "project": name, "selector": format!("team={name}"), "namespaces": [name], "kinds": ["*"],
            "account": format!("{name}/brokkr-{name}") });
        harness.admin.send(Method::PUT, &format!("grants/{name}"), &grant).await?.error_for_status()?;
        projects.push(project);
    }
    let [shop, bank] = &projects[..] else { anyhow::bail!("two projects") };
    let everyone = json!({ "selectors": ["*"] });
    let (own, own_version) = deployed(shop, "web", everyone.clone()).await?;
    deployed(bank, "ledger", everyone.clone()).await?;
    // A stack of the same name reaches the same agents, and fails there.
    let (other, version) = deployed(&harness.admin, "web", everyone).await?;
    for agent in &agents {
        let report = failed(agent, &other, version, 1_700_000_000);
        agent.send_reports(&[report]).await?.error_for_status()?;
    }
    let healthy = agents[0].report(own.id, own_version, Transition::Healthy, 1_700_000_000);
    agents[0].send_reports(&[healthy]).await?.error_for_status()?;
    settled(&harness.server.broker).await?;

    let summary: FleetSummary = shop.get_json("fleet/summary").await?;
    let counts = summary.counts;
    assert_eq!((summary.stacks, counts.agents, counts.on_intent, counts.pending), (1, 2, 1, 1), "{counts:?}");
    assert_eq!((counts.failing, summary.needs_attention.len()), (0, 0));
    let matrix: FleetMatrix = shop.get_json("fleet/matrix?by=team").await?;
    assert_eq!(matrix.columns, [value("shop")]);
    assert_eq!(matrix.rows.iter().map(|row| row.stack_id).collect::<Vec<_>>(), [Some(own.id)]);
    assert_eq!((matrix.rows[0].cells[0].agents, matrix.rows[0].cells[0].failing), (2, 0));
    for query in ["by=vault", "selector=vault"] {
        let matrix: FleetMatrix = shop.get_json(&format!("fleet/matrix?{query}")).await?;
        let agents: u64 = matrix.rows.iter().flat_map(|row| &row.cells).map(|cell| cell.agents).sum();
        assert_eq!(agents, if query == "by=vault" { 2 } else { 0 }, "{query}: {matrix:?}");
        assert!(!matrix.columns.contains(&value("yes")), "{query}");
    }
    let labels: Page<LabelKey> = shop.get_json("labels").await?;
    let keys: Vec<_> = labels.items.iter().map(|key| (key.key.as_str(), key.agents, key.values)).collect();
    assert_eq!(keys, [("team", 2, 1)]);
    let all: Page<LabelKey> = harness.admin.get_json("labels?limit=1").await?;
    assert_eq!(
        (all.items[0].key.as_str(), all.items[0].top.len(), all.next.as_deref()),
        ("team", 2, Some("team"))
    );

    let found = async |caller: &Caller, text: &str| {
        caller.get_json::<SearchResults>(&format!("search?q={text}")).await
    };
    let hidden = found(shop, "bank").await?;
    assert_eq!((hidden.agents.len(), hidden.stacks.len(), hidden.more), (0, 0, false));
    assert!(found(shop, &agents[2].id.to_string()).await?.agents.is_empty());
    assert!(found(shop, &other.id.to_string()).await?.stacks.is_empty());
    assert_eq!(found(shop, "WEB").await?.stacks.iter().map(|stack| stack.id).collect::<Vec<_>>(), [own.id]);
    let known = found(shop, &own.id.to_string()).await?;
    assert_eq!((known.agents.len(), known.stacks.len()), (0, 1));
    let checksum = brokkr_api::ids::Checksum::of(YAML.as_bytes()).to_string();
    let versions = found(shop, &checksum[..8]).await?.versions;
    assert_eq!(versions.iter().map(|version| version.sequence_id).collect::<Vec<_>>(), [own_version]);
    assert_eq!(found(&harness.admin, "shop-").await?.agents.len(), 2);

    let stacks: Page<AgentStack> = shop.get_json("agents/shop-1/stacks").await?;
    let rows: Vec<_> = stacks.items.iter().map(|stack| (stack.status.stack_id, stack.status.state)).collect();
    assert_eq!(rows, [(own.id, State::Healthy)]);
    assert_eq!(stacks.items[0].because.len(), 1);
    assert_eq!(shop.get("agents/bank-1/stacks").await?.status(), StatusCode::NOT_FOUND);
    Ok(())
}

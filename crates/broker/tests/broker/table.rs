//! Calls every route as every kind of caller, and records who is allowed and which errors the others get.
//!
//! The table is a snapshot. A new route is a new row, and the test fails until the row is reviewed and accepted: run
//! with `INSTA_UPDATE=always`, then read the difference.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use brokkr_api::protocol::header;
use brokkr_api::tokens::{NewApiToken, Role};
use brokkr_api::{Problem, TokenId};
use brokkr_broker::access::Permission;
use brokkr_broker::router;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{Caller, Harness, YAML, read};

/// Returns the callers in the order in which they call each route: those with permission to write come last.
async fn callers(
    harness: &Harness,
    path_agent: &crate::harness::Agent,
) -> Result<Vec<(&'static str, Caller)>> {
    let other = harness.agent("other", json!({})).await?;
    let revoked = harness.agent("revoked", json!({})).await?;
    harness.admin.request(Method::DELETE, "agents/revoked/keys").send().await?.error_for_status()?;
    let wanted = json!({ "name": "short", "role": "owner", "ttl_seconds": 3600 });
    let expired: NewApiToken = read(harness.admin.send(Method::POST, "api-tokens", &wanted).await?).await?;
    let mut connection = harness.database.connect().await?;
    sqlx::query("UPDATE api_tokens SET expires_at = now() WHERE id = $1")
        .bind(expired.info.id.0)
        .execute(&mut connection)
        .await?;
    let address = harness.server.address;
    let viewer = harness.with_role(Role::Viewer).await?;
    Ok(vec![
        ("no credential", harness.without_credential()),
        ("expired token", Caller::new(address, Some(expired.token))),
        ("revoked agent", revoked.caller()),
        ("other agent", other.caller()),
        ("agent itself", path_agent.caller()),
        ("other project", harness.project("elsewhere", Role::Owner).await?),
        ("session of viewer", viewer.sign_in().await?),
        ("viewer", viewer),
        ("auditor", harness.with_role(Role::Auditor).await?),
        ("deployer", harness.with_role(Role::Deployer).await?),
        ("owner", harness.with_role(Role::Owner).await?),
        ("session of admin", harness.admin.sign_in().await?),
        ("admin", harness.admin.clone()),
    ])
}

/// Creates the resources for the next call, whatever the previous one did.
async fn create_resources(harness: &Harness, path: &str) -> Result<BTreeMap<&'static str, String>> {
    // By id: with a name, a caller of another project would create its own stack.
    let stack = harness.stack("web", json!({ "agents": ["itself"] })).await?;
    let object = harness.submit("web", YAML).await?;
    harness.admin.send(Method::PUT, "projects/spare", &json!({})).await?.error_for_status()?;
    let mut resources = BTreeMap::from([
        ("{stack}", stack.id.to_string()),
        ("{sequence_id}", object.sequence_id.to_string()),
    ]);
    // The number of tokens of a project is limited.
    if path.contains("{token}") {
        let wanted = json!({ "name": "spare", "role": "viewer" });
        let token: NewApiToken = read(harness.admin.send(Method::POST, "api-tokens", &wanted).await?).await?;
        resources.insert("{token}", token.info.id.to_string());
    }
    Ok(resources)
}

/// Fills in the parameters of a path; an unknown parameter becomes an id that does not exist.
fn filled(path: &str, resources: &BTreeMap<&'static str, String>) -> String {
    path.split('/')
        .map(|part| match resources.get(part) {
            Some(value) => value.clone(),
            None if part.starts_with('{') => Uuid::nil().to_string(),
            None => part.to_owned(),
        })
        .collect::<Vec<_>>()
        .join("/")
}

async fn call(caller: &Caller, method: &str, path: &str) -> Result<(StatusCode, Option<Problem>)> {
    let request = caller.request(method.parse::<Method>()?, path);
    let request = if method == "GET" { request } else { request.json(&json!({})) };
    // Only the route that opens a session needs it from callers with a token.
    let request = if caller.has_session() { request } else { request.header(header::CONSOLE, "1") };
    let response = caller.signed(request)?.send().await?;
    let status = response.status();
    // A stream does not end; its head is enough.
    let problem = if status.is_success() { None } else { response.json().await.ok() };
    Ok((status, problem))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_by_every_caller() -> Result<()> {
    let harness = Harness::open().await?;
    let (itself, _victim) =
        (harness.agent("itself", json!({})).await?, harness.agent("victim", json!({})).await?);
    let callers = callers(&harness, &itself).await?;
    let mut table = String::new();
    for route in router::table() {
        let (method, path) = route.name.split_once(' ').context("METHOD /path")?;
        writeln!(table, "{}\n  {}", route.name, route.permission)?;
        let mut outcomes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (who, caller) in &callers {
            let mut resources = create_resources(&harness, path).await?;
            // Routes for people that change an agent are called on another one, so that this one stays usable.
            let own = !matches!(route.permission, Permission::Token(_));
            resources.insert("{agent}", if own { itself.id.to_string() } else { "victim".to_owned() });
            resources.insert("{project}", if method == "GET" { "default" } else { "spare" }.to_owned());
            let (status, problem) = call(caller, method, &filled(path, &resources)).await?;
            let outcome = match problem {
                Some(problem) => format!("{} {}", status.as_u16(), problem.code),
                None => status.as_u16().to_string(),
            };
            assert!(!status.is_server_error(), "{} by {who}: {outcome}", route.name);
            outcomes.entry(outcome).or_default().push(who);
        }
        for (outcome, who) in outcomes {
            writeln!(table, "    {outcome:<12} {}", who.join(", "))?;
        }
    }
    insta::assert_snapshot!("every_route_by_every_caller", table);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_of_other_projects_get_404() -> Result<()> {
    let harness = Harness::open().await?;
    let (itself, other) =
        (harness.agent("itself", json!({})).await?, harness.agent("other", json!({})).await?);
    let stranger = harness.project("elsewhere", Role::Owner).await?;
    let resources = create_resources(&harness, "{token}").await?;
    let mut compared = 0;
    for route in router::table() {
        let (method, path) = route.name.split_once(' ').context("METHOD /path")?;
        let of_project =
            ["{stack}", "{sequence_id}", "{token}", "{agent}"].iter().any(|part| path.contains(part));
        let caller = match route.permission {
            Permission::Token(least) if of_project && Role::Owner.includes(least) => &stranger,
            Permission::AnyAgentOr(_) => &stranger,
            Permission::Agent | Permission::AgentOr(_) => &other.caller(),
            _ => continue,
        };
        let mut missing: BTreeMap<&'static str, String> = BTreeMap::from([
            ("{stack}", Uuid::now_v7().to_string()),
            ("{sequence_id}", "999999".to_owned()),
            ("{token}", TokenId::generate().to_string()),
        ]);
        missing.insert("{agent}", Uuid::now_v7().to_string());
        let mut resources = resources.clone();
        resources.insert("{agent}", itself.id.to_string());
        let ask = async |at: &BTreeMap<&'static str, String>| -> Result<(StatusCode, Value)> {
            let (status, problem) = call(caller, method, &filled(path, at)).await?;
            let problem = problem.map(|problem| Problem { request_id: String::new(), ..problem });
            Ok((status, serde_json::to_value(problem)?))
        };
        let (seen, absent) = (ask(&resources).await?, ask(&missing).await?);
        assert_eq!(seen, absent, "{}", route.name);
        // An invalid request is refused before the broker looks up the resource.
        assert!(matches!(seen.0.as_u16(), 404 | 422), "{}: {}", route.name, seen.0);
        compared += 1;
    }
    assert!(compared > 12, "{compared}");
    Ok(())
}

//! Every route of the table, called by all callers without permission.

use anyhow::{Context as _, Result};
use brokkr_api::protocol::header;
use brokkr_api::tokens::{Role, WhoAmI};
use brokkr_api::{AgentId, ErrorCode, Position, TokenId};
use brokkr_broker::access::Permission;
use brokkr_broker::router;
use reqwest::Method;
use serde_json::json;

use crate::harness::{Caller, Harness, Key, YAML, refused};

/// A caller without permission, and the expected error.
struct Wrong<'a> {
    who: &'a str,
    caller: Caller,
    code: ErrorCode,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_refuses_every_wrong_principal() -> Result<()> {
    let harness = Harness::open().await?;
    let (agent, other) =
        (harness.agent("shop-1", json!({})).await?, harness.agent("shop-2", json!({})).await?);
    harness.stack("web", json!({ "agents": ["shop-1"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let roles = [Role::Viewer, Role::Deployer, Role::Owner, Role::Admin];
    let mut tokens = Vec::new();
    for role in roles {
        tokens.push((role, harness.with_role(role).await?));
    }
    let session = harness.admin.sign_in().await?;
    let forged = Caller::new(harness.server.address, Some(Key::generate()?.sign(&agent.claims())?));
    let mut checked = 0;
    for route in router::table() {
        let (method, path) = route.name.split_once(' ').context("METHOD /path")?;
        let path = path
            .replace("{agent}", &agent.id.to_string())
            .replace("{stack}", "web")
            .replace("{project}", "default")
            .replace("{token}", &TokenId::generate().to_string())
            .replace("{sequence_id}", &object.sequence_id.to_string());
        if route.permission == Permission::Public {
            continue;
        }
        let mut wrong = vec![
            Wrong { who: "no credential", caller: harness.without_credential(), code: ErrorCode::BRK1001 },
            Wrong { who: "a forger", caller: forged.clone(), code: ErrorCode::BRK1001 },
        ];
        let (least, agent_code) = match route.permission {
            Permission::Public => continue,
            Permission::Token(least) => (Some(least), Some(ErrorCode::BRK1002)),
            Permission::Agent => (None, Some(ErrorCode::BRK2001)),
            Permission::AgentOr(least) | Permission::AnyAgentOr(least) => {
                (Some(least), Some(ErrorCode::BRK2001))
            }
        };
        if let Some(code) = agent_code {
            wrong.push(Wrong { who: "another agent", caller: other.caller(), code });
        }
        if matches!(route.permission, Permission::Token(_)) {
            wrong.push(Wrong { who: "the agent", caller: agent.caller(), code: ErrorCode::BRK1002 });
        }
        // Not even if its token is allowed to call the route.
        if route.permission == Permission::Agent || path.ends_with("/target-state") {
            wrong.push(Wrong { who: "a session", caller: session.clone(), code: ErrorCode::BRK1001 });
        }
        for (role, caller) in &tokens {
            if least.is_none_or(|least| !role.includes(least)) {
                wrong.push(Wrong { who: "a lower role", caller: caller.clone(), code: ErrorCode::BRK1002 });
            }
        }
        for Wrong { who, caller, code } in wrong {
            let request = caller.request(method.parse::<Method>()?, &path).body("{}");
            let response = caller.signed(request)?.send().await?;
            let got = refused(response).await.with_context(|| format!("{} by {who}", route.name))?;
            assert_eq!(got, code, "{} by {who}", route.name);
            checked += 1;
        }
    }
    assert!(checked > 80, "{checked} combinations");
    // Callers with permission are not refused.
    assert_eq!(harness.admin.get_json::<WhoAmI>("whoami").await?.role, Role::Admin);
    assert!(agent.caller().get(&agent.path("targets")).await?.status().is_success());
    Ok(())
}

/// An assertion, which an agent signs for its requests, is valid only for this installation, for a short
/// time, and for one agent.
#[tokio::test(flavor = "multi_thread")]
async fn assertions_are_for_this_installation_short_and_of_one_agent() -> Result<()> {
    let harness = Harness::open().await?;
    let (agent, other) =
        (harness.agent("shop-1", json!({})).await?, harness.agent("shop-2", json!({})).await?);
    let now = jiff::Timestamp::now().as_second();
    let bad = [
        ("another installation", json!({ "aud": other.id })),
        ("no installation", json!({ "aud": null })),
        ("expired", json!({ "iat": now - 400, "exp": now - 100 })),
        ("too long", json!({ "exp": now + 3600 })),
        ("from the future", json!({ "iat": now + 600, "exp": now + 700 })),
        ("from before all time", json!({ "iat": i64::MIN })),
        ("for ever", json!({ "iat": i64::MIN, "exp": i64::MAX })),
        ("of two", json!({ "iss": other.id })),
        ("of another", json!({ "iss": other.id, "sub": other.id })),
    ];
    for (what, change) in bad {
        let mut claims = agent.claims();
        for (key, value) in change.as_object().context("claims")? {
            claims[key] = value.clone();
        }
        let caller = Caller::new(harness.server.address, Some(agent.key.sign(&claims)?));
        let path = if what == "of another" { other.path("targets") } else { agent.path("targets") };
        assert_eq!(refused(caller.get(&path).await?).await?, ErrorCode::BRK1001, "{what}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invented_agent_and_position_are_not_authenticated() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let now = agent.poll().await?.position.context("an answer has a position")?.position;
    let made_up = AgentId::generate();
    let mut claims = agent.claims();
    (claims["iss"], claims["sub"]) = (json!(made_up), json!(made_up));
    let caller = Caller::new(harness.server.address, Some(Key::generate()?.sign(&claims)?));
    for future in
        [Position { horizon: now.horizon + 1_000_000, ..now }, Position { epoch: now.epoch + 1, horizon: 0 }]
    {
        let request = caller.request(Method::GET, &format!("agents/{made_up}/target-state"));
        let response = request.header(header::POSITION, future.to_string()).send().await?;
        assert_eq!(refused(response).await?, ErrorCode::BRK1001, "not reported as a restored database");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_key_is_refused_at_once_although_the_assertion_was_verified_before() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let caller = agent.caller();
    assert!(caller.get(&agent.path("targets")).await?.status().is_success());
    let mut connection = harness.database.connect().await?;
    sqlx::query("UPDATE agents SET public_key = sha256(public_key)").execute(&mut connection).await?;
    sqlx::query("INSERT INTO outbox (project, kind, key) VALUES ('default', 'agent', $1)")
        .bind(agent.id.0)
        .execute(&mut connection)
        .await?;
    brokkr_testkit::eventually(std::time::Duration::from_secs(5), "the key to be refused", async || {
        caller.get(&agent.path("targets")).await.is_ok_and(|response| response.status() == 401)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_token_is_refused_and_unknown_routes_are_problems() -> Result<()> {
    let harness = Harness::open().await?;
    let viewer = harness.with_role(Role::Viewer).await?;
    assert!(viewer.get("stacks").await?.status().is_success());
    let mut connection = harness.database.connect().await?;
    sqlx::query("UPDATE api_tokens SET expires_at = now() WHERE role = 'viewer'")
        .execute(&mut connection)
        .await?;
    // Tokens are cached for a few seconds.
    brokkr_testkit::eventually(std::time::Duration::from_secs(20), "the token to be refused", async || {
        viewer.get("stacks").await.is_ok_and(|response| response.status() == 401)
    })
    .await?;

    assert_eq!(refused(harness.without_credential().get("/nowhere").await?).await?, ErrorCode::BRK2001);
    let wrong_method = harness.admin.request(Method::PATCH, "stacks").send().await?;
    assert_eq!(wrong_method.status(), 405);
    assert_eq!(refused(wrong_method).await?, ErrorCode::BRK2003);
    let named =
        harness.admin.request(Method::GET, "stacks/none").header("x-request-id", "mine-1").send().await?;
    assert_eq!(named.headers()["x-request-id"], "mine-1");
    assert_eq!(refused(named).await?, ErrorCode::BRK2001);
    Ok(())
}

//! Requests with a cookie that another site has caused, and what is recorded of sign-ins.

use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::ErrorCode;
use brokkr_api::audit::{AuditEntry, AuditKind, RefusalReason};
use brokkr_api::page::Page;
use brokkr_api::protocol::header;
use brokkr_broker::access::Permission;
use brokkr_broker::router;
use brokkr_testkit::process::run;
use brokkr_testkit::{Launch, Port, Postgres, Process, Scratch, eventually};
use reqwest::Method;
use serde_json::json;

use super::sign_in;
use crate::harness::{Caller, Harness, refused, session_secret, with_cookie};

const PROGRAM: &str = env!("CARGO_BIN_EXE_brokkr-broker");
const SOON: Duration = Duration::from_secs(30);

/// Cross-site request forgery: each write with a cookie has to come from the console.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_with_a_cookie_needs_the_header_of_the_console_and_its_own_origin() -> Result<()> {
    let harness = Harness::open().await?;
    let session = session_secret(&sign_in(&harness.admin).await?)?;
    let anyone = harness.without_credential();
    let host = anyone.base.clone();
    let console = (header::CONSOLE, "1");
    let own = ("origin", host.as_str());
    let foreign = ("origin", "https://evil.example");
    let site = |site: &'static str| ("sec-fetch-site", site);
    for (headers, passes) in [
        (vec![console, site("same-origin")], true),
        (vec![console, site("same-origin"), own], true),
        (vec![console, own], true),
        (vec![], false),
        (vec![console], false),
        (vec![site("same-origin")], false),
        (vec![own], false),
        (vec![site("same-origin"), own], false),
        (vec![(header::CONSOLE, "0"), site("same-origin")], false),
        (vec![console, site("cross-site")], false),
        (vec![console, site("same-site")], false),
        (vec![console, site("none")], false),
        (vec![console, site("cross-site"), own], false),
        (vec![console, foreign], false),
        (vec![console, ("origin", "null")], false),
    ] {
        let mut request = anyone.request(Method::PUT, "stacks/web").json(&json!({}));
        for (name, value) in &headers {
            request = request.header(*name, *value);
        }
        let response = with_cookie(request, &session).send().await?;
        if passes {
            assert!(response.status().is_success(), "{headers:?}: {}", response.text().await?);
        } else {
            assert_eq!(refused(response).await?, ErrorCode::BRK1013, "{headers:?}");
        }
    }
    // Reads change nothing, and other sites cannot read the response.
    let read = with_cookie(anyone.request(Method::GET, "whoami"), &session).send().await?;
    assert!(read.status().is_success());
    assert!(read.headers().keys().all(|name| !name.as_str().starts_with("access-control-")));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_write_of_the_api_accepts_a_bare_cookie() -> Result<()> {
    let harness = Harness::open().await?;
    let session = session_secret(&sign_in(&harness.admin).await?)?;
    let anyone = harness.without_credential();
    let mut checked = 0;
    for route in router::table() {
        let (method, path) = route.name.split_once(' ').context("METHOD /path")?;
        if method == "GET" || route.permission == Permission::Public {
            continue;
        }
        let request = anyone.request(method.parse()?, path).body("{}");
        let expected = match route.permission {
            Permission::Agent => ErrorCode::BRK1001,
            _ => ErrorCode::BRK1013,
        };
        let response = with_cookie(request, &session).send().await?;
        assert_eq!(refused(response).await?, expected, "{}", route.name);
        checked += 1;
    }
    assert!(checked > 40, "{checked}");
    // A browser asks first whether another origin may send the header. No response says so.
    let asked = anyone
        .request(Method::OPTIONS, "sessions")
        .header("origin", "https://evil.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "brokkr-console,authorization");
    let answer = asked.send().await?;
    assert!(!answer.status().is_success());
    assert!(answer.headers().keys().all(|name| !name.as_str().starts_with("access-control-")));
    Ok(())
}

/// Signing somebody in with the token of the attacker is a forged request, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_needs_the_header_of_the_console() -> Result<()> {
    let harness = Harness::open().await?;
    let response = harness.admin.request(Method::POST, "sessions").send().await?;
    assert!(response.headers().get("set-cookie").is_none());
    assert_eq!(refused(response).await?, ErrorCode::BRK1013);
    let mut connection = harness.database.connect().await?;
    let open: i64 = sqlx::query_scalar("SELECT count(*) FROM sessions").fetch_one(&mut connection).await?;
    assert_eq!(open, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_sign_out_and_forged_requests_are_audited_without_the_secret() -> Result<()> {
    let harness = Harness::open().await?;
    let session = session_secret(&sign_in(&harness.admin).await?)?;
    let forged = harness.without_credential().request(Method::DELETE, "stacks/web");
    let forged = with_cookie(forged, &session).send().await?;
    assert_eq!(refused(forged).await?, ErrorCode::BRK1013);
    let console = harness.admin.with_token(session);
    assert_eq!(console.request(Method::DELETE, "sessions/current").send().await?.status(), 204);

    let entries = async |query: &str| -> Result<Vec<AuditEntry>> {
        Ok(harness.admin.get_json::<Page<AuditEntry>>(&format!("audit?{query}")).await?.items)
    };
    let changes = entries("kind=change").await?;
    let routes: Vec<(&str, u16)> = changes.iter().map(|entry| (entry.route.as_str(), entry.status)).collect();
    assert_eq!(routes, [("/api/v1/sessions/{session}", 204), ("/api/v1/sessions", 201)], "newest first");
    assert!(changes.iter().all(|entry| entry.name == "test" && entry.principal == changes[0].principal));
    // Refused attempts are written once in a while.
    eventually(Duration::from_secs(90), "the refusal to be recorded", async || {
        let refused = entries("kind=refused").await.unwrap_or_default();
        refused
            .iter()
            .any(|entry| entry.refusal == Some(RefusalReason::CrossSite) && entry.kind == AuditKind::Refused)
    })
    .await?;
    let mut connection = harness.database.connect().await?;
    let rows: Vec<String> =
        sqlx::query_scalar("SELECT to_jsonb(a)::text FROM audit a").fetch_all(&mut connection).await?;
    assert!(rows.len() >= 3 && rows.iter().all(|row| !row.contains("brs_")), "{rows:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_the_token_nor_the_session_is_logged() -> Result<()> {
    // Without the engines of a whole run, it ends when this is dropped.
    let postgres = Postgres::shared().await?;
    let database = postgres.database().await?;
    let url = database.url();
    let broker = |arguments: &[&str]| {
        Launch::new("brokkr-broker", PROGRAM).args(arguments).args(["--database-url", &url])
    };
    run(broker(&["migrate"]), SOON).await?.ok()?;
    let token = run(broker(&["bootstrap"]), SOON).await?.ok()?.stdout.trim().to_owned();
    let (port, scratch) = (Port::free()?, Scratch::new("sessions")?);
    let launch = broker(&["serve", "--listen", &port.address()]).env("BROKKR_LOG", "debug");
    let process = Process::start(launch, scratch.path())?;
    let admin = Caller::new(port.address().parse()?, Some(token.clone()));
    let ready = async || admin.get("/readyz").await.is_ok_and(|response| response.status().is_success());
    process.ready_when(SOON, ready).await?;

    let session = session_secret(&sign_in(&admin).await?.error_for_status()?)?;
    let console = admin.with_token(session.clone());
    assert!(console.get("whoami").await?.status().is_success());
    assert_eq!(
        refused(with_cookie(console.request(Method::GET, "whoami"), &session).send().await?).await?,
        ErrorCode::BRK1001
    );
    assert_eq!(console.request(Method::DELETE, "sessions/current").send().await?.status(), 204);
    assert_eq!(refused(console.get("whoami").await?).await?, ErrorCode::BRK1001);
    process.stop().await?;
    let log = process.log();
    assert!(log.contains("session opened") && log.contains("session closed"), "{log}");
    assert!(!log.contains(&session[4..]) && !log.contains(&token[4..]), "a secret is in the log");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_and_changes_of_admins_need_a_recent_sign_in() -> Result<()> {
    let harness = Harness::open().await?;
    let session = session_secret(&sign_in(&harness.admin).await?)?;
    let mut connection = harness.database.connect().await?;
    let age = async |minutes: i32, connection: &mut sqlx::PgConnection| {
        let statement = "UPDATE sessions SET created_at = now() - make_interval(mins => $1)";
        sqlx::query(statement).bind(minutes).execute(connection).await
    };
    age(16, &mut connection).await?;
    let console = harness.admin.with_token(session);
    let token = json!({ "name": "later", "role": "viewer", "ttl_seconds": 3600 });
    for (method, path, body) in [
        (Method::POST, "api-tokens", token.clone()),
        (Method::POST, "join-tokens", json!({ "name": "shop-1" })),
        (Method::PUT, "projects/other", json!({})),
    ] {
        let refusal = console.request(method, path).json(&body).send().await?;
        assert_eq!(refused(refusal).await?, ErrorCode::BRK1014, "{path}");
    }
    let stack = console.request(Method::PUT, "stacks/web").body("{}").send().await?;
    assert!(stack.status().is_success(), "{stack:?}");
    console.get_json::<serde_json::Value>("api-tokens").await?;
    let with_token = harness.admin.request(Method::POST, "api-tokens").json(&token).send().await?;
    assert_eq!(with_token.status(), 201, "a token needs no sign-in");

    let session = session_secret(&sign_in(&harness.admin).await?)?;
    age(14, &mut connection).await?;
    let console = harness.admin.with_token(session);
    let token = json!({ "name": "another", "role": "viewer", "ttl_seconds": 3600 });
    let created = console.request(Method::POST, "api-tokens").json(&token).send().await?;
    assert_eq!(created.status(), 201);
    Ok(())
}

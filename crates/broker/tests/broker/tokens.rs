//! API tokens and join tokens: created, shown once, revoked.

use std::time::Duration;

use anyhow::Result;
use brokkr_api::ErrorCode;
use brokkr_api::audit::AuditEntry;
use brokkr_api::page::Page;
use brokkr_api::protocol::header;
use brokkr_api::tokens::{ApiToken, JoinTokenInfo, NewApiToken, Role, RotatedApiToken, WhoAmI};
use brokkr_testkit::eventually;
use reqwest::Method;
use serde_json::json;

use crate::harness::{Caller, Harness, Key, read, refused, register};

async fn make(caller: &Caller, role: Role) -> Result<NewApiToken> {
    read(caller.send(Method::POST, "api-tokens", &json!({ "name": "ci", "role": role })).await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_shown_once_expires_and_is_refused_when_revoked() -> Result<()> {
    let harness = Harness::open().await?;
    let second = harness.replica().await?;
    let owner = harness.project("shop", Role::Owner).await?;
    let made = make(&owner, Role::Deployer).await?;
    assert_eq!((made.info.project.as_str(), made.info.created_by.as_deref()), ("shop", Some("test")));
    let days = made.info.expires_at.map(|at| at.duration_since(made.info.created_at).as_hours() / 24);
    assert!(days.is_some_and(|days| (89..=90).contains(&days)), "{days:?}");

    let here = Caller::new(harness.server.address, Some(made.token.clone()));
    let there = Caller::new(second.address, Some(made.token.clone()));
    for caller in [&here, &there] {
        assert_eq!(caller.get_json::<WhoAmI>("whoami").await?.token_id, made.info.id);
    }
    let shown = owner.get("api-tokens").await?.text().await?;
    assert!(shown.contains(&made.info.id.to_string()) && !shown.contains(&made.token));

    let path = format!("api-tokens/{}", made.info.id);
    assert_eq!(owner.request(Method::DELETE, &path).send().await?.status(), 204);
    assert_eq!(refused(here.get("whoami").await?).await?, ErrorCode::BRK1001, "at once, here");
    eventually(Duration::from_secs(20), "the other replica to refuse", async || {
        there.get("whoami").await.is_ok_and(|response| response.status() == 401)
    })
    .await?;
    assert!(owner.get_json::<ApiToken>(&path).await?.revoked_at.is_some());
    second.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_created_again_with_its_idempotency_key_is_the_same_and_stored_encrypted() -> Result<()> {
    let harness = Harness::open().await?;
    let wanted = json!({ "name": "ci", "role": "viewer" });
    let ask = || {
        let request = harness.admin.request(Method::POST, "api-tokens").json(&wanted);
        request.header(header::IDEMPOTENCY_KEY, "once").send()
    };
    let (first, again): (NewApiToken, NewApiToken) = (read(ask().await?).await?, read(ask().await?).await?);
    assert_eq!(first, again);
    let mut connection = harness.database.connect().await?;
    let bodies: Vec<Vec<u8>> = sqlx::query_scalar("SELECT body FROM idempotency_keys WHERE body IS NOT NULL")
        .fetch_all(&mut connection)
        .await?;
    assert!(!bodies.is_empty());
    assert!(bodies.iter().all(|body| !body.windows(4).any(|part| part == b"brk_")), "not in the clear");
    Ok(())
}

async fn rotate(caller: &Caller, token: &ApiToken, wanted: &serde_json::Value) -> Result<RotatedApiToken> {
    read(caller.send(Method::POST, &format!("api-tokens/{}/rotate", token.id), wanted).await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_token_gets_an_equal_replacement_and_is_valid_only_for_the_overlap() -> Result<()> {
    let harness = Harness::open().await?;
    let owner = harness.project("shop", Role::Owner).await?;
    let wanted = json!({ "name": "ci", "role": "deployer", "ttl_seconds": 3600 });
    let first: NewApiToken = read(owner.send(Method::POST, "api-tokens", &wanted).await?).await?;
    let old = Caller::new(harness.server.address, Some(first.token.clone()));
    assert!(old.get("whoami").await?.status().is_success(), "it is cached with its expiry");

    // The token expires in an hour: an overlap of a day does not extend it.
    let made = rotate(&owner, &first.info, &json!({})).await?;
    let new = Caller::new(harness.server.address, Some(made.token.clone()));
    assert_eq!(new.get_json::<WhoAmI>("whoami").await?.token_id, made.info.id);
    let properties = |token: &ApiToken| (token.name.clone(), token.role, token.project.clone());
    assert_eq!(properties(&made.info), properties(&first.info));
    let lifetime = |token: &ApiToken| token.expires_at.map(|end| end.duration_since(token.created_at));
    assert_eq!(lifetime(&made.info), lifetime(&first.info));
    assert_eq!(made.replaces, first.info, "never longer than before");

    let made = rotate(&owner, &first.info, &json!({ "overlap_seconds": 600, "ttl_seconds": 60 })).await?;
    let left =
        |token: &ApiToken| token.expires_at.map(|end| end.duration_since(made.info.created_at).as_secs());
    assert_eq!((left(&made.replaces), left(&made.info)), (Some(600), Some(60)));
    let path = format!("api-tokens/{}", first.info.id);
    assert_eq!(owner.get_json::<ApiToken>(&path).await?, made.replaces);
    assert!(old.get("whoami").await?.status().is_success(), "until the overlap is over");

    rotate(&owner, &first.info, &json!({ "overlap_seconds": 0 })).await?;
    assert_eq!(refused(old.get("whoami").await?).await?, ErrorCode::BRK1001, "the cached token is removed");
    let again = owner.send(Method::POST, &format!("{path}/rotate"), &json!({})).await?;
    assert_eq!(refused(again).await?, ErrorCode::BRK2001, "an expired token cannot be rotated");

    let written = owner.get_json::<Page<AuditEntry>>("audit?kind=change").await?.items;
    let route = "/api/v1/api-tokens/{token}/rotate";
    let entry = written.iter().find(|entry| entry.route == route).expect("it is in the audit log");
    assert!(entry.before.is_some() && entry.after.is_some() && entry.before != entry.after);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_rotated_again_with_its_idempotency_key_is_the_same() -> Result<()> {
    let harness = Harness::open().await?;
    let first = make(&harness.admin, Role::Viewer).await?;
    let path = format!("api-tokens/{}/rotate", first.info.id);
    let ask = || harness.admin.request(Method::POST, &path).header(header::IDEMPOTENCY_KEY, "once").send();
    let made: RotatedApiToken = read(ask().await?).await?;
    assert_eq!(read::<RotatedApiToken>(ask().await?).await?, made);
    let named = harness.admin.get_json::<Page<ApiToken>>("api-tokens").await?.items;
    assert_eq!(named.iter().filter(|token| token.name == "ci").count(), 2, "only one was created");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_callers_that_may_grant_a_role_rotate_its_tokens() -> Result<()> {
    let harness = Harness::open().await?;
    let path = |token: &NewApiToken| format!("api-tokens/{}/rotate", token.info.id);
    let viewers = make(&harness.admin, Role::Viewer).await?;
    let (admins, auditors) =
        (make(&harness.admin, Role::Admin).await?, make(&harness.admin, Role::Auditor).await?);
    for (role, code) in [
        (Role::Viewer, ErrorCode::BRK1002),
        (Role::Deployer, ErrorCode::BRK1002),
        (Role::Auditor, ErrorCode::BRK1002),
    ] {
        let asked = harness.with_role(role).await?.send(Method::POST, &path(&viewers), &json!({})).await?;
        assert_eq!(refused(asked).await?, code, "{role}");
    }
    let owner = harness.with_role(Role::Owner).await?;
    for above in [&admins, &auditors] {
        let asked = owner.send(Method::POST, &path(above), &json!({})).await?;
        assert_eq!(refused(asked).await?, ErrorCode::BRK2001, "invisible to an owner");
        assert_eq!(rotate(&harness.admin, &above.info, &json!({})).await?.info.role, above.info.role);
    }
    let stranger = harness.project("elsewhere", Role::Owner).await?;
    let asked = stranger.send(Method::POST, &path(&viewers), &json!({})).await?;
    assert_eq!(refused(asked).await?, ErrorCode::BRK2001);
    rotate(&owner, &viewers.info, &json!({})).await?;
    for wanted in [json!({ "overlap_seconds": 8 * 24 * 3600 }), json!({ "ttl_seconds": 400 * 24 * 3600 })] {
        let asked = owner.send(Method::POST, &path(&viewers), &wanted).await?;
        assert_eq!(refused(asked).await?, ErrorCode::BRK2003);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_cannot_create_or_see_tokens_with_higher_roles() -> Result<()> {
    let harness = Harness::open().await?;
    let owner = harness.with_role(Role::Owner).await?;
    for role in [Role::Viewer, Role::Deployer, Role::Owner] {
        make(&owner, role).await?;
    }
    for role in [Role::Admin, Role::Auditor] {
        let asked = owner.send(Method::POST, "api-tokens", &json!({ "name": "ci", "role": role })).await?;
        assert_eq!(refused(asked).await?, ErrorCode::BRK1002);
        make(&harness.admin, role).await?;
    }
    let seen = owner.get_json::<Page<ApiToken>>("api-tokens").await?.items;
    assert!(!seen.is_empty() && seen.iter().all(|token| !token.role.is_over_installation()));
    let admin: WhoAmI = harness.admin.get_json("whoami").await?;
    let path = format!("api-tokens/{}", admin.token_id);
    assert_eq!(refused(owner.get(&path).await?).await?, ErrorCode::BRK2001);
    let revoked = owner.request(Method::DELETE, &path).send().await?;
    assert_eq!(refused(revoked).await?, ErrorCode::BRK2001);
    assert!(harness.admin.get("whoami").await?.status().is_success());

    let auditor = harness.with_role(Role::Auditor).await?;
    assert!(auditor.get_json::<ApiToken>(&path).await.is_ok(), "an auditor reads everything");
    let changed = auditor.request(Method::DELETE, &path).send().await?;
    assert_eq!(refused(changed).await?, ErrorCode::BRK1002, "and changes nothing");

    for seconds in [0, 400 * 24 * 3600] {
        let wanted = json!({ "name": "ci", "role": "viewer", "ttl_seconds": seconds });
        let asked = harness.admin.send(Method::POST, "api-tokens", &wanted).await?;
        assert_eq!(refused(asked).await?, ErrorCode::BRK2003);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_join_token_is_refused() -> Result<()> {
    let harness = Harness::open().await?;
    let token = harness.join_token("shop-1", json!({ "env": "dev" })).await?;
    let listed = harness.admin.get_json::<Page<JoinTokenInfo>>("join-tokens").await?.items;
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].id, listed[0].agent_name.as_str()), (token.id, "shop-1"));
    assert_eq!(listed[0].labels["env"], "dev");
    let path = format!("join-tokens/{}", token.id);
    assert_eq!(harness.admin.request(Method::DELETE, &path).send().await?.status(), 204);
    let joined = register(&harness.without_credential(), &token.token, &Key::generate()?).await?;
    assert_eq!(refused(joined).await?, ErrorCode::BRK1003);
    Ok(())
}

//! The versions of a stack: compared, rolled back, barred, and shown without secrets.

use anyhow::Result;
use brokkr_api::ErrorCode;
use brokkr_api::objects::{BarredContent, DeploymentObject, Diff};
use brokkr_api::page::Page;
use brokkr_api::tokens::Role;
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::harness::{Harness, read, refused};

fn map(value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\n  namespace: default\ndata:\n  key: {value:?}\n"
    )
}

const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n  namespace: default\nstringData:\n  password: hunter2\n";

async fn roll_back(harness: &Harness, body: serde_json::Value) -> Result<reqwest::Response> {
    harness.admin.send(Method::POST, "stacks/web/roll-back", &body).await
}

async fn submit_again(harness: &Harness, yaml: String) -> Result<reqwest::Response> {
    Ok(harness.admin.request(Method::POST, "stacks/web/deployment-objects").body(yaml).send().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a8_a_rolled_back_content_is_refused_with_the_name_of_the_user_until_the_bar_is_lifted() -> Result<()>
{
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    assert_eq!(refused(roll_back(&harness, json!({})).await?).await?, ErrorCode::BRK2013);
    let first = harness.submit("web", &map("1")).await?;
    let second = harness.submit("web", &map("2")).await?;
    let back: DeploymentObject = read(roll_back(&harness, json!({ "reason": "it crashed" })).await?).await?;
    assert_eq!(back.checksum, first.checksum);
    assert!(back.sequence_id > second.sequence_id, "a roll-back is a new version");

    let response = submit_again(&harness, map("2")).await?;
    let problem: brokkr_api::Problem = serde_json::from_slice(&response.bytes().await?)?;
    assert_eq!(problem.code, ErrorCode::BRK2011);
    assert!(
        problem.detail.contains("by test") && problem.detail.contains("it crashed"),
        "{}",
        problem.detail
    );
    // A changed byte makes another content, and other stacks are not affected.
    harness.submit("web", &format!("# fixed\n{}", map("2"))).await?;
    harness.stack("other", json!({})).await?;
    harness.submit("other", &map("2")).await?;

    let barred: Page<BarredContent> = harness.admin.get_json("stacks/web/barred-contents").await?;
    assert_eq!(barred.items.len(), 1);
    assert_eq!(
        (barred.items[0].checksum, barred.items[0].sequence_id),
        (second.checksum, second.sequence_id)
    );
    let path = format!("stacks/web/barred-contents/{}", second.checksum);
    let lifted = harness.admin.request(Method::DELETE, &path).send().await?;
    assert_eq!(lifted.status(), StatusCode::NO_CONTENT);
    assert_eq!(submit_again(&harness, map("2")).await?.status(), StatusCode::CREATED);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_can_name_its_version_and_leave_the_replaced_content_open() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    let first = harness.submit("web", &map("1")).await?;
    harness.submit("web", &map("2")).await?;
    let third = harness.submit("web", &map("3")).await?;
    let wanted = json!({ "to": first.sequence_id, "keep_open": true });
    let back: DeploymentObject = read(roll_back(&harness, wanted).await?).await?;
    assert_eq!(back.checksum, first.checksum);
    assert_eq!(submit_again(&harness, map("3")).await?.status(), StatusCode::CREATED);
    let same = json!({ "to": third.sequence_id });
    assert_eq!(refused(roll_back(&harness, same).await?).await?, ErrorCode::BRK2013);
    harness.stack("other", json!({})).await?;
    let foreign = harness.submit("other", &map("4")).await?;
    let wanted = json!({ "to": foreign.sequence_id });
    assert_eq!(refused(roll_back(&harness, wanted).await?).await?, ErrorCode::BRK2001);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_versions_are_compared_without_values_of_secrets() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    let first = harness.submit("web", &format!("{}---\n{SECRET}", map("1"))).await?;
    let second =
        harness.submit("web", &format!("{}---\n{}", map("2"), SECRET.replace("hunter2", "hunter3"))).await?;
    let path = format!("stacks/web/diff?from={}&to={}", first.sequence_id, second.sequence_id);
    let text = harness.admin.get(&path).await?.text().await?;
    assert!(!text.contains("hunter") && !text.contains("aHVudGVy"), "{text}");
    let diff: Diff = serde_json::from_str(&text)?;
    assert_eq!((diff.added, diff.removed, diff.changed, diff.unchanged), (0, 0, 2, 0));
    let fields: Vec<_> = diff.resources.iter().flat_map(|one| &one.fields).map(|one| &one.path).collect();
    assert_eq!(fields, ["data.key", "data.password"]);
    let marker = harness.delete("web").await?;
    let path = format!("stacks/web/diff?from={}&to={}", second.sequence_id, marker.sequence_id);
    let diff: Diff = harness.admin.get_json(&path).await?;
    assert_eq!((diff.removed, diff.unchanged), (2, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_may_not_submit_see_no_secret_values() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    let object = harness.submit("web", SECRET).await?;
    let path = format!("deployment-objects/{}", object.sequence_id);
    let viewer = harness.with_role(Role::Viewer).await?;
    let shown = viewer.get(&path).await?.text().await?;
    assert!(
        shown.contains("password") && !shown.contains("hunter2") && !shown.contains("aHVudGVyMg"),
        "{shown}"
    );
    let deployer = harness.with_role(Role::Deployer).await?;
    assert_eq!(deployer.get(&path).await?.text().await?, SECRET);
    // Without Secrets, the content is returned byte for byte.
    let plain = harness.submit("web", &map("1")).await?;
    assert_eq!(
        viewer.get(&format!("deployment-objects/{}", plain.sequence_id)).await?.text().await?,
        map("1")
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_based_on_an_older_state_is_refused() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    let tag = |response: reqwest::Response| response.headers()["etag"].to_str().map(str::to_owned);
    let seen = tag(harness.admin.get("stacks/web").await?)?;
    let put = |tag: String| {
        let body = json!({ "labels": { "team": "shop" } });
        harness.admin.request(Method::PUT, "stacks/web").header("if-match", tag).json(&body).send()
    };
    assert_eq!(put(seen.clone()).await?.status(), StatusCode::OK);
    let response = put(seen.clone()).await?;
    assert_eq!(response.status(), StatusCode::PRECONDITION_FAILED);
    assert_eq!(refused(response).await?, ErrorCode::BRK2012);
    let submit = |tag: &str| {
        let request = harness.admin.request(Method::POST, "stacks/web/deployment-objects");
        request.header("if-match", tag).body(map("1")).send()
    };
    assert_eq!(submit(&seen).await?.status(), StatusCode::PRECONDITION_FAILED);
    let now = tag(harness.admin.get("stacks/web").await?)?;
    assert_eq!(submit(&now).await?.status(), StatusCode::CREATED);
    let late = harness.admin.request(Method::DELETE, "stacks/web").header("if-match", now).send().await?;
    assert_eq!(late.status(), StatusCode::PRECONDITION_FAILED, "a submission is a change, too");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_and_a_commit_are_recorded_with_a_version() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    let submit = |yaml: String, message: &'static str, commit: &'static str| {
        let request = harness.admin.request(Method::POST, "stacks/web/deployment-objects");
        let request = request.header("brokkr-message", message).header("brokkr-commit", commit);
        request.header("idempotency-key", "one").body(yaml).send()
    };
    harness.submit("web", &map("1")).await?;
    let second: DeploymentObject =
        read(submit(map("2"), "f%C3%BCr%20den%20Shop", "ABCDEF0123").await?).await?;
    assert_eq!(second.message.as_deref(), Some("für den Shop"));
    assert_eq!(second.commit.as_deref(), Some("abcdef0123"));
    let other = submit(map("2"), "another", "abcdef0123").await?;
    assert_eq!(refused(other).await?, ErrorCode::BRK2005, "the message belongs to the request");

    let back: DeploymentObject = read(roll_back(&harness, json!({ "reason": "it crashed" })).await?).await?;
    assert_eq!((back.message.as_deref(), back.commit), (Some("it crashed"), None));
    let history: Page<DeploymentObject> = harness.admin.get_json("stacks/web/deployment-objects").await?;
    assert_eq!(history.items[1], second);
    assert_eq!(history.items[2].message, None);

    for (name, value) in [("brokkr-message", "x".repeat(1025)), ("brokkr-commit", "not hex".to_owned())] {
        let request = harness.admin.request(Method::POST, "stacks/web/deployment-objects");
        let response = request.header(name, value).body(map("3")).send().await?;
        assert_eq!(refused(response).await?, ErrorCode::BRK2003, "{name}");
    }
    Ok(())
}

//! Health rules (F6) and the drift policy (F2): which agents get them.

use anyhow::{Context as _, Result};
use brokkr_api::health_rules::HealthRules;
use brokkr_api::ids::Checksum;
use brokkr_api::stacks::{DriftPolicy, Stack};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Agent, Harness, YAML, read};

fn rules(kind: &str) -> Value {
    json!({ "rules": [{ "groups": ["shop.example.com"], "kinds": [kind],
        "failed": [{ "field": "status.phase", "equals": "Broken", "message": "status.message" }],
        "ready": [{ "condition": "Ready" }] }] })
}

async fn put(harness: &Harness, path: &str, rules: &Value) -> Result<HealthRules> {
    read(harness.admin.send(Method::PUT, path, rules).await?).await
}

/// Returns the checksums of the rules of the installation and of the stack.
async fn named(agent: &Agent) -> Result<(Option<Checksum>, Option<Checksum>)> {
    let envelope = agent.poll().await?.envelope()?;
    let stack = envelope.stacks.first().and_then(|stack| stack.health_rules);
    Ok((envelope.health_rules, stack))
}

async fn fetched(agent: &Agent, checksum: Checksum) -> Result<reqwest::Response> {
    agent.caller().get(&agent.path(&format!("health-rules/{checksum}"))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn f6_rules_reach_the_agents_of_their_stack_and_only_those() -> Result<()> {
    let harness = Harness::open().await?;
    let one = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    let two = harness.agent("lab-1", json!({ "env": "lab" })).await?;
    for (stack, selector) in [("web", "env=prod"), ("probe", "env=lab")] {
        harness.stack(stack, json!({ "selectors": [selector] })).await?;
        harness.submit(stack, YAML).await?;
    }
    let (before, other) = (one.poll().await?.etag, two.poll().await?.etag);
    let stored = put(&harness, "stacks/web/health-rules", &rules("Widget")).await?;
    let (of_installation, of_stack) = named(&one).await?;
    let checksum = of_stack.context("the rules of the stack")?;
    assert_eq!(of_installation, None);
    assert_eq!(two.poll().await?.etag, other, "the envelope of another agent stays the same, byte by byte");

    let body = fetched(&one, checksum).await?.error_for_status()?.bytes().await?;
    assert_eq!(Checksum::of(&body), checksum);
    assert_eq!(body, stored.to_json());
    assert_eq!(fetched(&two, checksum).await?.status(), StatusCode::NOT_FOUND, "it has no stack with them");

    put(&harness, "health-rules", &rules("Gadget")).await?;
    let (of_installation, same) = named(&one).await?;
    assert_eq!(same, Some(checksum));
    assert_eq!(named(&two).await?, (of_installation, None));
    let all = of_installation.context("the rules of the installation")?;
    assert_eq!(fetched(&two, all).await?.status(), StatusCode::OK);

    put(&harness, "health-rules", &json!({ "rules": [] })).await?;
    put(&harness, "stacks/web/health-rules", &json!({ "rules": [] })).await?;
    assert_eq!(
        (one.poll().await?.etag, two.poll().await?.etag),
        (before, other),
        "as if there had been none"
    );
    let left: HealthRules = harness.admin.get_json("stacks/web/health-rules").await?;
    assert_eq!(left, HealthRules::default());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn f6_wrong_rules_are_refused_when_they_are_written() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    let rule = |change: Value| {
        let mut rule = rules("Widget")["rules"][0].clone();
        rule.as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
        json!({ "rules": [rule] })
    };
    for wrong in [
        rule(json!({ "groups": ["apps"] })),
        rule(json!({ "ready": [] })),
        rule(json!({ "kinds": [] })),
        rule(json!({ "ready": [{ "field": "status.phase" }] })),
        rule(json!({ "ready": [{ "field": "data.phase", "exists": true }] })),
        json!({ "rules": vec![rules("Widget")["rules"][0].clone(); 101] }),
    ] {
        for path in ["health-rules", "stacks/web/health-rules"] {
            let refused = harness.admin.send(Method::PUT, path, &wrong).await?;
            assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY, "{wrong}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn f2_that_drift_is_only_reported_reaches_the_agents_of_the_stack() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    harness.stack("web", json!({ "selectors": ["env=prod"] })).await?;
    harness.submit("web", YAML).await?;
    let before = agent.poll().await?.etag;
    for (drift, expected) in [("report", DriftPolicy::Report), ("repair", DriftPolicy::Repair)] {
        let changed = harness.admin.send(Method::PUT, "stacks/web", &json!({ "drift": drift })).await?;
        assert_eq!(read::<Stack>(changed).await?.drift, expected);
        assert_eq!(agent.poll().await?.envelope()?.stacks[0].drift, expected);
    }
    assert_eq!(agent.poll().await?.etag, before);
    let kept = harness.admin.send(Method::PUT, "stacks/web", &json!({ "labels": {} })).await?;
    assert_eq!(read::<Stack>(kept).await?.drift, DriftPolicy::Repair, "it stays as it was");
    Ok(())
}

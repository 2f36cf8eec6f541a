//! What an administrator asks before an upgrade and hands to whoever helps, on a real broker with real trouble.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use brokkr_testkit::process::run;
use brokkr_testkit::programs::program;
use brokkr_testkit::{Cluster, Fleet, Launch, Look, eventually, unique};
use serde_json::Value;

use crate::world::{PATIENCE, configmap, namespace};

/// Messages to webhooks go to an address where nobody listens.
const WEBHOOKS: &[&str] = &[
    "--secret-key=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
    "--webhook-networks=127.0.0.0/8",
    "--webhook-http",
    "--webhook-any-port",
];

/// Verdict and reason by check, and what it exits with.
async fn preflight(fleet: &Fleet, more: &[&str]) -> Result<(i32, BTreeMap<String, (String, String)>)> {
    let arguments = ["admin", "preflight", "-o", "json"].iter().chain(more);
    let output = fleet.brokkr(arguments).await?;
    let document: Value = output.json()?;
    let text = |check: &Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
    let items = document["items"].as_array().context("checks")?;
    let checks =
        items.iter().map(|check| (text(check, "check"), (text(check, "verdict"), text(check, "reason"))));
    Ok((output.code, checks.collect()))
}

#[tokio::test]
async fn a_preflight_sees_what_is_in_the_way_of_an_upgrade() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let fleet = Fleet::start_with(WEBHOOKS).await?;
    let shop = fleet.join("shop-1", &[("env", "prod")], &cluster).await?;
    let space = unique("space");
    let manifest = namespace(&space) + &configmap(&space, "one", "1");
    fleet.apply("web", "env=prod", &manifest).await?;
    let (code, well) = preflight(&fleet, &[]).await?;
    assert_eq!(code, 0, "{well:?}");
    let not_ok: Vec<_> = well.iter().filter(|(_, (verdict, _))| verdict != "ok").collect();
    assert!(not_ok.is_empty(), "{not_ok:?}");

    // A token that expires, a stack that goes while its agent is away, a message that nobody takes.
    fleet.brokkr(["token", "create", "ci", "--role", "viewer", "--ttl", "2d"]).await?.ok()?;
    let url = ["--url", "http://127.0.0.1:9/hook"];
    fleet.brokkr(["webhook", "create", "ops"].iter().chain(&url)).await?.ok()?;
    shop.kill9();
    fleet.brokkr(["delete", "stack", "web", "--yes"]).await?.ok()?;
    eventually(PATIENCE, "a message that waits", async || {
        match fleet.get("/api/v1/webhooks/ops/deliveries").await {
            Ok(page) if page["items"].as_array().is_some_and(|items| !items.is_empty()) => Look::Yes(()),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    fleet.brokkr(["webhook", "disable", "ops"]).await?.ok()?;
    eventually(PATIENCE, "a dead letter", async || {
        match fleet.get("/api/v1/webhooks/ops/deliveries?state=dead").await {
            Ok(page) if page["items"].as_array().is_some_and(|items| !items.is_empty()) => Look::Yes(()),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    let (code, troubled) = preflight(&fleet, &[]).await?;
    for (check, reason) in [
        ("tokens", "expires: ci in"),
        ("deletions", "agents still hold web since"),
        ("webhooks", "ops has 1 dead"),
    ] {
        let (verdict, told) = &troubled[check];
        assert!(verdict == "look" && told.contains(reason), "{check}: {verdict}: {told}");
    }
    assert_eq!(code, 0, "nothing of that is bad: {troubled:?}");

    // Whoever may not ask is told so, and not that all is well.
    let viewer = fleet.brokkr(["token", "create", "eye", "--role", "viewer"]).await?.ok()?.stdout;
    let file = fleet.cli.file("viewer", &viewer)?.display().to_string();
    let (code, seen) = preflight(&fleet, &["--token-file", &file]).await?;
    for check in ["version", "hold", "restore", "tokens", "audit"] {
        let (verdict, told) = &seen[check];
        assert!(verdict == "look" && told.starts_with("you may not ask"), "{check}: {verdict}: {told}");
    }
    assert_eq!((code, seen["broker"].0.as_str()), (0, "ok"));

    let hold = ["epoch", "hold", "--because", "rehearsal", "--database-url"];
    let launch =
        Launch::new("brokkr-broker", program("brokkr-broker")?).args(hold).arg(fleet.database().url());
    run(launch, PATIENCE).await?.ok()?;
    let (code, held) = preflight(&fleet, &[]).await?;
    assert_eq!((code, held["hold"].0.as_str()), (1, "bad"), "{held:?}");
    assert!(held["hold"].1.contains("rehearsal"), "{held:?}");
    Ok(())
}

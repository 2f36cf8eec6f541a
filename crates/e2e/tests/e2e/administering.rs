//! The preflight before an upgrade and the support bundle, on a real broker with real problems.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use brokkr_testkit::process::run;
use brokkr_testkit::programs::program;
use brokkr_testkit::{Attempt, Cluster, Fleet, Launch, Port, Scratch, eventually, unique};
use serde_json::Value;

use brokkr_testkit::world::{WAIT_TIMEOUT, config_map_yaml, namespace_yaml};

/// Arguments of the broker that allow a webhook at an address where nothing listens.
const WEBHOOKS: &[&str] = &[
    "--secret-key=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
    "--webhook-networks=127.0.0.0/8",
    "--webhook-http",
    "--webhook-any-port",
];

/// Verdict and reason by check.
type Checks = BTreeMap<String, (String, String)>;

/// Returns the findings and the exit code.
async fn preflight(fleet: &Fleet, more: &[&str]) -> Result<(i32, Checks)> {
    let arguments = ["admin", "preflight", "-o", "json"].iter().chain(more);
    let output = fleet.brokkr(arguments).await?;
    let document: Value = output.json()?;
    let text = |check: &Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
    let items = document["items"].as_array().context("checks")?;
    let checks =
        items.iter().map(|check| (text(check, "check"), (text(check, "verdict"), text(check, "reason"))));
    Ok((output.code, checks.collect()))
}

/// Waits for this exit code and these findings. Retries, because checks also fail on a machine that stalls.
async fn finds(fleet: &Fleet, more: &[&str], code: i32, expected: impl Fn(&Checks) -> bool) -> Result<()> {
    eventually(WAIT_TIMEOUT, "the preflight to find it", async || {
        let (exits, checks) = preflight(fleet, more).await?;
        ensure!(exits == code && expected(&checks), "it exits with {exits}: {checks:?}");
        anyhow::Ok(())
    })
    .await
}

#[tokio::test]
async fn a_preflight_finds_what_prevents_an_upgrade() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let fleet = Fleet::start_with(WEBHOOKS).await?;
    let shop = fleet.join("shop-1", &[("env", "prod")], &cluster).await?;
    let space = unique("space");
    let manifest = namespace_yaml(&space) + &config_map_yaml(&space, "one", "1");
    fleet.apply("web", "env=prod", &manifest).await?;
    // The broker of the tests has a single database role.
    let expected = |check: &String| if check == "database-role" { "warning" } else { "ok" };
    finds(&fleet, &[], 0, |checks| {
        checks.iter().all(|(check, (verdict, _))| verdict == expected(check))
            && checks["agents-version"].1.starts_with("all agents have version ")
    })
    .await?;

    // A prune so large that it needs approval.
    let many = |number: usize| -> String {
        (0..number).map(|at| config_map_yaml(&space, &format!("many-{at}"), "1")).collect()
    };
    fleet.apply("many", "env=prod", &many(60)).await?;
    fleet.submit("many", "env=prod", &many(1)).await?;
    finds(&fleet, &[], 0, |checks| checks["prunes"].0 == "warning" && checks["prunes"].1.contains("of many"))
        .await?;

    // A token that expires, a stack that is deleted while its agent is offline, a message that is not accepted.
    shop.kill9();
    fleet.brokkr(["token", "create", "ci", "--role", "viewer", "--ttl", "2d"]).await?.ok()?;
    let url = ["--url", "http://127.0.0.1:9/hook"];
    fleet.brokkr(["webhook", "create", "ops"].iter().chain(&url)).await?.ok()?;
    fleet.brokkr(["stack", "delete", "web", "--yes"]).await?.ok()?;
    eventually(WAIT_TIMEOUT, "a message that waits", async || {
        match fleet.get("/api/v1/webhooks/ops/deliveries").await {
            Ok(page) if page["items"].as_array().is_some_and(|items| !items.is_empty()) => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    fleet.brokkr(["webhook", "disable", "ops"]).await?.ok()?;
    eventually(WAIT_TIMEOUT, "a dead letter", async || {
        match fleet.get("/api/v1/webhooks/ops/deliveries?state=dead").await {
            Ok(page) if page["items"].as_array().is_some_and(|items| !items.is_empty()) => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    let problems = [
        ("tokens", "expires: ci in"),
        ("deletions", "agents still have web (deleted "),
        ("webhooks", "ops has 1 dead"),
    ];
    finds(&fleet, &[], 0, |checks| {
        problems.iter().all(|(check, reason)| {
            let (verdict, text) = &checks[*check];
            verdict == "warning" && text.contains(reason)
        })
    })
    .await?;

    // A caller without permission gets an error, not an empty result.
    let viewer = fleet.brokkr(["token", "create", "eye", "--role", "viewer"]).await?.ok()?.stdout;
    let file = fleet.cli.file("viewer", &viewer)?.display().to_string();
    finds(&fleet, &["--token-file", &file], 0, |seen| {
        let hidden = ["version", "hold", "restore", "tokens", "audit"];
        let is_hidden =
            |check: &&str| seen[*check].0 == "warning" && seen[*check].1.starts_with("not allowed: ");
        hidden.iter().all(is_hidden) && seen["broker"].0 == "ok"
    })
    .await?;

    let hold = ["epoch", "hold", "--because", "rehearsal", "--database-url"];
    let launch =
        Launch::new("brokkr-broker", program("brokkr-broker")?).args(hold).arg(fleet.database().url());
    run(launch, WAIT_TIMEOUT).await?.ok()?;
    finds(&fleet, &[], 1, |held| held["hold"].0 == "failed" && held["hold"].1.contains("rehearsal")).await?;
    Ok(())
}

/// Unpacks a bundle and returns its files by name.
async fn unpacked(bundle: &Path, folder: &Path) -> Result<BTreeMap<String, String>> {
    fs::create_dir_all(folder)?;
    let launch = Launch::new("tar", "/bin/tar").arg("-xzf").arg(bundle).arg("-C").arg(folder);
    run(launch, WAIT_TIMEOUT).await?.ok()?;
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.join("brokkr-support")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.file_name().context("a name")?.to_string_lossy().into_owned();
                found.insert(name, fs::read_to_string(&path)?);
            }
        }
    }
    Ok(found)
}

#[tokio::test]
async fn a_support_bundle_has_the_fleet_in_it_and_no_secret() -> Result<()> {
    let (cluster, port, scratch) = (Cluster::shared().await?, Port::free()?, Scratch::new("bundle")?);
    let address = port.address();
    let fleet = Fleet::start_with(&[WEBHOOKS, &["--admin-listen", &address]].concat()).await?;
    let _shop = fleet.join("shop-1", &[("env", "prod")], &cluster).await?;
    let space = unique("space");
    let [secret, plain, quoted, path] =
        ["secret", "plain", "quoted", "path"].map(|what| unique(&format!("hunter-{what}")));
    let manifest = namespace_yaml(&space)
        + &config_map_yaml(&space, "one", &plain)
        + &format!(
            "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: s, namespace: {space}}}\nstringData: {{password: {secret}}}\n"
        );
    fleet.apply("web", "env=prod", &manifest).await?;
    // The API server quotes the rejected value.
    let service = format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: s, namespace: {space}}}\n\
         spec: {{type: {quoted}, ports: [{{port: 80}}]}}\n"
    );
    let refused = fleet.try_apply("bad", "env=prod", &service, "60s").await?;
    assert!(refused.stderr.contains(&quoted), "the broker knows it: {refused:?}");
    let token = fleet.brokkr(["token", "create", "ci", "--role", "viewer"]).await?.ok()?.stdout;
    let join = fleet.join_token("later", &[]).await?;
    let url = format!("http://127.0.0.1:9/{path}");
    let hook = fleet.brokkr(["webhook", "create", "ops", "--url", &url]).await?.ok()?.stdout;

    let file = scratch.join("bundle.tar.gz");
    let (named, metrics) = (file.display().to_string(), format!("http://{address}"));
    let make = ["admin", "support-bundle", "--file", &named, "--metrics", &metrics];
    fleet.brokkr(make).await?.ok()?;
    assert_eq!(fs::metadata(&file)?.permissions().mode() & 0o777, 0o600);
    let found = unpacked(&file, &scratch.join("admin")).await?;
    let encoded = STANDARD.encode(&secret);
    let hidden =
        [secret.as_str(), &encoded, &plain, &quoted, &path, fleet.admin_token(), &token, &join, &hook];
    for (name, text) in &found {
        for hidden in hidden {
            assert!(!text.contains(hidden.trim()), "{hidden:?} is in {name}:\n{text}");
        }
        for prefix in ["brk_", "brj_", "whsec_"] {
            assert!(!text.contains(prefix), "a {prefix} is in {name}:\n{text}");
        }
    }
    for (name, text) in [
        ("agents.json", "shop-1"),
        ("stacks.json", "\"web\""),
        ("errors.json", "\"bad\""),
        ("events.json", "healthy"),
        ("audit.json", "POST"),
        ("webhooks.json", "ops"),
        ("preflight.json", "agents-silent"),
        ("versions.json", env!("CARGO_PKG_VERSION")),
        ("context.json", "https://"),
    ] {
        let contents = found.get(name).with_context(|| format!("no {name}"))?;
        assert!(contents.contains(text), "{text:?} is not in {name}:\n{contents}");
    }
    assert!(found.values().any(|text| text.contains("brokkr_on_hold 0")), "{:?}", found.keys());
    assert_eq!(found["missing.json"].trim(), "[]");

    // A caller with fewer permissions gets less, and a list of what is missing.
    let viewer = fleet.cli.file("viewer", &token)?.display().to_string();
    let less = scratch.join("less.tar.gz").display().to_string();
    let make = ["admin", "support-bundle", "--file", &less, "--token-file", &viewer];
    fleet.brokkr(make).await?.ok()?;
    let found = unpacked(Path::new(&less), &scratch.join("viewer")).await?;
    for name in ["system.json", "audit.json"] {
        assert!(!found.contains_key(name) && found["missing.json"].contains(name), "{found:?}");
    }
    Ok(())
}

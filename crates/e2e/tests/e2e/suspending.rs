//! F2 with suspensions: an edit survives for its time, everything else is repaired, and the edit is reported as a patch.

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::{AgentOptions, Clock, eventually};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use brokkr_testkit::world::{WAIT_TIMEOUT, World, namespace_yaml};

use crate::conditions::wait_for_condition;

const FOREVER: [&str; 4] = ["--for", "2h", "--reason", "debugging"];

async fn brokkr(world: &World, arguments: &[&str]) -> Result<()> {
    world.fleet.brokkr(arguments).await?.ok()?;
    Ok(())
}

/// Waits until the agent has reported this transition so often.
async fn wait_for_event(world: &World, transition: &str, count: usize) -> Result<Value> {
    eventually(WAIT_TIMEOUT, &format!("the agent to report {transition}"), async || {
        let events = world.events("web").await?;
        let found: Vec<_> = events.into_iter().filter(|event| event["transition"] == transition).collect();
        ensure!(found.len() == count, "{found:?}");
        found.into_iter().next().context("an event")
    })
    .await
}

/// The agent has looked at the stack since the edit: it has repaired another object that was changed after it.
async fn wait_for_repair(world: &World, name: &str) -> Result<()> {
    world.edit(name, "wrong").await?;
    world.wait_for_value(name, "right").await
}

#[tokio::test]
async fn f2_an_edit_of_a_suspended_object_survives_restarts_and_is_reported_at_the_end() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "right"), ("two", "right")])).await?;
    let object = ["suspend", "web", "--agent", "shop-1", "--object", "ConfigMap/one"];
    brokkr(&world, &[&object[..], &FOREVER[..]].concat()).await?;
    wait_for_event(&world, "suspended", 1).await?;
    world.edit("one", "edited").await?;
    wait_for_repair(&world, "two").await?;
    assert_eq!(world.value("one").await?.as_deref(), Some("edited"));

    // Without the broker, and after a restart.
    world.fleet.broker.kill9();
    wait_for_repair(&world, "two").await?;
    world.agent.kill9();
    world.agent.start()?;
    wait_for_repair(&world, "two").await?;
    assert_eq!(world.value("one").await?.as_deref(), Some("edited"));
    world.fleet.broker.start_again().await?;
    wait_for_repair(&world, "two").await?;
    assert_eq!(world.value("one").await?.as_deref(), Some("edited"));

    brokkr(&world, &["resume", "web"]).await?;
    world.wait_for_value("one", "right").await?;
    let resumed = wait_for_event(&world, "resumed", 1).await?;
    let edited = &resumed["objects"][0];
    assert_eq!(edited["object"]["name"], "one", "{resumed}");
    assert_eq!(edited["details"]["patch"], json!({"data": {"value": "edited"}}), "{resumed}");
    let shown = world.fleet.brokkr(["stack", "suspensions", "web", "--diff"]).await?.ok()?.stdout;
    assert!(shown.contains("value: edited"), "{shown}");
    Ok(())
}

#[tokio::test]
async fn f2_of_a_suspended_stack_nothing_changes_until_it_is_resumed() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "right")])).await?;
    world.fleet.apply("other", "env=prod", &world.config_maps_yaml(&[("two", "right")])).await?;
    brokkr(&world, &[&["suspend", "web"][..], &FOREVER[..]].concat()).await?;
    wait_for_event(&world, "suspended", 1).await?;
    world.config_maps().delete("one", &Default::default()).await?;
    world.fleet.submit("web", "env=prod", &world.manifest(&[("one", "right"), ("new", "1")])).await?;
    wait_for_repair(&world, "two").await?;
    assert_eq!((world.value("one").await?, world.value("new").await?), (None, None));
    let why = world.fleet.brokkr(["why", "web", "--agent", "shop-1"]).await?.stdout;
    assert!(why.contains("suspended here"), "{why}");
    wait_for_condition(&world, "web", "Suspended", "True").await?;
    let status = world.fleet.brokkr(["status", "web"]).await?.stdout;
    assert!(status.contains("left alone until the suspension ends"), "{status}");
    let shown = world.cluster.kubectl(["get", "stacks.brokkr.io"]).await?.ok()?.stdout;
    let id = world.fleet.get("/api/v1/stacks/web").await?["id"].as_str().context("an id")?.to_owned();
    let row = shown.lines().find(|row| row.contains(&id[id.len() - 12..])).context("a row")?;
    assert!(row.contains("suspended"), "{row}");
    let audit = world.fleet.brokkr(["audit", "list"]).await?.ok()?.stdout;
    assert!(audit.contains("/suspensions"), "{audit}");
    brokkr(&world, &["resume", "web"]).await?;
    world.wait_for_value("one", "right").await?;
    world.wait_for_value("new", "1").await?;
    let resumed = wait_for_event(&world, "resumed", 1).await?;
    assert_eq!(resumed["objects"][0]["reason"], "DeletedByOthers", "{resumed}");
    Ok(())
}

#[tokio::test]
async fn f2_a_suspension_expires_at_the_agent_while_the_broker_is_down() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "right"), ("two", "right")])).await?;
    let suspend = ["suspend", "web", "--object", "ConfigMap/one", "--for", "15s", "--reason", "a test"];
    brokkr(&world, &suspend).await?;
    wait_for_event(&world, "suspended", 1).await?;
    world.fleet.broker.kill9();
    world.edit("one", "edited").await?;
    wait_for_repair(&world, "two").await?;
    assert_eq!(world.value("one").await?.as_deref(), Some("edited"));
    world.wait_for_value("one", "right").await?;
    world.fleet.broker.start_again().await?;
    wait_for_event(&world, "resumed", 1).await?;
    Ok(())
}

/// A step of the clock, forward or back, neither ends a suspension nor repairs what it covers; nor does one across a restart.
#[tokio::test]
async fn f2_a_step_of_the_agents_clock_does_not_end_a_suspension() -> Result<()> {
    let clock = Clock::make().await?;
    let options = AgentOptions { environment: clock.steppable()?, ..AgentOptions::default() };
    let world = World::start_with(&options).await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "right"), ("two", "right")])).await?;
    let suspend = ["suspend", "web", "--object", "ConfigMap/one", "--for", "1h", "--reason", "a test"];
    brokkr(&world, &suspend).await?;
    wait_for_event(&world, "suspended", 1).await?;
    // Only the agent measures the time.
    world.fleet.broker.kill9();
    world.edit("one", "edited").await?;
    for seconds in [6 * 3600, -6 * 3600, 24 * 3600] {
        clock.step(seconds)?;
        wait_for_repair(&world, "two").await?;
        assert_eq!(world.value("one").await?.as_deref(), Some("edited"), "after a step to {seconds} s");
    }
    world.agent.kill9();
    clock.step(48 * 3600)?;
    world.agent.start()?;
    wait_for_repair(&world, "two").await?;
    assert_eq!(world.value("one").await?.as_deref(), Some("edited"), "after a restart");
    clock.step(0)?;
    world.fleet.broker.start_again().await?;
    brokkr(&world, &["resume", "web"]).await?;
    world.wait_for_value("one", "right").await
}

/// The patch says which keys of a Secret were changed; their values stay in the cluster, also those in the annotation of `kubectl apply`.
#[tokio::test]
async fn f2_the_values_of_an_edited_secret_are_not_reported() -> Result<()> {
    let world = World::start().await?;
    let secret = format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: login\n  namespace: {}\nstringData: {{password: first}}\n",
        world.namespace
    );
    let yaml = format!("{}{secret}", namespace_yaml(&world.namespace));
    world.fleet.apply("web", "env=prod", &yaml).await?;
    brokkr(&world, &[&["suspend", "web", "--object", "Secret/login"][..], &FOREVER[..]].concat()).await?;
    wait_for_event(&world, "suspended", 1).await?;
    let last_applied = r#"{"stringData":{"password":"hunter2hunter2"}}"#;
    let edit = json!({
        "stringData": {"password": "hunter2hunter2"},
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": last_applied, "note": "hunter2hunter2"}},
    });
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    secrets.patch("login", &PatchParams::default(), &Patch::Merge(edit)).await?;
    brokkr(&world, &["resume", "web"]).await?;
    let resumed = wait_for_event(&world, "resumed", 1).await?.to_string();
    assert!(resumed.contains("password"), "{resumed}");
    for value in ["hunter2", "aHVudGVyMmh1bnRlcjI="] {
        assert!(!resumed.contains(value), "{resumed}");
    }
    Ok(())
}

/// A deletion and a rollback of a suspended stack wait and say so; with `--force`, they end the suspension.
#[tokio::test]
async fn f2_e2_a_deletion_and_a_rollback_of_a_suspended_stack_wait_unless_they_are_forced() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("other", "env=prod", &world.manifest(&[("two", "right")])).await?;
    for value in ["first", "second"] {
        world.fleet.apply("web", "env=prod", &world.config_maps_yaml(&[("one", value)])).await?;
    }
    let suspend = [&["suspend", "web"][..], &FOREVER[..]].concat();
    brokkr(&world, &suspend).await?;
    wait_for_event(&world, "suspended", 1).await?;
    brokkr(&world, &["rollback", "web", "--yes", "--reason", "a test"]).await?;
    wait_for_repair(&world, "two").await?;
    assert_eq!(world.value("one").await?.as_deref(), Some("second"));
    let why = world.fleet.brokkr(["why", "web", "--agent", "shop-1"]).await?.stdout;
    assert!(why.contains("suspended here"), "{why}");
    brokkr(&world, &["resume", "web"]).await?;
    world.wait_for_value("one", "first").await?;

    brokkr(&world, &suspend).await?;
    wait_for_event(&world, "suspended", 2).await?;
    brokkr(&world, &["stack", "delete", "web", "--yes"]).await?;
    wait_for_repair(&world, "two").await?;
    assert_eq!(world.value("one").await?.as_deref(), Some("first"));
    let why = world.fleet.brokkr(["why", "web", "--agent", "shop-1"]).await?.stdout;
    assert!(why.contains("suspended"), "{why}");
    brokkr(&world, &["stack", "delete", "web", "--yes", "--force"]).await?;
    world.wait_until_gone("one").await
}

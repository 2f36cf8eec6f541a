//! F6 with health rules of a stack: a custom kind fails by them, also after a restart without the broker.

use anyhow::{Context as _, Result};
use brokkr_testkit::world::{WAIT_TIMEOUT, World, counter_definition, namespace_yaml};
use brokkr_testkit::{AgentOptions, Attempt, eventually, unique};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;

use crate::conditions::wait_for_condition;

struct Counter {
    world: World,
    group: String,
    api: Api<DynamicObject>,
}

impl Counter {
    async fn start() -> Result<Self> {
        let group = format!("{}.example.com", unique("shop"));
        let install = vec![format!("--kind=*.{group}")];
        let world = World::start_with(&AgentOptions { install, ..AgentOptions::default() }).await?;
        world.cluster.apply(&counter_definition(&group, false).to_string()).await?;
        let definition = format!("crd/counters.{group}");
        let wait = ["wait", "--for=condition=Established", &definition, "--timeout=60s"];
        world.cluster.kubectl(wait).await?.ok()?;
        let yaml = format!(
            "{}---\napiVersion: {group}/v1\nkind: Counter\nmetadata: {{name: main, namespace: {}}}\nspec: {{size: 1}}\n",
            namespace_yaml(&world.namespace),
            world.namespace
        );
        let kind = GroupVersionKind::gvk(&group, "v1", "Counter");
        let kind = ApiResource::from_gvk_with_plural(&kind, "counters");
        let api = Api::namespaced_with(world.client.clone(), &world.namespace, &kind);
        world.fleet.apply("web", "env=prod", &yaml).await?;
        Ok(Self { world, group, api })
    }

    /// Sets the status, as its controller does.
    async fn set_status(&self, phase: &str, message: &str) -> Result<()> {
        let status = json!({ "status": { "phase": phase, "message": message } });
        self.api.patch("main", &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    async fn wait_for_state(&self, state: &str) -> Result<serde_json::Value> {
        let what = format!("to be {state}");
        self.world.wait_for_status("web", "shop-1", &what, |status| status["state"] == state).await
    }
}

#[tokio::test]
async fn f6_a_rule_of_a_stack_decides_the_health_of_a_custom_kind_until_it_is_deleted() -> Result<()> {
    let counter = Counter::start().await?;
    let world = &counter.world;
    counter.set_status("Broken", "the wheel is stuck").await?;
    counter.wait_for_state("healthy").await?;

    let rule = format!(
        "- groups: [{}]\n  kinds: [Counter]\n  failed: [{{field: status.phase, equals: Broken, message: status.message}}]\n  \
         ready: [{{field: status.phase, equals: Counting}}]\n",
        counter.group
    );
    let scratch = brokkr_testkit::Scratch::new("rules")?;
    let file = scratch.write("rules.yaml", &rule)?;
    let file = file.to_str().context("a path")?;
    world.fleet.brokkr(["health", "rules", "set", "-f", file, "--stack", "web"]).await?.ok()?;
    let shown = world.fleet.brokkr(["health", "rules", "show", "--stack", "web"]).await?.ok()?.stdout;
    assert!(shown.contains("Counter") && shown.contains("Broken"), "{shown}");
    let failed = counter.wait_for_state("degraded").await?;
    assert!(failed.to_string().contains("the wheel is stuck"), "{failed}");
    let why = world.fleet.brokkr(["why", "web", "--agent", "shop-1"]).await?.stdout;
    assert!(why.contains("the wheel is stuck"), "{why}");

    // The rule holds after a restart without the broker.
    world.fleet.broker.kill9();
    world.agent.kill9();
    world.agent.start()?;
    counter.set_status("Counting", "").await?;
    wait_for_condition(world, "web", "Ready", "True").await?;
    counter.set_status("Broken", "the spring is broken").await?;
    eventually(WAIT_TIMEOUT, "the controller's message in the record", async || {
        match wait_for_condition(world, "web", "Ready", "False").await {
            Ok(conditions) if json!(conditions).to_string().contains("the spring is broken") => {
                Attempt::Done(())
            }
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    world.fleet.broker.start_again().await?;

    world.fleet.brokkr(["health", "rules", "delete", "--stack", "web"]).await?.ok()?;
    counter.wait_for_state("healthy").await?;
    Ok(())
}

//! C6: the agent's own namespace is protected, wherever it is. `admission_policy/escalation.rs` shows the same for the fence.

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::AgentOptions;
use brokkr_testkit::world::{World, config_map_yaml, namespace_yaml};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;

/// Starts an agent in a namespace that only its cluster knows.
async fn world() -> Result<(World, String)> {
    let home = brokkr_testkit::unique("edge");
    let options = AgentOptions { namespace: Some(home.clone()), ..AgentOptions::default() };
    Ok((World::start_with(&options).await?, home))
}

/// Returns stacks that affect the namespace.
fn intrusions(home: &str) -> [String; 3] {
    let identity = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: brokkr-agent-identity, namespace: {home}}}\n\
         stringData: {{agent-id: mine}}\n"
    );
    [identity, config_map_yaml(home, "any", "1"), namespace_yaml(home)]
}

#[tokio::test]
async fn c6_the_broker_refuses_a_stack_for_the_own_namespace_of_a_targeted_agent() -> Result<()> {
    let (world, home) = world().await?;
    for yaml in intrusions(&home) {
        let file = world.fleet.cli.file("intrusion.yaml", &yaml)?.display().to_string();
        let refused = world.fleet.brokkr(["apply", "web", "-f", &file, "--to", "env=prod"]).await?;
        let words = format!("namespace {home} belongs to agent shop-1, and no stack may change it");
        ensure!(refused.code == 3 && refused.stderr.contains(&words), "{refused:?}");
    }
    // Agents elsewhere may use a namespace of that name.
    let file = world.fleet.cli.file("elsewhere.yaml", &intrusions(&home)[1])?.display().to_string();
    world.fleet.brokkr(["apply", "elsewhere", "-f", &file, "--to", "env=test"]).await?.ok()?;
    Ok(())
}

/// The broker cannot refuse it, because the agent is targeted only later.
#[tokio::test]
async fn c6_the_agent_refuses_a_stack_for_its_own_namespace() -> Result<()> {
    let (world, home) = world().await?;
    let before = Api::<Secret>::namespaced(world.client.clone(), &home).get("brokkr-agent-identity").await?;
    for (yaml, stack) in intrusions(&home).iter().zip(["identity", "map", "namespace"]) {
        let file = world.fleet.cli.file("intrusion.yaml", yaml)?.display().to_string();
        world.fleet.brokkr(["apply", stack, "-f", &file, "--to", "env=test"]).await?.ok()?;
        world.fleet.brokkr(["stack", "retarget", stack, "--to", "env=prod"]).await?.ok()?;
        let refused = |status: &serde_json::Value| status["state"] == "blocked";
        let status = world.wait_for_status(stack, "shop-1", "blocked", refused).await?;
        ensure!(
            status
                .to_string()
                .contains(&format!("in the agent's own namespace {home}, which no stack may change")),
            "{status}"
        );
        let why = world.fleet.brokkr(["why", stack, "--agent", "shop-1"]).await?;
        ensure!(why.stdout.contains("move the object to another namespace"), "{why:?}");
    }
    let after = Api::<Secret>::namespaced(world.client.clone(), &home).get("brokkr-agent-identity").await?;
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version, "untouched");
    let namespace = Api::<Namespace>::all(world.client.clone()).get(&home).await?;
    let labels = namespace.metadata.labels.context("labels")?;
    ensure!(!labels.contains_key("brokkr.io/agent"), "{labels:?}");
    Ok(())
}

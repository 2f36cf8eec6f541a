//! Permissions for operators: what the profiles `apps` and `platform` deliver, and how a refusal names the rule and the flag.
//!
//! The operators of others are delivered on real nodes, in `real/operators.rs`.

use anyhow::{Result, ensure};
use brokkr_testkit::AgentOptions;
use brokkr_testkit::agent::install;
use brokkr_testkit::world::{World, config_map_yaml, namespace_yaml};
use serde_json::Value;

async fn world_with(arguments: &[&str]) -> Result<World> {
    let install = arguments.iter().map(ToString::to_string).collect();
    World::start_with(&AgentOptions { install, ..AgentOptions::default() }).await
}

fn role(space: &str, name: &str, rule: &str) -> String {
    format!(
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: {name}, namespace: {space}}}\n\
         rules: [{{{rule}}}]\n"
    )
}

fn cluster_role(name: &str, rule: &str) -> String {
    format!(
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {name}}}\nrules: [{{{rule}}}]\n"
    )
}

fn binding(space: &str, name: &str, kind: &str, role: &str) -> String {
    format!(
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: {name}, namespace: {space}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {kind}, name: {role}}}\n\
         subjects: [{{kind: ServiceAccount, name: web, namespace: {space}}}]\n"
    )
}

impl Refusal<'_> {
    /// Waits until the agent has reported the refusal, and returns what `why` prints.
    async fn shown(&self) -> Result<String> {
        let refused =
            |status: &Value| status["state"] == "failed" && status.to_string().contains(self.message);
        self.world.wait_for_status(self.stack, "shop-1", self.message, refused).await?;
        let why = self.world.fleet.brokkr(["why", self.stack, "--agent", "shop-1"]).await?;
        Ok(why.stdout.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// A stack that the agent refuses with this message.
struct Refusal<'a> {
    world: &'a World,
    stack: &'a str,
    message: &'a str,
}

const LEASES: &str = "apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, list, watch, create, update, patch, delete]";

#[tokio::test]
async fn the_profile_apps_grants_leader_election_and_names_a_rule_that_it_may_not_grant() -> Result<()> {
    let world = world_with(&["--profile", "apps"]).await?;
    let space = &world.namespace;
    let leader = role(space, "leader", LEASES) + &binding(space, "leader", "Role", "leader");
    let status =
        "apiGroups: [apps], resources: [deployments/status, deployments/scale], verbs: [get, update, patch]";
    let yaml = namespace_yaml(space) + &leader + &role(space, "status", status);
    world.fleet.apply("web", "env=prod", &yaml).await?;

    let logs = role(space, "logs", "apiGroups: [''], resources: [pods/log], verbs: [get]");
    world.fleet.submit("web", "env=prod", &(yaml + &logs)).await?;
    let message = "grants permissions that this agent does not have: get on pods/log in core";
    let why = Refusal { world: &world, stack: "web", message }.shown().await?;
    let flag = "run brokkr-agent install again with the same flags and --profile platform";
    ensure!(why.contains(message) && why.contains(flag), "{why}");

    // A binding whose role exists nowhere stops the delivery before anything is written.
    let absent = namespace_yaml(&format!("{space}-2"))
        + &config_map_yaml(space, "early", "1")
        + &binding(space, "absent", "Role", "absent");
    world.fleet.submit("absent", "env=prod", &absent).await?;
    Refusal { world: &world, stack: "absent", message: "not found" }.shown().await?;
    ensure!(world.config_map("early").await?.is_none(), "written before the binding was checked");

    // What needs rights in the whole cluster is refused before anything is written.
    let reader = cluster_role(&format!("{space}-reader"), LEASES);
    world.fleet.submit("platform", "env=prod", &reader).await?;
    let message = "clusterroles.rbac.authorization.k8s.io in the cluster";
    let why = Refusal { world: &world, stack: "platform", message }.shown().await?;
    ensure!(why.contains(message) && why.contains(flag), "{why}");

    install(&world.cluster, world.agent.namespace(), &["--profile", "platform"]).await?;
    for stack in ["web", "platform"] {
        let healthy = |status: &Value| status["state"] == "healthy";
        world.wait_for_status(stack, "shop-1", "healthy with more permissions", healthy).await?;
    }
    Ok(())
}

#[tokio::test]
async fn operators_with_their_own_definitions_roles_and_webhooks_are_delivered_by_platform() -> Result<()> {
    let world = world_with(&["--profile", "platform"]).await?;
    for (stack, role, yaml) in [
        ("pgfleet", "pgfleet-manager", include_str!("../../operators/pgfleet.yaml")),
        ("redkeep", "redkeep", include_str!("../../operators/redkeep.yaml")),
    ] {
        world.fleet.apply(stack, "env=prod", yaml).await?;
        // The agent repairs them like other objects.
        let rules = "[{\"op\": \"replace\", \"path\": \"/rules\", \"value\": []}]";
        world.cluster.kubectl(["patch", "clusterrole", role, "--type", "json", "-p", rules]).await?.ok()?;
        let healed = ["wait", "clusterrole", role, "--for=jsonpath={.rules[0].verbs}", "--timeout=30s"];
        world.cluster.kubectl(healed).await?.ok()?;
        world.fleet.delete(stack).await?;
    }
    Ok(())
}

/// With `bind`, Kubernetes would let the agent bind any role that the cluster's owner has made.
#[tokio::test]
async fn c6_only_roles_that_the_agent_delivered_or_that_are_listed_are_bound() -> Result<()> {
    let world = world_with(&["--profile", "platform"]).await?;
    let space = &world.namespace;
    let owners = format!("{space}-owners");
    world.cluster.apply(&cluster_role(&owners, LEASES)).await?;
    let yaml = namespace_yaml(space) + &binding(space, "grab", "ClusterRole", &owners);
    world.fleet.submit("web", "env=prod", &yaml).await?;
    let message = format!("binds the role {owners}, which this agent did not deliver");
    let why = Refusal { world: &world, stack: "web", message: &message }.shown().await?;
    ensure!(why.contains(&message) && why.contains(&format!("--allow-role {owners}")), "{why}");
    let found = world
        .cluster
        .kubectl(["get", "rolebinding", "-n", space, "--ignore-not-found", "-o", "name"])
        .await?;
    ensure!(found.success() && !found.stdout.contains("grab"), "{found:?}");

    // Without a role, the manifest would change the subjects of a binding that exists.
    let nameless = binding(space, "grab", "ClusterRole", &owners).replace("roleRef:", "#");
    world.fleet.submit("web", "env=prod", &(namespace_yaml(space) + &nameless)).await?;
    Refusal { world: &world, stack: "web", message: "invalid: roleRef" }.shown().await?;

    // Roles of another stack of the same agent, roles of Kubernetes that are made for this, and listed ones are bound.
    let shared = format!("{space}-shared");
    world.fleet.apply("roles", "env=prod", &cluster_role(&shared, LEASES)).await?;
    let free = namespace_yaml(space)
        + &binding(space, "shared", "ClusterRole", &shared)
        + &binding(space, "view", "ClusterRole", "view");
    world.fleet.apply("web", "env=prod", &free).await?;
    install(&world.cluster, world.agent.namespace(), &["--profile", "platform", "--allow-role", &owners])
        .await?;
    world.fleet.submit("web", "env=prod", &yaml).await?;
    let healthy = |status: &Value| status["state"] == "healthy";
    world.wait_for_status("web", "shop-1", "healthy with the exception", healthy).await?;
    Ok(())
}

#[tokio::test]
async fn a_role_that_the_fence_refuses_is_named_with_the_flag_that_allows_it() -> Result<()> {
    let world = world_with(&["--profile", "platform"]).await?;
    let space = &world.namespace;
    let name = format!("{space}-tokens");
    let tokens = cluster_role(&name, "apiGroups: [''], resources: [serviceaccounts/token], verbs: [create]");
    world.fleet.submit("web", "env=prod", &tokens).await?;
    let message = "a stack must not grant create on serviceaccounts/token in core";
    let why = Refusal { world: &world, stack: "web", message }.shown().await?;
    let flag = format!("--allow-role {name}");
    ensure!(why.contains(message) && why.contains(&flag), "{why}");
    install(&world.cluster, world.agent.namespace(), &["--profile", "platform", "--allow-role", &name])
        .await?;
    let healthy = |status: &Value| status["state"] == "healthy";
    world.wait_for_status("web", "shop-1", "healthy with the exception", healthy).await?;
    Ok(())
}

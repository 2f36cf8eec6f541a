//! The agent's chart: its permissions suffice, and it leaves nothing behind.

use std::path::Path;

use anyhow::{Context as _, Result};
use brokkr_testkit::{Attempt, Cluster, Fleet, PodRunner, Scratch, eventually};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::json;

use super::{chart, earlier_chart};
use brokkr_testkit::world::{WAIT_TIMEOUT, config_map_yaml, deployment_yaml};

const HOME: &str = "brokkr-home";
const SHOP: &str = "shop";

/// The kinds of objects that the agent's chart installs outside of its namespace and could leave behind.
const KINDS: &str = "roles,rolebindings,clusterroles,clusterrolebindings,validatingadmissionpolicies,\
                     validatingadmissionpolicybindings,customresourcedefinitions,namespaces";

struct Installation {
    // Dropped in this order: the Pods before the broker, the cluster last.
    pods: PodRunner,
    fleet: Fleet,
    cluster: Cluster,
    scratch: Scratch,
}

impl Installation {
    async fn prepare() -> Result<Self> {
        let (cluster, fleet) = (Cluster::with_workloads().await?, Fleet::start().await?);
        let (pods, scratch) = (PodRunner::start(&cluster).await?, Scratch::new("chart")?);
        scratch.write("token", fleet.join_token("shop-1", &[("env", "prod")]).await?)?;
        cluster.kubectl(["create", "namespace", SHOP]).await?.ok()?;
        Ok(Self { pods, fleet, cluster, scratch })
    }

    /// Runs `helm upgrade --install` with the values that every agent needs, and with `values`.
    async fn install(&self, chart: &Path, values: &[&str]) -> Result<()> {
        let (token, authority) = (self.scratch.join("token"), self.fleet.broker.authority_file());
        let given = [
            format!("broker.url={}", self.fleet.broker.url()),
            "pollingInterval=1s".to_owned(),
            "image.repository=registry.example/brokkr-agent".to_owned(),
        ];
        let files = [format!("join.token={}", token.display()), format!("broker.ca={}", authority.display())];
        let chart = chart.to_str().context("a path as text")?;
        let mut arguments = vec!["upgrade", "--install", "agent", chart, "-n", HOME, "--create-namespace"];
        given.iter().for_each(|value| arguments.extend(["--set", value]));
        files.iter().for_each(|value| arguments.extend(["--set-file", value]));
        values.iter().for_each(|value| arguments.extend(["--set", value]));
        self.cluster.helm(arguments).await?.ok()?;
        Ok(())
    }

    async fn uninstall(&self) -> Result<()> {
        self.cluster.helm(["uninstall", "agent", "-n", HOME]).await?.ok()?;
        self.pods.gone("brokkr-agent").await
    }

    /// Waits until the agent is active, and returns its id.
    async fn wait_until_active(&self) -> Result<String> {
        let pod = self.pods.running("brokkr-agent").await?;
        let agent = self.fleet.active("shop-1").await.with_context(|| pod.describe())?;
        // The kubelet's readiness probe.
        let ready = format!("http://{}/readyz", pod.address("admin").context("a port for health checks")?);
        let http = reqwest::Client::builder().no_proxy().timeout(WAIT_TIMEOUT).build()?;
        eventually(WAIT_TIMEOUT, &ready, async || match http.get(&ready).send().await {
            Ok(answer) if answer.status().is_success() => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}\n{}", pod.describe())),
        })
        .await?;
        Ok(agent["id"].as_str().context("an id")?.to_owned())
    }

    /// Waits until exactly one Pod runs, and it is not this one.
    async fn wait_for_next_pod(&self, earlier: &str) -> Result<()> {
        eventually(WAIT_TIMEOUT, "the agent's next Pod", async || {
            let pods = self.pods.pods();
            match pods.as_slice() {
                [pod] if pod.name() != earlier && pod.is_running() => Attempt::Done(()),
                others => Attempt::NotYet(others.iter().map(|pod| pod.describe()).collect()),
            }
        })
        .await
    }

    fn shop(&self, value: &str) -> String {
        [config_map_yaml(SHOP, "one", value), deployment_yaml(SHOP, "web", 1)].concat()
    }

    async fn value(&self) -> Result<Option<String>> {
        let maps: Api<ConfigMap> = Api::namespaced(self.cluster.admin().await?, SHOP);
        Ok(maps.get_opt("one").await?.and_then(|map| map.data?.get("value").cloned()))
    }

    /// Returns the objects with Brokkr in their names.
    async fn left(&self) -> Result<Vec<String>> {
        let all = self.cluster.kubectl(["get", KINDS, "-A", "-o", "name"]).await?.ok()?;
        Ok(all.stdout.lines().filter(|name| name.contains("brokkr")).map(ToOwned::to_owned).collect())
    }
}

#[tokio::test]
async fn the_charts_permissions_suffice_to_join_deliver_be_narrowed_leave_and_return() -> Result<()> {
    let here = Installation::prepare().await?;
    here.install(&earlier_chart("brokkr-agent", &here.scratch).await?, &[]).await?;
    let agent = here.wait_until_active().await?;
    here.fleet.apply("web", "env=prod", &here.shop("1")).await?;

    // An upgrade with fewer permissions: the same agent, which still owns its objects.
    let before = here.pods.running("brokkr-agent").await?.name();
    let narrow = ["profile=namespaces", "targetNamespaces={shop}", "impersonate={shop/brokkr-shop}"];
    here.install(&chart("brokkr-agent"), &narrow).await?;
    here.wait_for_next_pod(&before).await?;
    assert_eq!(here.wait_until_active().await?, agent);
    here.fleet.apply("web", "env=prod", &here.shop("2")).await?;
    assert_eq!(here.value().await?.as_deref(), Some("2"));

    // Outside of its profile: the stack reports the missing permission.
    let outside =
        here.fleet.try_apply("outside", "env=prod", &config_map_yaml("default", "two", "1"), "60s").await?;
    assert!(!outside.success(), "{}", outside.stdout);
    let output = format!("{}{}", outside.stdout, outside.stderr);
    assert!(output.contains("configmaps in namespace default"), "{output}");
    here.fleet.delete("outside").await?;
    refused_by_the_fence(&here).await?;

    // While it is uninstalled, the delivered workloads continue. Reinstalled, it is the same agent.
    here.uninstall().await?;
    assert_eq!(here.value().await?.as_deref(), Some("2"));
    here.cluster.kubectl(["get", "deployment", "web", "-n", SHOP]).await?.ok()?;
    here.install(&chart("brokkr-agent"), &[]).await?;
    assert_eq!(here.wait_until_active().await?, agent);

    // Once the stacks are deleted, only the objects that the README names are left.
    here.fleet.delete("web").await?;
    assert_eq!(here.value().await?, None);
    here.uninstall().await?;
    let kind = "customresourcedefinition.apiextensions.k8s.io/stacks.brokkr.io".to_owned();
    assert_eq!(here.left().await?, [kind, format!("namespace/{HOME}")]);
    here.cluster.kubectl(["delete", "namespace", HOME]).await?.ok()?;
    here.cluster.kubectl(["delete", "customresourcedefinition", "stacks.brokkr.io"]).await?.ok()?;
    assert_eq!(here.left().await?, [] as [String; 0]);
    Ok(())
}

/// Checks that the chart's admission policies apply to its account.
async fn refused_by_the_fence(here: &Installation) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(here.cluster.client_for(HOME, "brokkr-agent").await?, SHOP);
    let unmarked = serde_json::from_value(json!({"metadata": {"name": "unmarked"}}))?;
    let refusal = maps.create(&Default::default(), &unmarked).await.expect_err("it carries no label");
    assert!(refusal.to_string().contains("must carry the label brokkr.io/agent"), "{refusal}");
    let foreign = json!({"metadata": {"name": "foreign", "labels": {"brokkr.io/agent": "another"}}});
    let foreign = serde_json::from_value(foreign)?;
    let refusal = maps.create(&Default::default(), &foreign).await.expect_err("it is another agent's");
    assert!(refusal.to_string().contains("brokkr-fence-agent"), "{refusal}");
    Ok(())
}

//! What an agent may change of its own Deployment: the image, if the owner of the cluster has allowed it, and only forwards.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use brokkr_agent::fence;
use brokkr_api::AgentId;
use brokkr_install::FENCE;
use brokkr_testkit::agent::{ACCOUNT, install};
use brokkr_testkit::{Attempt, Cluster, eventually, unique};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use brokkr_testkit::world::WAIT_TIMEOUT;

const REPOSITORY: &str = "registry.example/brokkr-agent";
const FIRST: &str = "registry.example/brokkr-agent:0.1.0";
const VERSION: &str = "brokkr.io/agent-version";
const PREVIOUS_IMAGE: &str = "brokkr.io/previous-image";
const PREVIOUS_VERSION: &str = "brokkr.io/previous-version";

/// The namespace of an agent, with its Deployment, which runs nothing.
struct Home {
    cluster: Arc<Cluster>,
    namespace: String,
    /// As the agent.
    client: Client,
}

impl Home {
    async fn with(arguments: &[&str]) -> Result<Self> {
        let (cluster, namespace) = (Cluster::shared().await?, unique("brokkr-upgrade"));
        install(&cluster, &namespace, arguments).await?;
        let client = cluster.client_for(&namespace, ACCOUNT).await?;
        let agent = AgentId::generate();
        eventually(WAIT_TIMEOUT, "the agent's admission policy to be active", async || {
            fence::ensure_active(&client, &namespace, agent).await
        })
        .await?;
        let deployment = json!({
            "metadata": {"name": ACCOUNT, "labels": {"app.kubernetes.io/name": ACCOUNT}},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app.kubernetes.io/name": ACCOUNT}},
                "template": {
                    "metadata": {"labels": {"app.kubernetes.io/name": ACCOUNT}},
                    "spec": {
                        "serviceAccountName": ACCOUNT,
                        "containers": [{"name": "agent", "image": FIRST, "args": ["run"]}],
                    },
                },
            },
        });
        let deployments: Api<Deployment> = Api::namespaced(cluster.admin().await?, &namespace);
        deployments.create(&PostParams::default(), &serde_json::from_value(deployment)?).await?;
        Ok(Self { cluster, namespace, client })
    }

    /// Changes the Deployment with this client. Returns the refusal of the fence; none if the change was accepted.
    async fn patch_by(&self, client: &Client, patch: &Value) -> Result<Option<String>> {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), &self.namespace);
        let patched = deployments.patch(ACCOUNT, &PatchParams::default(), &Patch::Strategic(patch)).await;
        match patched {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) => {
                let words = fence::refusal_message(&status.message);
                Ok(Some(words.with_context(|| format!("{patch}: {}", status.message))?.to_owned()))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn accepts(&self, patch: Value) -> Result<()> {
        assert_eq!(self.patch_by(&self.client, &patch).await?, None, "{patch}");
        Ok(())
    }

    async fn refuses(&self, patch: Value, words: &str) -> Result<()> {
        let refusal = self.patch_by(&self.client, &patch).await?;
        assert!(refusal.as_ref().is_some_and(|refusal| refusal.contains(words)), "{patch}: {refusal:?}");
        Ok(())
    }
}

/// Returns the reference of an image, by a digest that consists of one digit.
fn image(digit: &str) -> String {
    format!("{REPOSITORY}@sha256:{}", digit.repeat(64))
}

/// Returns a patch that sets the image and these annotations; none removes one.
fn setting(image: &str, annotations: &[(&str, Option<&str>)]) -> Value {
    let annotations: serde_json::Map<String, Value> =
        annotations.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let containers = json!([{"name": "agent", "image": image}]);
    json!({"metadata": {"annotations": annotations}, "spec": {"template": {"spec": {"containers": containers}}}})
}

fn begin(image: &str, version: &str, previous: (&str, Option<&str>)) -> Value {
    let annotations =
        [(VERSION, Some(version)), (PREVIOUS_IMAGE, Some(previous.0)), (PREVIOUS_VERSION, previous.1)];
    setting(image, &annotations)
}

/// Ends an upgrade with this image and version.
fn end(image: &str, version: Option<&str>) -> Value {
    setting(image, &[(VERSION, version), (PREVIOUS_IMAGE, None), (PREVIOUS_VERSION, None)])
}

const ONLY_THE_IMAGE: &str = "an agent may change nothing of its Deployment but the image";
const ONLY_FORWARDS: &str =
    "an agent may only begin an upgrade to an image with a digest, confirm it, or restore";
const NOT_OLDER: &str = "only the owner of the cluster may give an agent an older version";
const NOT_ALLOWED: &str = "the owner of this cluster has not allowed the agent to upgrade itself";

#[tokio::test]
async fn an_agent_may_upgrade_itself_go_back_until_it_has_confirmed_and_not_further() -> Result<()> {
    let home = Home::with(&["--profile", "apps", "--allow-upgrade", REPOSITORY]).await?;
    let (second, third) = (image("2"), image("3"));
    let elsewhere = image("2").replace("registry", "other");
    let repository = "the agent may only use images of registry.example/brokkr-agent";
    home.refuses(begin(&elsewhere, "0.2.0", (FIRST, None)), repository).await?;
    // Two policies refuse, and either may be named.
    home.refuses(begin(&format!("{REPOSITORY}:2"), "0.2.0", (FIRST, None)), "may only").await?;
    home.refuses(begin(&second, "2", (FIRST, None)), ONLY_FORWARDS).await?;
    home.refuses(begin(&second, "0.2.0", ("another", None)), ONLY_FORWARDS).await?;
    home.refuses(setting(&second, &[]), ONLY_FORWARDS).await?;

    home.accepts(begin(&second, "0.2.0", (FIRST, None))).await?;
    home.refuses(begin(&third, "0.3.0", (&second, Some("0.2.0"))), ONLY_FORWARDS).await?;
    home.refuses(end(FIRST, Some("0.2.0")), ONLY_FORWARDS).await?;
    home.accepts(end(FIRST, None)).await?;

    home.accepts(begin(&second, "0.2.0", (FIRST, None))).await?;
    home.accepts(end(&second, Some("0.2.0"))).await?;
    home.refuses(end(FIRST, None), "may only").await?;
    home.refuses(begin(&third, "0.1.9", (&second, Some("0.2.0"))), NOT_OLDER).await?;
    home.refuses(begin(&third, "0.10.0", (&second, None)), ONLY_FORWARDS).await?;
    home.accepts(begin(&third, "0.10.0", (&second, Some("0.2.0")))).await?;
    home.accepts(end(&second, Some("0.2.0"))).await
}

#[tokio::test]
async fn an_agent_may_change_nothing_else_of_its_deployment() -> Result<()> {
    let home = Home::with(&["--profile", "apps", "--allow-upgrade", REPOSITORY]).await?;
    let second = image("2");
    let pod = |change: Value| json!({"spec": {"template": {"spec": change}}});
    let container = |change: Value| {
        let mut patch = begin(&second, "0.2.0", (FIRST, None));
        let target = &mut patch["spec"]["template"]["spec"]["containers"][0];
        for (name, value) in change.as_object().into_iter().flatten() {
            target[name] = value.clone();
        }
        patch
    };
    for patch in [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"metadata": {"annotations": {"a": "b"}}}),
        json!({"metadata": {"finalizers": ["example.com/a"]}}),
        json!({"spec": {"replicas": 2}}),
        json!({"spec": {"paused": true}}),
        json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}}),
        json!({"spec": {"progressDeadlineSeconds": 5}}),
        json!({"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}),
        json!({"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}),
        pod(json!({"hostNetwork": true})),
        pod(json!({"nodeName": "node-1"})),
        pod(json!({"serviceAccountName": "brokkr-other"})),
        pod(json!({"volumes": [{"name": "host", "hostPath": {"path": "/"}}]})),
        pod(json!({"initContainers": [{"name": "first", "image": second}]})),
        pod(json!({"containers": [{"name": "another", "image": second}]})),
        pod(json!({"securityContext": {"runAsUser": 0}})),
        container(json!({"args": ["run", "--broker-url=https://other.example"]})),
        container(json!({"command": ["/bin/sh"]})),
        container(json!({"env": [{"name": "A", "value": "b"}]})),
        container(json!({"securityContext": {"runAsUser": 0}})),
        container(json!({"imagePullPolicy": "Never"})),
    ] {
        home.refuses(patch, ONLY_THE_IMAGE).await?;
    }
    home.accepts(begin(&second, "0.2.0", (FIRST, None))).await
}

#[tokio::test]
async fn only_the_owner_of_the_cluster_allows_upgrades() -> Result<()> {
    let home = Home::with(&["--profile", "apps"]).await?;
    let upgrade = begin(&image("2"), "0.2.0", (FIRST, None));
    home.refuses(upgrade.clone(), NOT_ALLOWED).await?;
    let maps: Api<ConfigMap> = Api::namespaced(home.client.clone(), &home.namespace);
    let allow = json!({"data": {"upgrade-repository": REPOSITORY}});
    let refused = maps.patch(FENCE, &PatchParams::default(), &Patch::Merge(allow)).await;
    assert!(refused.is_err(), "the agent must not allow it to itself");

    install(&home.cluster, &home.namespace, &["--profile", "apps", "--allow-upgrade", REPOSITORY]).await?;
    eventually(WAIT_TIMEOUT, "the upgrade to be accepted", async || {
        match home.patch_by(&home.client, &upgrade).await {
            Ok(None) => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await?;

    // The owner takes it back.
    install(&home.cluster, &home.namespace, &["--profile", "apps"]).await?;
    eventually(WAIT_TIMEOUT, "the permission to be withdrawn", async || {
        match home.patch_by(&home.client, &end(&image("2"), Some("0.2.0"))).await {
            Ok(Some(refusal)) if refusal.contains(NOT_ALLOWED) => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await
}

#[tokio::test]
async fn no_other_agent_may_upgrade_this_one() -> Result<()> {
    let home = Home::with(&["--profile", "apps", "--allow-upgrade", REPOSITORY]).await?;
    let other = Home::with(&["--profile", "apps", "--allow-upgrade", REPOSITORY]).await?;
    let upgrade = begin(&image("2"), "0.2.0", (FIRST, None));
    let refusal = home.patch_by(&other.client, &upgrade).await?;
    assert!(refusal.is_some(), "an agent must not change the Deployment of another one");
    Ok(())
}

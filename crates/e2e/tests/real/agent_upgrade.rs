//! The agent replaces itself by another version on real nodes, and the former version comes back if the new one fails before or after
//! it has taken over.
//!
//! ```text
//! agent_upgrade/shop.rs   a cluster whose agent may upgrade itself
//! agent_upgrade/waves.rs  an upgrade of three agents by the broker, in waves
//! ```
//!
//! The test below writes what an agent writes when it begins an upgrade, with the agent's account.

mod shop;
mod waves;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use brokkr_testkit::Scratch;
use brokkr_testkit::nodes::images::{AGENT_REPOSITORY, NEXT_AGENT_VERSION};
use brokkr_testkit::nodes::{Image, skipped};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::beside::BrokerBeside;
use shop::{AGENT, HOME, Shop, VERSION};

const UPGRADE: &str = "brokkr-agent-upgrade";

/// Begins an upgrade to the next version with this image, as the agent does.
async fn begin(shop: &Shop, image: &str) -> Result<()> {
    let (current, annotations) = shop.deployed().await?;
    let client = shop.cluster().client_for(HOME, AGENT).await?;
    let attempt = json!({"id": 7, "image": image, "from": VERSION}).to_string();
    let stored: Api<ConfigMap> = Api::namespaced(client.clone(), HOME);
    let parameters = PatchParams::apply(AGENT).force();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": UPGRADE}, "data": {"attempt": attempt},
    });
    stored.patch(UPGRADE, &parameters, &Patch::Apply(map)).await?;
    let forgotten = json!({"data": {"result": null, "end": null}});
    stored.patch(UPGRADE, &PatchParams::default(), &Patch::Merge(forgotten)).await?;
    let patch = json!({
        "metadata": {"annotations": {
            "brokkr.io/agent-version": NEXT_AGENT_VERSION,
            "brokkr.io/previous-image": current,
            "brokkr.io/previous-version": annotations["brokkr.io/agent-version"],
        }},
        "spec": {"template": {"spec": {"containers": [{"name": "agent", "image": image}]}}},
    });
    let deployments: Api<Deployment> = Api::namespaced(client, HOME);
    deployments.patch(AGENT, &PatchParams::default(), &Patch::Strategic(patch)).await?;
    Ok(())
}

/// Returns the kind of the reason for which the former image was restored.
async fn reason(shop: &Shop) -> Result<String> {
    let stored: Api<ConfigMap> = Api::namespaced(shop.cluster().admin().await?, HOME);
    let data = stored.get(UPGRADE).await?.data.context("data")?;
    let end: Value = serde_json::from_str(data.get("end").context("an end")?)?;
    Ok(end["reason"]["kind"].as_str().context("a kind")?.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the agent under two versions, which takes minutes to build; .ci/nightly runs it"]
async fn an_agent_upgrades_itself_and_a_version_that_fails_is_undone() -> Result<()> {
    if skipped()? {
        return Ok(());
    }
    let (terminal, scratch) = (Box::pin(shop::terminal()).await?, Scratch::new("broker")?);
    let broker = Arc::new(BrokerBeside::start(&terminal.cluster, &scratch).await?);
    let (shop, (_, next)) = (Shop::join("shop-1", terminal, broker).await?, Image::next_agent()?);
    let (first, _) = shop.deployed().await?;

    // It takes over, and never becomes ready.
    shop.types("kubectl apply -f unconfirmable.yaml").await?;
    begin(&shop, &next).await?;
    shop.serves(NEXT_AGENT_VERSION).await?;
    shop.has(&first).await?;
    assert_eq!(reason(&shop).await?, "not_confirmed");
    shop.serves(VERSION).await?;
    shop.repairs().await?;

    // Its image cannot be pulled. The former version goes on serving.
    let missing = format!("{AGENT_REPOSITORY}@sha256:{}", "0".repeat(64));
    begin(&shop, &missing).await?;
    shop.repairs().await?;
    shop.has(&first).await?;
    assert_eq!(reason(&shop).await?, "not_started");
    shop.repairs().await?;

    shop.types("kubectl delete -f unconfirmable.yaml").await?;
    begin(&shop, &next).await?;
    shop.has(&next).await?;
    shop.serves(NEXT_AGENT_VERSION).await?;
    shop.repairs().await
}

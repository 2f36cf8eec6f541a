//! The fault proxy in front of the real kube-apiserver.

use std::time::Duration;

use anyhow::Result;
use brokkr_testkit::cluster::{client, kubeconfig};
use brokkr_testkit::proxy::{Action, CannedResponse, Matcher};
use brokkr_testkit::{Cluster, FaultProxy, Scratch, eventually, unique};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams, WatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::world::WAIT_TIMEOUT;

#[tokio::test]
async fn the_proxy_carries_a_real_client_of_a_real_api_server() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let proxy = FaultProxy::of_cluster(&cluster).await?;
    let scratch = Scratch::new("proxied")?;
    let file = scratch.path().join("kubeconfig");
    let route = proxy.route();
    let context = kubeconfig::Context {
        url: &route.url,
        authority: &route.authority,
        ..cluster.admin_context("proxied")
    };
    kubeconfig::write(&file, &[context])?;
    let maps: Api<ConfigMap> = Api::namespaced(client(&file).await?, "default");
    let (name, label) = (unique("proxied"), unique("row"));
    let apply = async |value: &str| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"value": value},
            "metadata": {"name": name, "labels": {"row": label}}});
        maps.patch(&name, &PatchParams::apply("proxied").force(), &Patch::Apply(&map)).await
    };

    // Executed without a response.
    let rule = proxy.when(Matcher::applies().named(&name).nth(1), Action::LoseResponse);
    assert!(apply("1").await.is_err());
    rule.wait_for_hits(1, WAIT_TIMEOUT).await?;
    let made = maps.get(&name).await?;
    assert_eq!(apply("1").await?.resource_version(), made.resource_version());

    // A watch delivers events.
    let selector = format!("row={label}");
    let version = maps.list(&ListParams::default().labels(&selector)).await?.metadata.resource_version;
    let parameters = WatchParams::default().labels(&selector);
    let events = maps.watch(&parameters, &version.unwrap_or_default()).await?;
    let mut events = std::pin::pin!(events);
    apply("2").await?;
    let event = tokio::time::timeout(WAIT_TIMEOUT, events.next()).await?.expect("an event")?;
    assert!(matches!(event, kube::api::WatchEvent::Modified(map) if map.name_any() == name));

    // A refusal in the server's own format.
    proxy.when(Matcher::lists("configmaps").first(1), Action::Respond(CannedResponse::gone()));
    let refused = maps.list(&ListParams::default()).await.expect_err("refused");
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 410 && status.reason == "Expired"));

    // A held request is sent when it is released.
    let rule = proxy.when(Matcher::applies().named(&name).nth(1), Action::Hold);
    let held = tokio::time::timeout(Duration::from_millis(500), apply("3")).await;
    assert!(held.is_err());
    rule.release();
    eventually(WAIT_TIMEOUT, "the held write to land", async || {
        maps.get(&name).await.is_ok_and(|map| map.data.is_some_and(|data| data["value"] == "3"))
    })
    .await?;
    maps.delete(&name, &Default::default()).await?;
    Ok(())
}

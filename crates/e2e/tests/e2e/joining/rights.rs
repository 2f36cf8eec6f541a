//! Missing permissions: of the user who installs, and of the installed agent.

use anyhow::{Context as _, Result};
use brokkr_testkit::{Attempt, Output, PodRunner, eventually};

use super::{Site, assert_explained};
use brokkr_testkit::world::WAIT_TIMEOUT;

/// A profile in which every permission is needed; cluster-wide ones would imply others.
const LISTED: [&str; 4] = ["--profile", "namespaces", "--target-namespace", "default"];

#[tokio::test]
async fn a_user_without_permission_to_install_is_refused_before_anything_is_created() -> Result<()> {
    let site = Site::new().await?;
    let (home, name) = (format!("{}-people", site.namespace), &site.namespace);
    site.cluster.kubectl(["create", "namespace", &home]).await?.ok()?;
    site.cluster.kubectl(["create", "serviceaccount", "jo", "-n", &home]).await?.ok()?;
    let kubeconfig = site.cluster.kubeconfig_for(&home, "jo").await?;
    let bound = format!("--serviceaccount={home}:jo");
    let next = "ask an administrator of the cluster to run this command, or the output of `brokkr agent join shop --print`";

    // The user cannot even see whether an agent is installed.
    let blind = site.join_by(&kubeconfig, "shop", &[]).await?;
    assert_explained(&blind, "rights", &["- get resource \"secrets\"", next])?;

    // All permissions in every namespace, and none on cluster-wide objects.
    let admin = ["create", "clusterrolebinding", name, "--clusterrole=admin", &bound];
    site.cluster.kubectl(admin).await?.ok()?;
    let refused = site.join_by(&kubeconfig, "shop", &[]).await?;
    assert_explained(&refused, "rights", &["- patch resource \"validatingadmissionpolicies\"", next])?;
    let made = ["get", "namespaces", name, "--ignore-not-found", "-o", "name"];
    assert_eq!(site.cluster.kubectl(made).await?.ok()?.stdout, "", "a part of it was installed");
    let tokens = site.fleet.get("/api/v1/join-tokens").await?;
    assert_eq!(tokens["items"], serde_json::json!([]), "a token was created although nothing was installed");

    // A user with all permissions can join.
    let rights = format!("{name}-all");
    let all = ["create", "clusterrolebinding", &rights, "--clusterrole=cluster-admin", &bound];
    site.cluster.kubectl(all).await?.ok()?;
    let joined = site.join_by(&kubeconfig, "shop", &[]).await?.ok()?;
    assert!(joined.stdout.contains("agent shop has joined"), "{joined:?}");
    site.cluster.kubectl(["delete", "clusterrolebinding", name, &rights]).await?.ok()?;
    Ok(())
}

/// Joins, and removes a permission between the installation and the agent's first request.
async fn joined_without(site: &mut Site, binding: &[&str]) -> Result<Output> {
    let here = &*site;
    let cut = async {
        eventually(WAIT_TIMEOUT, "the agent to be installed", async || {
            let get = ["get", "deployment", "brokkr-agent", "-n", &here.namespace];
            match here.cluster.kubectl(get).await {
                Ok(found) if found.success() => Attempt::Done(()),
                other => Attempt::NotYet(format!("{other:?}")),
            }
        })
        .await?;
        here.cluster.kubectl([&["delete"][..], binding].concat()).await?.ok()?;
        PodRunner::start_in(&here.cluster, &here.namespace).await
    };
    let further = [&LISTED[..], &["--timeout", "40s"]].concat();
    let (failed, pods) = tokio::join!(here.join("shop", &further), cut);
    site.pods = Some(pods?);
    failed
}

#[tokio::test]
async fn an_agent_without_any_permission_is_detected_and_installing_again_fixes_it() -> Result<()> {
    let mut site = Site::without_pods().await?;
    let home = site.namespace.clone();
    let failed = joined_without(&mut site, &["rolebinding", "brokkr-agent", "-n", &home]).await?;
    let reason = format!(
        "system:serviceaccount:{home}:brokkr-agent is not allowed to store its key in its own namespace"
    );
    let next = "run the command again: its ServiceAccount or roles differ from the installation";
    assert_explained(&failed, "rights", &[&reason, next]).with_context(|| site.describe_pods())?;
    site.succeeds(&LISTED).await
}

#[tokio::test]
async fn an_agent_without_a_permission_names_it_and_installing_again_fixes_it() -> Result<()> {
    let mut site = Site::without_pods().await?;
    let binding = format!("brokkr-agent-records.{}", site.namespace);
    let failed = joined_without(&mut site, &["clusterrolebinding", &binding]).await?;
    let reason = "cannot list resource \"stacks\" in API group \"brokkr.io\"";
    // It has joined already: the token is used up.
    let next = "run the command again, with --rejoin and without labels";
    assert_explained(&failed, "rights", &[reason, next]).with_context(|| site.describe_pods())?;
    site.succeeds(&[&["--rejoin"][..], &LISTED].concat()).await
}

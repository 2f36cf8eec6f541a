//! Situations 12 to 14: everything is applied, and the Pods do not become ready. No kubelet runs here, so the test writes the
//! status of Pods; the scheduler is real.

use anyhow::{Result, ensure};
use serde_json::json;

use super::asking::{explained, follow};
use brokkr_testkit::world::{World, deployment_yaml, set_container_status};

/// Delivers a healthy Deployment, and then a version with a Pod that `change` has changed.
async fn deliver_changed(change: impl Fn(String) -> String) -> Result<World> {
    let world = World::start().await?;
    let yaml = |deployment: String| format!("{}{deployment}", world.manifest(&[]));
    world.fleet.apply("web", "env=prod", &yaml(deployment_yaml(&world.namespace, "web", 1))).await?;
    let changed = change(deployment_yaml(&world.namespace, "web", 1));
    world.fleet.submit("web", "env=prod", &yaml(changed)).await?;
    Ok(world)
}

fn in_pod(yaml: &str, line: &str) -> String {
    yaml.replace("    spec:\n      containers:", &format!("    spec:\n      {line}\n      containers:"))
}

/// Keeps Pods off every node, so that only the test writes their status.
fn unscheduled(yaml: &str, image: &str) -> String {
    in_pod(yaml, "schedulerName: nobody").replace("registry.example/web:1", image)
}

#[tokio::test]
async fn g3_why_an_image_that_cannot_be_pulled() -> Result<()> {
    let image = "registry.example/web:no-such-tag";
    let world = deliver_changed(|yaml| unscheduled(&yaml, image)).await?;
    let waiting = json!({"reason": "ImagePullBackOff", "message": "manifest unknown"});
    set_container_status(&world.client, &world.namespace, image, json!({"state": {"waiting": waiting}}))
        .await?;
    let explanation = explained(&world.fleet, "12", "web", "image_not_pulled").await?;
    ensure!(
        explanation.message.contains(image) && explanation.message.contains("manifest unknown"),
        "{explanation:?}"
    );
    follow(&world, &explanation, "web").await
}

#[tokio::test]
async fn g3_why_a_container_that_crashes_again_and_again() -> Result<()> {
    let image = "registry.example/web:crashes";
    let world = deliver_changed(|yaml| unscheduled(&yaml, image)).await?;
    let ended = json!({"exitCode": 3, "reason": "Error", "message": "no DATABASE_URL\n"});
    let crash = json!({
        "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended},
    });
    set_container_status(&world.client, &world.namespace, image, crash).await?;
    let explanation = explained(&world.fleet, "13", "web", "crash_loop").await?;
    ensure!(
        explanation.message.contains("exits with code 3, restarted 4 times: no DATABASE_URL"),
        "{explanation:?}"
    );
    follow(&world, &explanation, "web").await
}

#[tokio::test]
async fn g3_why_a_pod_that_fits_on_no_node() -> Result<()> {
    let world = deliver_changed(|yaml| in_pod(&yaml, "nodeSelector: {no: such-node}")).await?;
    let explanation = explained(&world.fleet, "14", "web", "unschedulable").await?;
    ensure!(explanation.message.contains("nodes are available"), "{explanation:?}");
    follow(&world, &explanation, "web").await
}

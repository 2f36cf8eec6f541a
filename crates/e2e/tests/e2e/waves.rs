//! Waves that wait (J5), and Jobs as steps (A8, B8).

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::eventually;
use brokkr_testkit::world::{World, config_map_yaml};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use brokkr_testkit::world::WAIT_TIMEOUT;

/// Returns a Job that runs to completion.
fn job(world: &World, note: &str, ttl: &str) -> String {
    format!(
        "---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: migrate, namespace: {}}}\nspec:\n  {ttl}\n  template:\n    \
         metadata: {{annotations: {{note: '{note}'}}}}\n    \
         spec: {{restartPolicy: Never, containers: [{{name: app, image: 'registry.example/migrate:1'}}]}}\n",
        world.namespace
    )
}

/// A Deployment of which no Pod finds a node.
fn unschedulable(world: &World) -> String {
    format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: database, namespace: {}}}\nspec:\n  \
         selector: {{matchLabels: {{app: database}}}}\n  template:\n    metadata: {{labels: {{app: database}}}}\n    \
         spec: {{nodeSelector: {{no: node}}, containers: [{{name: app, image: 'registry.example/database:1'}}]}}\n",
        world.namespace
    )
}

fn later(world: &World, value: &str) -> String {
    let yaml = config_map_yaml(&world.namespace, "later", value);
    yaml.replace("metadata:\n", "metadata:\n  annotations: {brokkr.io/wave: '1'}\n")
}

async fn annotate(world: &World, annotations: &[&str]) -> Result<()> {
    let arguments = [&["stack", "annotate", "web"][..], annotations].concat();
    world.fleet.brokkr(&arguments).await?.ok()?;
    Ok(())
}

fn jobs(world: &World) -> Api<Job> {
    Api::namespaced(world.client.clone(), &world.namespace)
}

/// Plays the kubelet for the Pod that no node has.
async fn make_ready(world: &World) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    let pod = pods.list(&ListParams::default().labels("app=database")).await?.items.pop().context("a Pod")?;
    let ready = ["Ready", "ContainersReady"].map(|kind| json!({"type": kind, "status": "True"}));
    let status = json!({"status": {"phase": "Running", "conditions": ready}});
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(status)).await?;
    Ok(())
}

#[tokio::test]
async fn j5_d2_a_wave_that_is_not_ready_in_time_is_a_failure_and_goes_on_when_it_is_ready() -> Result<()> {
    let world = World::start().await?;
    annotate(&world, &["brokkr.io/wave-wait=healthy", "brokkr.io/wave-wait-seconds=4"]).await?;
    let yaml = world.manifest(&[]) + &unschedulable(&world) + &later(&world, "1");
    world.fleet.submit("web", "env=prod", &yaml).await?;
    // The version keeps what the annotations said when it was submitted.
    annotate(&world, &["brokkr.io/wave-wait-", "brokkr.io/wave-wait-seconds-"]).await?;
    world
        .wait_for_status("web", "shop-1", "the wave to be named", |row| row["reason"] == "WaitingForWave")
        .await?;
    let failed = world
        .wait_for_status("web", "shop-1", "the wave to fail", |row| row["reason"] == "WaveNotReady")
        .await?;
    assert_eq!(failed["state"], "failed", "{failed}");
    assert_eq!(failed["details"]["wave"], json!({"number": 0}), "{failed}");
    assert_eq!(failed["objects"][0]["object"]["name"], "database", "{failed}");
    let why = world.fleet.brokkr(["why", "web", "--agent", "shop-1"]).await?.stdout;
    assert!(why.contains("wave 0 is not ready") && why.contains("database"), "{why}");
    assert_eq!(world.value("later").await?, None, "the next wave is not written");
    world.agent.kill9();
    world.agent.start()?;
    make_ready(&world).await?;
    world.wait_for_value("later", "1").await
}

#[tokio::test]
async fn a8_b8_equal_content_does_not_run_a_job_again_that_is_gone_and_a_rerun_does() -> Result<()> {
    let world = World::start().await?;
    annotate(&world, &["brokkr.io/wave-wait=healthy"]).await?;
    let version = |value: &str| {
        world.manifest(&[]) + &job(&world, "one", "ttlSecondsAfterFinished: 1") + &later(&world, value)
    };
    let mark = world.cluster.audit().mark().context("an audit log")?;
    let created = || -> Result<usize> {
        let requests = world.agent.requests(mark)?;
        let is_job = |request: &&brokkr_testkit::audit::Request| {
            request.resource == "jobs" && request.is_write() && request.code == 201
        };
        Ok(requests.iter().filter(is_job).count())
    };
    world.fleet.apply("web", "env=prod", &version("1")).await?;
    let gone = async || {
        eventually(WAIT_TIMEOUT, "the Job to be collected", async || {
            let live = jobs(&world).get_opt("migrate").await?;
            ensure!(live.is_none(), "it still exists");
            anyhow::Ok(())
        })
        .await
    };
    gone().await?;
    // Equal content, and other content with the same Job.
    world.fleet.apply("web", "env=prod", &version("1")).await?;
    world.fleet.apply("web", "env=prod", &version("2")).await?;
    world.wait_for_value("later", "2").await?;
    assert_eq!(created()?, 1);
    world.fleet.brokkr(["stack", "rerun", "web", "--job", "migrate", "--wait=rollout"]).await?.ok()?;
    assert_eq!(created()?, 2);
    gone().await?;
    world.agent.kill9();
    world.agent.start()?;
    world.fleet.apply("web", "env=prod", &version("2")).await?;
    assert_eq!(created()?, 2);
    let unknown = world.fleet.brokkr(["stack", "rerun", "web", "--job", "other"]).await?;
    assert!(!unknown.success() && unknown.stderr.contains("no Job other"), "{unknown:?}");
    Ok(())
}

/// B2 and J5: another manifest replaces the Job, and what comes later waits for it.
#[tokio::test]
async fn a8_j5_another_manifest_replaces_the_job() -> Result<()> {
    let world = World::start().await?;
    annotate(&world, &["brokkr.io/wave-wait=healthy"]).await?;
    let version = |note: &str| world.manifest(&[]) + &job(&world, note, "") + &later(&world, note);
    world.fleet.apply("web", "env=prod", &version("one")).await?;
    let first = jobs(&world).get("migrate").await?.uid();
    world.fleet.apply("web", "env=prod", &version("two")).await?;
    let second = jobs(&world).get("migrate").await?.uid();
    assert_ne!(first, second);
    // The first manifest has run: its Job does not come back, and the other one goes.
    world.fleet.apply("web", "env=prod", &version("one")).await?;
    assert!(jobs(&world).get_opt("migrate").await?.is_none());
    world.wait_for_value("later", "one").await
}

/// A rendered chart: a hook before everything, one after it, and a test, which is left out and named.
#[tokio::test]
async fn j5_helm_hooks_of_install_and_upgrade_run_and_others_are_left_out() -> Result<()> {
    let world = World::start().await?;
    let hook = |yaml: String, name: &str, annotations: &str| {
        yaml.replace("name: migrate,", &format!("name: {name}, annotations: {{{annotations}}},"))
    };
    let chart = world.manifest(&[("settings", "1")])
        + &hook(
            job(&world, "a", ""),
            "before",
            "helm.sh/hook: 'pre-install,pre-upgrade', helm.sh/hook-delete-policy: hook-succeeded",
        )
        + &hook(job(&world, "b", ""), "after", "helm.sh/hook: post-install")
        + &hook(job(&world, "c", ""), "upgrade", "helm.sh/hook: post-upgrade")
        + &hook(job(&world, "d", ""), "smoke", "helm.sh/hook: test");
    let mark = world.cluster.audit().mark().context("an audit log")?;
    let output = world.fleet.apply("web", "env=prod", &chart).await?;
    let requests = world.agent.requests(mark)?;
    let is_created = |request: &&brokkr_testkit::audit::Request| {
        ["jobs", "configmaps"].contains(&request.resource.as_str())
            && request.namespace == world.namespace
            && request.is_write()
            && request.code == 201
    };
    let created: Vec<&str> =
        requests.iter().filter(is_created).map(|request| request.name.as_str()).collect();
    assert_eq!(created, ["before", "settings", "after"]);
    assert!(output.stderr.contains("smoke is left out"), "{output:?}");
    let names = async || -> Result<Vec<String>> {
        let all = jobs(&world).list(&ListParams::default()).await?;
        Ok(all.iter().map(|job| job.name_any()).collect())
    };
    assert_eq!(names().await?, ["after"], "the one before was deleted");
    let events = world.events("web").await?;
    let applied = events.iter().find(|event| event["transition"] == "applied").context("applied")?;
    assert_eq!(applied["objects"][0]["reason"], "HookLeftOut", "{applied}");
    world.fleet.apply("web", "env=prod", &chart.replace("value: \"1\"", "value: \"2\"")).await?;
    assert_eq!(names().await?, ["after", "upgrade"]);
    Ok(())
}

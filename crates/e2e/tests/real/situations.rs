//! What only real Pods show: crash loops, failed pulls, probes, Jobs, quotas. In each situation, health, `why` and `wait` are
//! right, and the screens of docs/why.md are what is really printed.

use std::time::{Duration, Instant};

use anyhow::Result;
use brokkr_testkit::nodes::images::TEST_PROGRAM;
use brokkr_testkit::{Attempt, eventually};
use serde_json::Value;

use crate::site::{DEADLINE, Site, deployment, runs};

#[tokio::test]
async fn f6_a_crash_loop_is_never_healthy_and_ends_a_wait() -> Result<()> {
    let Some(site) = Site::start("crash").await? else { return Ok(()) };
    let container = runs("--say=no DATABASE_URL, --exit=3");
    site.submit(&deployment(&format!("{container}, terminationMessagePolicy: FallbackToLogsOnError")))
        .await?;
    let row = site.shows("degraded", "CrashLoopBackOff").await?;
    let message = row["message"].as_str().unwrap_or_default();
    assert!(message.contains("exits with code 3") && message.contains("no DATABASE_URL"), "{message}");
    site.screen("Crash loop").await?;
    let started = Instant::now();
    let waited = site.wait(&["--timeout", "3m"]).await?;
    assert_eq!(waited.code, 3, "{waited:?}");
    assert!(started.elapsed() >= Duration::from_secs(60), "{:?}", started.elapsed());
    // Its Pods are ready for a moment after every restart.
    site.cluster.kubectl(["-n", &site.namespace, "delete", "pods", "--all"]).await?.ok()?;
    // Long enough that it would be called healthy if its last crash were forgotten.
    let until = Instant::now() + Duration::from_secs(15);
    while Instant::now() < until {
        let row = site.status().await?;
        assert_eq!(row["state"], "degraded", "{row:#}");
    }
    let transitions = site.transitions().await?;
    assert!(!transitions.contains(&"healthy".to_owned()), "{transitions:?}");
    Ok(())
}

#[tokio::test]
async fn f6_a_failed_pull_is_named_within_seconds_and_ends_a_wait() -> Result<()> {
    let Some(site) = Site::start("pull").await? else { return Ok(()) };
    let submitted = site.submit(&deployment("image: 'registry.invalid/nothing:1'")).await?;
    let row = eventually(DEADLINE, "a failed pull", async || match site.status().await {
        Ok(row) if ["ErrImagePull", "ImagePullBackOff"].iter().any(|reason| row["reason"] == *reason) => {
            Attempt::Done(row)
        }
        other => Attempt::NotYet(format!("{other:#?}")),
    })
    .await?;
    let named_after = submitted.elapsed();
    assert_eq!(row["state"], "degraded");
    site.screen("Failed image pull").await?;
    let waiting = Instant::now();
    assert_eq!(site.wait(&["--timeout", "3m"]).await?.code, 3);
    // Compared with the minute of the wait in the same run, because the machine may be slow.
    let waited = waiting.elapsed();
    assert!(named_after < waited / 2, "named after {named_after:.1?}, the wait took {waited:.1?}");
    Ok(())
}

#[tokio::test]
async fn f6_healthy_means_stable() -> Result<()> {
    let Some(site) = Site::start("stable").await? else { return Ok(()) };
    let submitted = site.submit(&deployment(&runs("--serve=:8080"))).await?;
    site.wait(&["--timeout", "90s"]).await?.ok()?;
    // Ready after a second or two, and then for ten seconds.
    assert!(submitted.elapsed() >= Duration::from_secs(10), "{:?}", submitted.elapsed());
    let mut transitions = site.transitions().await?;
    transitions.dedup();
    assert_eq!(transitions, ["applied", "healthy"]);
    Ok(())
}

#[tokio::test]
async fn g3_a_failing_readiness_probe_is_named() -> Result<()> {
    let Some(site) = Site::start("probe").await? else { return Ok(()) };
    let probe = "readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}";
    site.submit(&deployment(&format!("{}, {probe}", runs("--serve=:8080, --ready-after=-1s")))).await?;
    let row = site.shows("degraded", "ReadinessProbeFailing").await?;
    assert!(row["message"].as_str().is_some_and(|message| message.contains("503")), "{row:#}");
    site.screen("Failing readiness probe").await?;
    // It may become ready by itself, so that a wait does not end early.
    assert_eq!(site.wait(&["--timeout", "5s"]).await?.code, 124);
    Ok(())
}

#[tokio::test]
async fn b8_a_job_with_a_time_to_live_runs_once() -> Result<()> {
    let Some(site) = Site::start("ttl").await? else { return Ok(()) };
    let job = |note: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: note, namespace: NAMESPACE}}\ndata: {{note: '{note}'}}\n---\n\
             apiVersion: batch/v1\nkind: Job\nmetadata: {{name: migrate, namespace: NAMESPACE}}\n\
             spec: {{ttlSecondsAfterFinished: 1, template: {{spec: {{restartPolicy: Never, \
             containers: [{{name: app, {}}}]}}}}}}\n",
            runs("--say=migrated, --exit=0")
        )
    };
    let mark = site.cluster.audit().mark()?;
    site.submit(&job("one")).await?;
    let jobs_created = || -> Result<usize> {
        let requests = site.cluster.audit().requests(mark)?;
        let is_job = |request: &&brokkr_testkit::audit::Request| {
            request.resource == "jobs"
                && request.namespace == site.namespace
                && request.is_write()
                && request.code == 201
        };
        Ok(requests.iter().filter(is_job).count())
    };
    let is_gone = async || {
        let jobs = site.cluster.kubectl(["-n", &site.namespace, "get", "jobs", "-o", "name"]).await?.ok()?;
        anyhow::Ok(jobs.stdout.trim().is_empty() && jobs_created()? > 0)
    };
    eventually(DEADLINE, "the job to be collected", async || matches!(is_gone().await, Ok(true))).await?;
    site.wait(&["--timeout", "60s"]).await?.ok()?;
    // Another version with an equal Job, for an agent that knows only what it has recorded.
    site.agent.restart()?;
    site.submit(&job("two")).await?;
    site.wait(&["--timeout", "60s"]).await?.ok()?;
    assert_eq!(jobs_created()?, 1);
    let transitions = site.transitions().await?;
    assert!(!transitions.iter().any(|one| one == "degraded" || one == "repaired"), "{transitions:?}");
    site.screen("Completed Job that was deleted").await
}

#[tokio::test]
async fn g3_an_init_container_that_hangs_is_named() -> Result<()> {
    let Some(site) = Site::start("init").await? else { return Ok(()) };
    let web = deployment(&runs("--serve=:8080"));
    let hanging = format!("initContainers: [{{name: migrate, image: '{TEST_PROGRAM}'}}], containers:");
    site.submit(&web.replace("containers:", &hanging)).await?;
    let row = site.shows("degraded", "ContainersNotInitialized").await?;
    assert!(row["message"].as_str().is_some_and(|message| message.contains("migrate")), "{row:#}");
    // It may finish by itself, so that a wait does not end early.
    assert_eq!(site.wait(&["--timeout", "3s"]).await?.code, 124);
    site.screen("Init container that hangs").await
}

#[tokio::test]
async fn g3_a_job_that_fails_is_retried_and_then_failed() -> Result<()> {
    let Some(site) = Site::start("job").await? else { return Ok(()) };
    let container =
        format!("{}, terminationMessagePolicy: FallbackToLogsOnError", runs("--say=no table, --exit=1"));
    let job = format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: migrate, namespace: NAMESPACE}}\n\
         spec: {{backoffLimit: 1, template: {{spec: {{restartPolicy: Never, containers: [{{name: app, {container}}}]}}}}}}\n"
    );
    site.submit(&job).await?;
    let row = site.shows("degraded", "BackoffLimitExceeded").await?;
    assert!(row["message"].as_str().is_some_and(|message| message.contains("no table")), "{row:#}");
    // It does not run again by itself.
    assert_eq!(site.wait(&["--timeout", "3m"]).await?.code, 3);
    site.screen("Failed Job").await
}

#[tokio::test]
async fn g3_a_container_that_needs_more_memory_than_its_limit_is_named() -> Result<()> {
    let Some(site) = Site::start("memory").await? else { return Ok(()) };
    site.submit(&deployment(&format!("{}, resources: {{limits: {{memory: 32Mi}}}}", runs("--memory=200"))))
        .await?;
    let row = site.shows("degraded", "OOMKilled").await?;
    assert!(row["message"].as_str().is_some_and(|message| message.contains("32Mi")), "{row:#}");
    site.screen("Too little memory").await
}

#[tokio::test]
async fn g3_a_quota_that_allows_no_pod_is_named() -> Result<()> {
    let Some(site) = Site::start("quota").await? else { return Ok(()) };
    let quota = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: none, namespace: NAMESPACE}\nspec: {hard: {pods: '0'}}\n";
    site.submit(&format!("{quota}---\n{}", deployment(&runs("--serve=:8080")))).await?;
    site.shows("degraded", "QuotaExceeded").await?;
    // Other Pods may go, so that a wait does not end early.
    assert_eq!(site.wait(&["--timeout", "3s"]).await?.code, 124);
    site.screen("Quota").await
}

#[tokio::test]
async fn g3_a_pod_that_fits_on_no_node_is_named() -> Result<()> {
    let Some(site) = Site::start("node").await? else { return Ok(()) };
    let web = deployment(&runs("--serve=:8080"));
    site.submit(&web.replace("containers:", "nodeSelector: {disk: fast}, containers:")).await?;
    site.shows("degraded", "Unschedulable").await?;
    // A node may come, so that a wait does not end early.
    assert_eq!(site.wait(&["--timeout", "3s"]).await?.code, 124);
    site.screen("Pod that fits on no node").await
}

/// The second version crashes: its first Pod, the one with the highest number, stops the rollout, and the other one goes on
/// running the first version.
#[tokio::test]
async fn g3_a_stateful_set_stops_at_a_pod_that_crashes() -> Result<()> {
    let Some(site) = Site::start("set").await? else { return Ok(()) };
    let set = |arguments: &str| {
        format!(
            "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: db, namespace: NAMESPACE}}\n\
             spec: {{replicas: 2, minReadySeconds: 3, serviceName: db, selector: {{matchLabels: {{app: db}}}}, \
             template: {{metadata: {{labels: {{app: db}}}}, spec: {{terminationGracePeriodSeconds: 1, \
             containers: [{{name: app, {}}}]}}}}}}\n",
            runs(arguments)
        )
    };
    site.submit(&set("--serve=:8080")).await?;
    site.wait(&["--timeout", "90s"]).await?.ok()?;
    site.submit(&set("--exit=1")).await?;
    let row = site.shows("degraded", "CrashLoopBackOff").await?;
    assert!(row["message"].as_str().is_some_and(|message| message.contains("pod db-1")), "{row:#}");
    let pods =
        site.cluster.kubectl(["-n", &site.namespace, "get", "pod", "db-0", "-o", "json"]).await?.ok()?;
    let pod: Value = pods.json()?;
    assert_eq!(pod["spec"]["containers"][0]["args"][0], "--serve=:8080");
    site.screen("StatefulSet that stops at a Pod").await
}

#[tokio::test]
async fn g3_a_budget_that_allows_no_disruption_is_healthy() -> Result<()> {
    let Some(site) = Site::start("budget").await? else { return Ok(()) };
    let budget = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web, namespace: NAMESPACE}\n\
                  spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}\n";
    site.submit(&format!("{budget}---\n{}", deployment(&runs("--serve=:8080")))).await?;
    site.wait(&["--timeout", "90s"]).await?.ok()?;
    // It really protects the Pod: an eviction is refused, and the stack stays healthy.
    let node = ["-n", &site.namespace, "get", "pods", "-o", "jsonpath={.items[0].metadata.name}"];
    let pod = site.cluster.kubectl(node).await?.ok()?.stdout;
    let eviction = serde_json::json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": site.namespace},
    });
    let file = site.fleet.cli.file("eviction.json", &eviction.to_string())?.display().to_string();
    let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", site.namespace);
    let evicted = site.cluster.kubectl(["create", "--raw", &path, "-f", &file]).await?;
    assert!(evicted.stderr.contains("disruption budget"), "{evicted:?}");
    let transitions = site.transitions().await?;
    assert!(!transitions.contains(&"degraded".to_owned()), "{transitions:?}");
    site.screen("PodDisruptionBudget that allows no disruption").await
}

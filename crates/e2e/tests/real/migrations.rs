//! J5, A8, D6: a migration runs once before its workload, on real nodes, although the agent is killed again and again.

use std::time::Duration;

use anyhow::{Result, ensure};
use brokkr_testkit::audit::Request;
use brokkr_testkit::eventually;

use crate::site::{DEADLINE, Site, deployment, runs};

/// How often the agent is killed: a few times in CI, and more often every night.
fn kills() -> usize {
    std::env::var("BROKKR_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

fn version(number: usize) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: migrate, namespace: NAMESPACE}}\n\
         spec: {{template: {{spec: {{restartPolicy: Never, containers: [{{name: app, {}}}]}}}}}}\n---\n{}",
        runs(&format!("'--say=version {number}', --exit=0")),
        deployment(&format!("env: [{{name: VERSION, value: '{number}'}}], {}", runs("--serve=:8080")))
            .replace(
                "{name: web, namespace: NAMESPACE}",
                "{name: web, namespace: NAMESPACE, annotations: {brokkr.io/wave: '1'}}"
            )
    )
}

#[tokio::test]
async fn j5_a8_d6_a_migration_runs_once_before_its_workload_although_the_agent_is_killed() -> Result<()> {
    let Some(site) = Site::start("migration").await? else { return Ok(()) };
    let annotation = "brokkr.io/wave-wait=healthy";
    site.fleet.brokkr(["stack", "annotate", "web", annotation]).await?.ok()?;
    for number in 1..=kills() {
        let mark = site.cluster.audit().mark()?;
        site.submit(&version(number)).await?;
        // A delivery takes a few seconds, most of which the Job runs.
        let after = Duration::from_millis(u64::from(rand::random::<u16>()) % 5000);
        tokio::time::sleep(after).await;
        site.agent.kill9();
        site.agent.start()?;
        let what = format!("version {number} to be healthy, killed after {after:?}");
        let rows = site.fleet.brokkr_json(&["stack", "history", "web"]).await?;
        let wanted = rows["items"][0]["sequence_id"].clone();
        eventually(DEADLINE, &what, async || {
            let row = site.status().await?;
            ensure!(row["state"] == "healthy" && row["sequence_id"] == wanted, "{row:#}");
            anyhow::Ok(())
        })
        .await?;
        let requests = site.cluster.audit().requests(mark)?;
        check(&requests, &site.namespace, &what)?;
    }
    Ok(())
}

/// Checks that one Job was created, and that the Deployment was written only after the Job's status was written last.
fn check(requests: &[Request], namespace: &str, what: &str) -> Result<()> {
    let done = |request: &&Request| {
        request.namespace == namespace && request.is_write() && request.stage == "ResponseComplete"
    };
    let done: Vec<&Request> = requests.iter().filter(done).collect();
    let created = done.iter().filter(|request| request.resource == "jobs" && request.code == 201).count();
    ensure!(created == 1, "{what}: {created} Jobs were created");
    let ended = done.iter().filter(|request| request.resource == "jobs" && request.subresource == "status");
    let ended = ended.map(|request| request.reached).max();
    let begun = done.iter().filter(|request| {
        request.resource == "deployments"
            && request.subresource.is_empty()
            && request.code < 300
            && is_agent(request)
    });
    let begun = begun.map(|request| request.received).min();
    ensure!(
        ended.is_some() && begun > ended,
        "{what}: the Job ended at {ended:?}, and the Deployment was written at {begun:?}"
    );
    Ok(())
}

fn is_agent(request: &Request) -> bool {
    request.user_agent.starts_with("brokkr")
}

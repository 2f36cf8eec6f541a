//! Ten thousand objects in ten stacks: the time to apply them, the agent's memory, and the cost of a restart.

use std::time::{Duration, Instant};

use anyhow::Result;
use brokkr_testkit::audit::Request;
use brokkr_testkit::{Attempt, eventually};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::args::AgentArgs;
use crate::environment::{Environment, PATIENCE, memory_mib};
use crate::results::Results;
use crate::workload::{Object, Workload};

const STACKS: usize = 10;
/// Long enough for freed memory to be returned to the system.
const SETTLE: Duration = Duration::from_secs(15);

pub async fn run(args: &AgentArgs, environment: &Environment, results: &mut Results) -> Result<()> {
    let empty = memory_mib(&environment.agent, "VmRSS")?;
    results.add("rss_mib_before", empty);
    let names: Vec<String> = (0..STACKS).map(|number| format!("bench-many-{number}")).collect();
    let workloads: Vec<Workload> =
        names.iter().map(|name| Workload::mix(name, args.many_objects / STACKS)).collect();

    let started = Instant::now();
    for (name, workload) in names.iter().zip(&workloads) {
        environment.put_stack(name).await?;
        environment.submit(name, workload.yaml()).await?;
    }
    for name in &names {
        environment.applied_newest(name).await?;
    }
    results.add("write_10k_s", started.elapsed().as_secs_f64());
    environment.wait_until_idle().await?;
    tokio::time::sleep(SETTLE).await;
    results.add("rss_mib_10k", memory_mib(&environment.agent, "VmRSS")?);
    results.note("rss_mib_10k", format!("{} objects in {STACKS} stacks", args.many_objects));
    results.add("peak_mib_10k_write", memory_mib(&environment.agent, "VmHWM")?);

    restart(environment, results).await?;
    restart_with_drift(environment, &workloads, results).await?;
    let removed = names.iter().map(|name| environment.remove(name, name));
    try_join_all(removed).await?;
    Ok(())
}

/// Measures a restart without changes, which should write nothing.
async fn restart(environment: &Environment, results: &mut Results) -> Result<()> {
    let mark = environment.cluster.audit().mark()?;
    let started = jiff::Timestamp::now();
    environment.agent.restart()?;
    environment.fleet.active(environment.agent.name()).await?;
    environment.wait_until_idle().await?;
    let requests = environment.agent.requests(mark)?;
    let last = requests.iter().map(|request| request.reached).max().unwrap_or(started);
    results.add("restart_last_request_s", last.duration_since(started).as_secs_f64());
    results.add("restart_patches", requests.iter().filter(is_patch_of_stack).count() as f64);
    results.add("restart_requests", requests.iter().filter(|request| !request.is_watch()).count() as f64);
    tokio::time::sleep(SETTLE).await;
    results.add("restart_peak_mib", memory_mib(&environment.agent, "VmHWM")?);
    results.add("restart_rss_mib", memory_mib(&environment.agent, "VmRSS")?);
    Ok(())
}

/// Changes one object of each stack while the agent is down. When all of them are repaired, every stack has been compared with
/// its desired state.
async fn restart_with_drift(
    environment: &Environment,
    workloads: &[Workload],
    results: &mut Results,
) -> Result<()> {
    environment.agent.kill9();
    for workload in workloads {
        if let Some(object) = probe(workload) {
            let wrong = json!({"data": {"revision": "wrong"}});
            maps(environment, object)
                .patch(&object.name, &PatchParams::default(), &Patch::Merge(wrong))
                .await?;
        }
    }
    let mark = environment.cluster.audit().mark()?;
    let started = Instant::now();
    environment.agent.start()?;
    for object in workloads.iter().filter_map(probe) {
        let maps = maps(environment, object);
        eventually(PATIENCE, "the changed object to be repaired", async || {
            let map = maps.get(&object.name).await.ok().and_then(|map| map.data);
            let revision = map.and_then(|data| data.get("revision").cloned());
            if revision.as_deref() == Some("1") {
                Attempt::Done(())
            } else {
                Attempt::NotYet(format!("{revision:?}"))
            }
        })
        .await?;
    }
    results.add("restart_in_sync_s", started.elapsed().as_secs_f64());
    environment.wait_until_idle().await?;
    let requests = environment.agent.requests(mark)?;
    let needless = requests.iter().filter(is_patch_of_stack).count().saturating_sub(workloads.len());
    results.add("restart_needless_patches", needless as f64);
    Ok(())
}

fn is_patch_of_stack(request: &&Request) -> bool {
    request.verb == "patch" && request.group != "brokkr.io" && request.namespace != "brokkr-system"
}

/// Returns the last ConfigMap of a stack.
fn probe(workload: &Workload) -> Option<&Object> {
    workload.objects.iter().rev().find(|object| object.body["kind"] == "ConfigMap")
}

fn maps(environment: &Environment, object: &Object) -> Api<ConfigMap> {
    Api::namespaced(environment.admin.clone(), object.namespace.as_deref().unwrap_or_default())
}

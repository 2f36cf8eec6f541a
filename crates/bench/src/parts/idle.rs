//! An idle agent with a sweep every minute: changed objects, requests, and memory growth.

use std::collections::BTreeMap;

use anyhow::Result;
use brokkr_testkit::process::run as run_program;
use brokkr_testkit::programs::program;
use brokkr_testkit::{AgentOptions, Launch};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use crate::args::AgentArgs;
use crate::environment::{Environment, PATIENCE, memory_mib};
use crate::results::Results;
use crate::workload::Workload;

const AGENT: &str = "bench-idle";
const STACK: &str = "bench-idle";
const SWEEP: [&str; 2] = ["--sweep-interval", "60s"];

pub async fn run(args: &AgentArgs, environment: &Environment, results: &mut Results) -> Result<()> {
    let mut arguments = args.agent_arguments.clone();
    if knows_sweep().await? {
        arguments.extend(SWEEP.map(str::to_owned));
    }
    let options = AgentOptions { polling_interval: "30s".into(), arguments, ..AgentOptions::default() };
    let agent = environment.fleet.join_with(AGENT, &[], &environment.cluster, &options).await?;
    let workload = Workload::mix(STACK, args.objects);
    environment.put_stack_on(STACK, AGENT).await?;
    let submission = environment.submit(STACK, workload.yaml()).await?;
    environment.applied(STACK, &submission).await?;
    environment.wait_until_idle_of(&agent).await?;

    let (versions, mark) = (versions(environment).await?, environment.cluster.audit().mark()?);
    let before = memory_mib(&agent, "VmRSS")?;
    tokio::time::sleep(args.idle).await;
    let after = memory_mib(&agent, "VmRSS")?;
    let requests = agent.requests(mark)?;
    let moved = moved(&versions, &self::versions(environment).await?);

    results.add("idle_s", args.idle.as_secs_f64());
    results.add("idle_moved", moved as f64);
    results.note("idle_moved", format!("of {} resourceVersions", versions.len()));
    let of = |verb: &str| requests.iter().filter(|request| request.verb == verb).count() as f64;
    results.add("idle_watches", of("watch"));
    results.add("idle_reads", of("get") + of("list"));
    results.add("idle_patches", of("patch"));
    results.note("idle_patches", "by the sweep, which applies every object again and must change none");
    results.add("idle_other", requests.len() as f64 - of("watch") - of("get") - of("list") - of("patch"));
    results.add("idle_rss_mib_before", before);
    results.add("idle_rss_mib_after", after);
    environment.remove(STACK, STACK).await
}

/// Returns whether the agent has this option; older ones do not.
async fn knows_sweep() -> Result<bool> {
    let help = Launch::new("brokkr-agent", program("brokkr-agent")?).args(["run", "--help"]);
    Ok(run_program(help, PATIENCE).await?.ok()?.stdout.contains(SWEEP[0]))
}

async fn versions(environment: &Environment) -> Result<BTreeMap<String, String>> {
    let all = ListParams::default();
    let mut versions = BTreeMap::new();
    macro_rules! collect {
        ($($kind:ty),*) => {$(
            for object in Api::<$kind>::all(environment.admin.clone()).list_metadata(&all).await?.items {
                let (space, name) = (object.namespace().unwrap_or_default(), object.name_any());
                if space.starts_with(STACK) || name.starts_with(STACK) {
                    let key = format!("{} {space}/{name}", stringify!($kind));
                    versions.insert(key, object.resource_version().unwrap_or_default());
                }
            }
        )*};
    }
    collect!(Namespace, ConfigMap, Service, Deployment);
    Ok(versions)
}

fn moved(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> usize {
    let changed = before.iter().filter(|(key, version)| after.get(*key) != Some(version)).count();
    changed + after.keys().filter(|key| !before.contains_key(*key)).count()
}

//! A thousand stacks of four objects, from nothing to ready, with pods under kwok. Compared with the API
//! server's own limit: as many bare dry runs and PATCHes, and as many writes as the agent made for its
//! records.

use std::time::Instant;

use anyhow::Result;
use brokkr_testkit::{Attempt, eventually};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::ListParams;

use crate::args::AgentArgs;
use crate::bare::Mode;
use crate::environment::{Environment, PATIENCE, Submission};
use crate::results::Results;
use crate::workload::{Object, Workload, configmap, namespace};

const OURS: &str = "bench-stacks-ours";
const BARE: &str = "bench-stacks-bare";
const AT_ONCE: usize = 16;

pub async fn run(args: &AgentArgs, environment: &mut Environment, results: &mut Results) -> Result<()> {
    environment.cluster.start_workloads().await?;
    let environment = &*environment;
    environment.bare.apply(&[&namespace(OURS), &namespace(BARE)], Mode::Write).await?;
    let names: Vec<String> = (0..args.stacks).map(|number| format!("app-{number}")).collect();
    let started = Instant::now();
    futures::stream::iter(&names)
        .map(|name| environment.put_stack(name))
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    results.add("stacks_register_s", started.elapsed().as_secs_f64());

    let mark = environment.cluster.audit().mark()?;
    let begun = Timestamp::now();
    let started = Instant::now();
    let submissions: Vec<(&String, Submission)> = futures::stream::iter(&names)
        .map(async |name| {
            let yaml = Workload::application(OURS, name).yaml();
            anyhow::Ok((name, environment.submit(name, yaml).await?))
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    results.add("stacks_submit_s", started.elapsed().as_secs_f64());
    let mut ready = begun;
    for (name, submission) in &submissions {
        let (_, hops) = environment.healthy(name, submission).await?;
        ready = ready.max(hops.reported.or(hops.healthy).unwrap_or(ready));
    }
    results.add("stacks_ready_s", ready.duration_since(begun).as_secs_f64());
    results.note(
        "stacks_ready_s",
        format!("{} stacks of 4 objects, first submission to last report", names.len()),
    );
    environment.wait_until_idle().await?;
    let requests = environment.requests_since(mark)?;
    results.add("stacks_requests", requests.len() as f64);
    let records = requests.iter().filter(|request| request.is_write() && request.namespace != OURS).count();
    results.add("stacks_record_writes", records as f64);

    let bare = bare(environment, &names, records).await?;
    results.add("stacks_bare_ready_s", bare);
    results.note("stacks_bare_ready_s", "as many bare dry runs, PATCHes and record-sized writes, under kwok");
    results.add_ratio("stacks_over_bare", "stacks_ready_s", &["stacks_bare_ready_s"]);
    Ok(())
}

/// Applies the same objects without an agent; returns the seconds until all Deployments are available.
async fn bare(environment: &Environment, names: &[String], records: usize) -> Result<f64> {
    let workloads: Vec<Workload> = names.iter().map(|name| Workload::application(BARE, name)).collect();
    let objects: Vec<&Object> = workloads.iter().flat_map(|workload| &workload.objects).collect();
    // Each record is created once and then updated.
    let revisions: Vec<Object> = (0..records)
        .map(|number| configmap(BARE, &format!("record-{}", number % names.len()), &number.to_string()))
        .collect();
    let started = Instant::now();
    environment.bare.apply(&objects, Mode::DryRun).await?;
    environment.bare.apply(&objects, Mode::Write).await?;
    environment.bare.apply(&revisions.iter().collect::<Vec<_>>(), Mode::Write).await?;
    let api: Api<Deployment> = Api::namespaced(environment.admin.clone(), BARE);
    eventually(PATIENCE, "all Deployments to be available", async || {
        let Ok(list) = api.list(&ListParams::default()).await else {
            return Attempt::NotYet("no list".into());
        };
        let available = |deployment: &&Deployment| {
            deployment.status.as_ref().is_some_and(|status| status.available_replicas.unwrap_or(0) > 0)
        };
        match list.items.iter().filter(available).count() {
            all if all == names.len() => Attempt::Done(()),
            some => Attempt::NotYet(format!("{some} of {}", names.len())),
        }
    })
    .await?;
    Ok(started.elapsed().as_secs_f64())
}

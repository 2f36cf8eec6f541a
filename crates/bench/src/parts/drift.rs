//! Edits and deletions by another user, each reverted, while unrelated objects change all the time. Compared, in the same run and
//! under the same load, with a minimal loop: watch by label, PATCH what differs.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use brokkr_testkit::audit::Request;
use brokkr_testkit::{Attempt, eventually};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::args::AgentArgs;
use crate::bare::Mode;
use crate::environment::{Environment, PATIENCE};
use crate::results::{Results, percentile};
use crate::workload::{Workload, namespace};

const OURS: &str = "bench-drift-ours";
const BARE: &str = "bench-drift-bare";
const UNRELATED: &str = "bench-drift-unrelated";
const EDITORS: usize = 2;
/// Few edits for each object, because the agent delays repeated repairs of one object on purpose.
const EDITS_PER_OBJECT: usize = 4;
/// Every n-th time the object is deleted instead.
const DELETIONS: usize = 5;

pub async fn run(args: &AgentArgs, environment: &Environment, results: &mut Results) -> Result<()> {
    let objects = (args.edits / EDITS_PER_OBJECT).max(1);
    environment.deliver(OURS, &Workload::configmaps(OURS, objects)).await?;
    let bare = BareLoop::start(environment, objects).await?;
    let unrelated = Unrelated::start(environment, args.unrelated).await?;
    environment.wait_until_idle().await?;

    let mark = environment.cluster.audit().mark()?;
    // In turn, so that both have the same load.
    let work = (0..args.edits).flat_map(|number| [(OURS, number), (BARE, number)]);
    futures::stream::iter(work)
        .map(|(space, number)| disturb(environment, space, number, objects))
        .buffer_unordered(EDITORS)
        .try_collect::<()>()
        .await?;
    let requests = environment.cluster.audit().requests(mark)?;
    drop((bare, unrelated));

    let user = environment.agent.user();
    let ours = latencies(&requests, OURS, |request| request.user == user);
    let theirs = latencies(&requests, BARE, |request| request.uri.contains("fieldManager=bare"));
    results.add("drift_p50_ms", percentile(&ours, 50));
    results.add("drift_p99_ms", percentile(&ours, 99));
    results.note("drift_p99_ms", format!("{} repairs", ours.len()));
    results.add("drift_bare_p50_ms", percentile(&theirs, 50));
    results.add("drift_bare_p99_ms", percentile(&theirs, 99));
    results.note("drift_bare_p99_ms", format!("{} repairs by a bare loop", theirs.len()));
    let churned = requests.iter().filter(|request| request.namespace == UNRELATED && request.is_write());
    results.add("drift_unrelated_writes", churned.count() as f64);
    results.add_ratio("drift_over_bare_p50", "drift_p50_ms", &["drift_bare_p50_ms"]);
    results.add_ratio("drift_over_bare_p99", "drift_p99_ms", &["drift_bare_p99_ms"]);
    environment.remove(OURS, OURS).await?;
    environment.bare.clear("bench-drift").await
}

/// Edits or deletes one object and waits until it is repaired.
pub(super) async fn disturb(
    environment: &Environment,
    space: &str,
    number: usize,
    objects: usize,
) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(environment.admin.clone(), space);
    let name = format!("settings-{}", number % objects);
    if number % DELETIONS == DELETIONS - 1 {
        maps.delete(&name, &Default::default()).await?;
    } else {
        let wrong = json!({"data": {"revision": format!("wrong-{number}")}});
        maps.patch(&name, &PatchParams::default(), &Patch::Merge(wrong)).await?;
    }
    eventually(PATIENCE, &format!("{space}/{name} to be repaired"), async || {
        match maps.get_opt(&name).await {
            Ok(Some(map)) if is_right(&map) => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await
}

fn is_right(map: &ConfigMap) -> bool {
    map.data.as_ref().and_then(|data| data.get("revision")).is_some_and(|revision| revision == "1")
}

/// A task that ends when it is dropped.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct BareLoop;

impl BareLoop {
    async fn start(environment: &Environment, objects: usize) -> Result<Task> {
        let mut workload = Workload::configmaps(BARE, objects);
        for object in &mut workload.objects {
            object.body["metadata"]["labels"]["bare"] = json!("yes");
        }
        environment.bare.create(&workload).await?;
        let maps: Api<ConfigMap> = Api::namespaced(environment.admin.clone(), BARE);
        let bodies: BTreeMap<String, serde_json::Value> =
            workload.objects.into_iter().map(|object| (object.name, object.body)).collect();
        Ok(Task(tokio::spawn(async move {
            let mut events =
                std::pin::pin!(watcher(maps.clone(), watcher::Config::default().labels("bare=yes")));
            while let Some(event) = events.next().await {
                let name = match event {
                    Ok(Event::Apply(map) | Event::InitApply(map)) if !is_right(&map) => map.name_any(),
                    Ok(Event::Delete(map)) => map.name_any(),
                    _ => continue,
                };
                let Some(body) = bodies.get(&name).cloned() else { continue };
                let maps = maps.clone();
                tokio::spawn(async move {
                    maps.patch(&name, &PatchParams::apply("bare").force(), &Patch::Apply(&body)).await
                });
            }
        })))
    }
}

/// Changes unrelated objects at a fixed rate.
struct Unrelated;

impl Unrelated {
    const OBJECTS: usize = 50;

    async fn start(environment: &Environment, a_second: u32) -> Result<Task> {
        let workload = Workload::configmaps(UNRELATED, Self::OBJECTS);
        environment.bare.apply(&[&namespace(UNRELATED)], Mode::Write).await?;
        environment.bare.create(&workload).await?;
        let maps: Api<ConfigMap> = Api::namespaced(environment.admin.clone(), UNRELATED);
        Ok(Task(tokio::spawn(async move {
            let mut beat = tokio::time::interval(Duration::from_secs(1) / a_second.max(1));
            for number in 0_usize.. {
                beat.tick().await;
                let (maps, name) = (maps.clone(), format!("settings-{}", number % Self::OBJECTS));
                tokio::spawn(async move {
                    let change = json!({"data": {"revision": number.to_string()}});
                    maps.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await
                });
            }
        })))
    }
}

/// Returns the milliseconds from each disturbance to the first repairing write, by the API server's clock.
pub(super) fn latencies(requests: &[Request], space: &str, is_repair: impl Fn(&Request) -> bool) -> Vec<f64> {
    let mut disturbed: BTreeMap<&str, Timestamp> = BTreeMap::new();
    let mut latencies = Vec::new();
    let mut writes: Vec<&Request> = requests
        .iter()
        .filter(|request| request.resource == "configmaps" && request.namespace == space)
        .filter(|request| request.is_write() && request.code < 300)
        .collect();
    writes.sort_by_key(|request| request.reached);
    for request in writes {
        if !is_repair(request) {
            disturbed.insert(&request.name, request.reached);
        } else if let Some(at) = disturbed.remove(request.name.as_str()) {
            latencies.push(request.reached.duration_since(at).as_secs_f64() * 1000.0);
        }
    }
    latencies
}

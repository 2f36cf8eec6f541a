//! `kill -9` of the agent at 50 random points and of the broker at 20, while stacks are submitted, changed and
//! deleted. In the end, the cluster has what was acknowledged last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use brokkr_testkit::{Attempt, eventually, seed};
use kube::ResourceExt as _;
use kube::api::ListParams;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

use brokkr_testkit::world::World;

const AGENT_KILLS: usize = 50;
const BROKER_KILLS: usize = 20;
const STACKS: usize = 3;
const NAMES: usize = 6;
const CONVERGENCE: Duration = Duration::from_secs(120);

type Content = BTreeMap<String, String>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_at_random_points_loses_nothing_leaks_nothing_and_doubles_no_event() -> Result<()> {
    let seed = seed();
    let world = World::start().await?;
    world.create_namespace().await?;
    let foreign = brokkr_testkit::world::uid_and_version(&world.apply_foreign("theirs").await?);
    let killed_enough = AtomicBool::new(false);

    let (acknowledged, ()) = futures::try_join!(
        work(&world, StdRng::seed_from_u64(seed), &killed_enough),
        kill(&world, StdRng::seed_from_u64(seed.wrapping_add(1)), &killed_enough),
    )?;

    let wanted: Content =
        acknowledged.values().flatten().map(|(name, value)| (name.clone(), value.clone())).collect();
    eventually(CONVERGENCE, "everything to be as it was last acknowledged", async || {
        match live(&world).await {
            Ok(live) if live == wanted => Attempt::Done(()),
            other => Attempt::NotYet(format!("live {other:?}, wanted {wanted:?}")),
        }
    })
    .await?;
    assert_eq!(
        brokkr_testkit::world::uid_and_version(&world.config_map("theirs").await?.expect("theirs")),
        foreign
    );
    no_event_lost_or_doubled(&world, &acknowledged).await
}

/// Submits, changes and deletes until enough processes were killed; returns what was acknowledged last.
async fn work(
    world: &World,
    mut random: StdRng,
    killed_enough: &AtomicBool,
) -> Result<BTreeMap<usize, Content>> {
    let mut acknowledged: BTreeMap<usize, Content> = BTreeMap::new();
    let mut round = 0;
    while !killed_enough.load(Ordering::Relaxed) {
        round += 1;
        let stack = random.random_range(0..STACKS);
        let name = format!("stack-{stack}");
        if acknowledged.contains_key(&stack) && random.random_bool(0.25) {
            world.fleet.brokkr(["stack", "delete", &name, "--yes"]).await?.ok()?;
            acknowledged.remove(&stack);
            continue;
        }
        let mut content = Content::new();
        for number in 0..NAMES {
            if random.random_bool(0.5) || number == 0 {
                content.insert(format!("s{stack}-{number}"), format!("r{round}"));
            }
        }
        let yaml: String = content
            .iter()
            .map(|(name, value)| brokkr_testkit::world::config_map_yaml(&world.namespace, name, value))
            .collect();
        world.fleet.submit(&name, "env=prod", &yaml).await?;
        acknowledged.insert(stack, content);
    }
    Ok(acknowledged)
}

/// The random pauses choose the moment at which the process is killed.
async fn kill(world: &World, mut random: StdRng, killed_enough: &AtomicBool) -> Result<()> {
    let mut victims: Vec<bool> = [vec![true; AGENT_KILLS], vec![false; BROKER_KILLS]].concat();
    for at in (1..victims.len()).rev() {
        victims.swap(at, random.random_range(0..=at));
    }
    for agent in victims {
        tokio::time::sleep(Duration::from_millis(random.random_range(0..700))).await;
        if agent {
            world.agent.restart()?;
        } else {
            world.fleet.broker.restart().await?;
        }
    }
    killed_enough.store(true, Ordering::Relaxed);
    Ok(())
}

/// Returns everything in the namespace with Brokkr's label.
async fn live(world: &World) -> Result<Content> {
    let ours = ListParams::default().labels("brokkr.io/agent");
    let maps = world.config_maps().list(&ours).await?;
    Ok(maps
        .items
        .into_iter()
        .map(|map| (map.name_any(), map.data.unwrap_or_default().remove("value").unwrap_or_default()))
        .collect())
}

async fn no_event_lost_or_doubled(world: &World, acknowledged: &BTreeMap<usize, Content>) -> Result<()> {
    let stacks: Vec<Value> =
        world.fleet.get("/api/v1/stacks?limit=500").await?["items"].as_array().cloned().unwrap_or_default();
    for stack in acknowledged.keys() {
        let name = format!("stack-{stack}");
        let sequence =
            stacks.iter().find(|item| item["name"] == *name).expect("listed")["sequence_id"].clone();
        eventually(
            CONVERGENCE,
            &format!("{name} to be reported healthy at {sequence}"),
            async || match world.events(&name).await {
                Ok(events) => events
                    .iter()
                    .any(|event| event["sequence_id"] == sequence && event["transition"] == "healthy")
                    .then_some(()),
                Err(_) => None,
            },
        )
        .await?;
    }
    // Every deleted stack was reported gone, and left no record.
    let living: BTreeSet<String> =
        stacks.iter().filter_map(|stack| stack["id"].as_str().map(ToOwned::to_owned)).collect();
    eventually(CONVERGENCE, "only existing stacks to have a record", async || match records(world).await {
        Ok(records) if records.is_subset(&living) && records.len() == acknowledged.len() => Attempt::Done(()),
        other => Attempt::NotYet(format!("{other:?}, existing {living:?}")),
    })
    .await?;
    let mut seen = BTreeSet::new();
    let (mut gone, mut applied) = (BTreeSet::new(), BTreeSet::new());
    let mut after = String::new();
    loop {
        let page = world.fleet.get(&format!("/api/v1/events?limit=500{after}")).await?;
        for event in page["items"].as_array().into_iter().flatten() {
            let transition = event["transition"].as_str().unwrap_or_default();
            if matches!(transition, "applied" | "removed") {
                let key = format!("{} {} {transition}", event["stack_id"], event["sequence_id"]);
                assert!(seen.insert(key.clone()), "reported twice: {key}");
                let stack = event["stack_id"].as_str().unwrap_or_default().to_owned();
                if transition == "removed" {
                    gone.insert(stack)
                } else {
                    applied.insert(stack)
                };
            }
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    let lost: Vec<_> =
        applied.iter().filter(|stack| !living.contains(*stack) && !gone.contains(*stack)).collect();
    assert!(lost.is_empty(), "deleted, but never reported as removed: {lost:?}");
    Ok(())
}

/// Returns the stacks that this agent has a record of.
async fn records(world: &World) -> Result<BTreeSet<String>> {
    let agent = world.fleet.agent("shop-1").await?.unwrap_or_default()["id"].clone();
    let list: Value = world.cluster.kubectl(["get", "stacks.brokkr.io", "-o", "json"]).await?.ok()?.json()?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items
        .iter()
        .filter(|item| item["spec"]["agentId"] == agent)
        .filter_map(|item| item["spec"]["stackId"].as_str().map(ToOwned::to_owned))
        .collect())
}

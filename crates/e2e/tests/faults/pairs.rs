//! Random pairs of faults: two at the same time, while a small stack is delivered, changed and deleted; then everything heals and
//! has to converge. Faults that are harmless alone are not always harmless together.
//!
//! `BROKKR_FAULT_PAIRS` sets the number of pairs (200 in `cargo xtask faults agent`); `BROKKR_SEED` replays a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_testkit::proxy::{Action, CannedResponse, Matcher, ProxiedRequest};
use brokkr_testkit::seed;
use futures::StreamExt as _;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::world::FaultWorld;

/// The default number of pairs, which keeps an ordinary run short.
const PAIRS: usize = 6;
/// Concurrent worlds, each with an agent and a broker; the pairs are divided among them.
const WORLDS: usize = 3;

/// The name of a fault, and the function that injects it.
type Fault = (&'static str, fn(&FaultWorld, &mut StdRng));

/// All faults, by what the proxy or the process does.
const FAULTS: [Fault; 20] = [
    ("an apply is not answered", |world, random| lose(world, Matcher::applies(), random)),
    ("a delete is not answered", |world, random| lose(world, Matcher::deletes(), random)),
    ("a write of the record is not answered", |world, random| {
        lose(world, Matcher::writes().about("stacks"), random);
    }),
    ("an apply is cut off", |world, random| cut(world, Matcher::applies(), random)),
    ("anything to the API server is cut off", |world, random| cut(world, Matcher::any(), random)),
    ("conflict", |world, random| refuse(world, Matcher::writes(), CannedResponse::conflict(), random)),
    ("too many requests", |world, random| refuse(world, Matcher::any(), CannedResponse::too_many(1), random)),
    ("internal error", |world, random| refuse(world, Matcher::any(), CannedResponse::internal(), random)),
    ("unavailable", |world, random| refuse(world, Matcher::writes(), CannedResponse::unavailable(), random)),
    ("a captive portal before the API server", |world, random| {
        refuse(world, Matcher::new(ProxiedRequest::is_list), CannedResponse::html(), random);
    }),
    ("lists are cut short", |world, random| {
        world.api_proxy.when(Matcher::new(ProxiedRequest::is_list).first(few(random)), Action::CutResponse);
    }),
    ("watches freeze", |world, random| {
        world.api_proxy.when(Matcher::new(ProxiedRequest::is_watch).first(few(random)), Action::Freeze);
    }),
    ("watches have expired", |world, random| {
        let expired = Action::WatchLine(CannedResponse::gone_line());
        world.api_proxy.when(Matcher::new(ProxiedRequest::is_watch).first(few(random)), expired);
    }),
    ("watches leave out an object", |world, _| {
        world.api_proxy.when(Matcher::watches("configmaps"), Action::drop_events_of("b"));
    }),
    ("lists are stale", |world, _| {
        let older = world.api_proxy.snapshot_of_lists();
        world.refuse_streaming_lists();
        world.api_proxy.when(Matcher::lists("configmaps"), Action::StaleLists(older));
    }),
    ("a write is held", |world, random| {
        world.api_proxy.when(Matcher::writes().nth(random.random_range(1..8)), Action::Hold);
    }),
    ("the broker is unreachable", |world, random| {
        world.broker_proxy.when(Matcher::any().first(few(random) * 2), Action::Cut);
    }),
    ("the broker's answers are lost", |world, random| {
        world.broker_proxy.when(Matcher::any().first(few(random)), Action::LoseResponse);
    }),
    ("the broker's answers are truncated", |world, random| {
        world.broker_proxy.when(Matcher::any().first(few(random)), Action::Truncate);
    }),
    ("a captive portal before the broker", |world, random| {
        world.broker_proxy.when(Matcher::any().first(few(random)), Action::Respond(CannedResponse::html()));
    }),
];

fn few(random: &mut StdRng) -> usize {
    random.random_range(1..5)
}

fn lose(world: &FaultWorld, what: Matcher, random: &mut StdRng) {
    world.api_proxy.when(what.nth(random.random_range(1..5)), Action::LoseResponse);
}

fn cut(world: &FaultWorld, what: Matcher, random: &mut StdRng) {
    world.api_proxy.when(what.first(few(random)), Action::Cut);
}

fn refuse(world: &FaultWorld, what: Matcher, with: CannedResponse, random: &mut StdRng) {
    world.api_proxy.when(what.first(few(random)), Action::Respond(with));
}

/// What happens to the agent's process in addition to the two faults.
#[derive(Clone, Copy, Debug)]
enum ProcessFault {
    None,
    Kill,
    Pause,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_pairs_by_seed() -> Result<()> {
    let seed = seed();
    let pairs = std::env::var("BROKKR_FAULT_PAIRS").ok().and_then(|text| text.parse().ok()).unwrap_or(PAIRS);
    let worlds = futures::future::try_join_all((0..WORLDS.min(pairs)).map(|_| FaultWorld::start())).await?;
    let worlds: Vec<Arc<FaultWorld>> = worlds.into_iter().map(Arc::new).collect();
    let ran = AtomicUsize::new(0);
    let shares = worlds.iter().enumerate().map(|(first, world)| {
        let (numbers, ran) = ((first..pairs).step_by(worlds.len()), &ran);
        async move {
            let mut failed = Vec::new();
            for number in numbers {
                let (first, second, process_fault) = draw(seed, number);
                let what =
                    format!("pair {number}: {} + {} + {process_fault:?}", FAULTS[first].0, FAULTS[second].0);
                println!("{what}");
                ran.fetch_add(1, Ordering::Relaxed);
                if let Err(error) = run_pair(world, seed, number).await {
                    failed.push(format!("{what}: {error:#}\n{}", world.agent.log_tail(12)));
                    break;
                }
            }
            failed
        }
    });
    let failed: Vec<String> = futures::stream::iter(shares)
        .buffer_unordered(WORLDS)
        .flat_map(futures::stream::iter)
        .collect()
        .await;
    println!("pairs: {}, violations: {}", ran.into_inner(), failed.len());
    anyhow::ensure!(failed.is_empty(), "seed {seed}:\n{}", failed.join("\n\n"));
    Ok(())
}

fn random(seed: u64, number: usize) -> StdRng {
    StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(number as u64))
}

/// Draws the two faults of a pair and the process fault. Each pair has its own seed, so that one can be replayed alone.
fn draw(seed: u64, number: usize) -> (usize, usize, ProcessFault) {
    let mut random = random(seed, number);
    let first = random.random_range(0..FAULTS.len());
    let second = random.random_range(0..FAULTS.len());
    let process_fault = [ProcessFault::None, ProcessFault::None, ProcessFault::Kill, ProcessFault::Pause]
        [random.random_range(0..4)];
    (first, second, process_fault)
}

/// Delivers, changes and deletes a stack. Each of the three steps has both faults; after each, everything
/// heals and has to converge.
async fn run_pair(world: &FaultWorld, seed: u64, number: usize) -> Result<()> {
    let (first, second, process_fault) = draw(seed, number);
    let mut random = random(seed.wrapping_add(1), number);
    let (old, new) = (format!("{number}-1"), format!("{number}-2"));
    let delivered = [("a", old.as_str()), ("b", old.as_str()), ("c", old.as_str())];
    let changed = [("a", new.as_str()), ("b", old.as_str()), ("d", new.as_str())];
    let under_fault = async |random: &mut StdRng| {
        FAULTS[first].1(world, random);
        FAULTS[second].1(world, random);
        disturb_process(world, process_fault, random).await
    };
    world.submit(&delivered).await?;
    under_fault(&mut random).await?;
    heal(world);
    world.wait_until_converged(&delivered).await.context("delivery")?;

    under_fault(&mut random).await?;
    world.submit(&changed).await?;
    disturb_process(world, ProcessFault::None, &mut random).await?;
    heal(world);
    world.wait_until_converged(&changed).await.context("change")?;

    under_fault(&mut random).await?;
    world.delete_stack().await?;
    disturb_process(world, process_fault, &mut random).await?;
    heal(world);
    world.wait_until_deleted().await.context("deletion")?;
    world.assert_invariants().await
}

/// Gives the faults a random time to take effect, with the process fault in the middle.
async fn disturb_process(world: &FaultWorld, process_fault: ProcessFault, random: &mut StdRng) -> Result<()> {
    let mut pause = async || tokio::time::sleep(Duration::from_millis(random.random_range(50..1200))).await;
    pause().await;
    match process_fault {
        ProcessFault::None => {}
        ProcessFault::Kill => world.agent.restart()?,
        ProcessFault::Pause => {
            world.agent.pause()?;
            pause().await;
            world.agent.resume()?;
        }
    }
    pause().await;
    Ok(())
}

fn heal(world: &FaultWorld) {
    world.api_proxy.heal();
    world.broker_proxy.heal();
}

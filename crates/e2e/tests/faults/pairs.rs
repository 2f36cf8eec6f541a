//! Random pairs of faults: two at the same time, while a small stack is delivered, changed and deleted; then everything heals and
//! has to converge. Faults that are harmless alone are not always harmless together.
//!
//! Each pair prints how many of its two faults were met in the same step; `cargo xtask faults agent` counts those that met both.
//! `BROKKR_FAULT_PAIRS` sets the number of pairs (200 in `cargo xtask faults agent`); `BROKKR_SEED` replays a run.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_testkit::proxy::{Action, CannedResponse, Matcher, ProxiedRequest, Rule};
use brokkr_testkit::{eventually, seed};
use futures::StreamExt as _;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::world::FaultWorld;

/// The default number of pairs, which keeps an ordinary run short.
const PAIRS: usize = 6;
/// Concurrent worlds, each with an agent and a broker; the pairs are divided among them.
const WORLDS: usize = 3;
/// How long a step waits for both faults to be met. A fault that this step cannot meet, such as a lost response to a delete
/// during a delivery, ends the wait without an error.
const MET_TIMEOUT: Duration = Duration::from_secs(3);

/// The name of a fault, and the function that injects it and returns the rule that counts how often it was met.
type Fault = (&'static str, fn(&FaultWorld, &mut StdRng) -> Rule);

/// Its effect does not end with it: the event is lost, and only the next list shows the change.
const LOST_EVENTS: &str = "watches leave out an object";

/// All faults, by what the proxy or the process does.
const FAULTS: [Fault; 20] = [
    ("an apply is not answered", |world, random| lose(world, Matcher::applies(), random)),
    ("a delete is not answered", |world, random| lose(world, Matcher::deletes(), random)),
    ("a write of the record is not answered", |world, random| {
        lose(world, Matcher::writes().about("stacks"), random)
    }),
    ("an apply is cut off", |world, random| cut(world, Matcher::applies(), random)),
    ("anything to the API server is cut off", |world, random| cut(world, Matcher::any(), random)),
    ("conflict", |world, random| refuse(world, Matcher::writes(), CannedResponse::conflict(), random)),
    ("too many requests", |world, random| refuse(world, Matcher::any(), CannedResponse::too_many(1), random)),
    ("internal error", |world, random| refuse(world, Matcher::any(), CannedResponse::internal(), random)),
    ("unavailable", |world, random| refuse(world, Matcher::writes(), CannedResponse::unavailable(), random)),
    ("a captive portal before the API server", |world, random| {
        let rule = refuse(world, Matcher::new(ProxiedRequest::is_list), CannedResponse::html(), random);
        list_again(world);
        rule
    }),
    ("lists are cut short", |world, random| {
        let lists = Matcher::new(ProxiedRequest::is_list).first(few(random));
        let rule = world.api_proxy.when(lists, Action::CutResponse);
        list_again(world);
        rule
    }),
    ("watches freeze", |world, random| at_watches(world, Action::Freeze, random)),
    ("watches have expired", |world, random| {
        at_watches(world, Action::WatchLine(CannedResponse::gone_line()), random)
    }),
    (LOST_EVENTS, |world, _| {
        let rule = world.api_proxy.when(Matcher::watches("configmaps"), Action::drop_events_of("b"));
        world.api_proxy.end_watches();
        rule
    }),
    ("lists are stale", |world, _| {
        let older = world.api_proxy.snapshot_of_lists();
        let rule = world.api_proxy.when(Matcher::lists("configmaps"), Action::StaleLists(older));
        list_again(world);
        rule
    }),
    ("a write is held", |world, random| {
        world.api_proxy.when(Matcher::writes().nth(random.random_range(1..8)), Action::Hold)
    }),
    ("the broker is unreachable", |world, random| {
        world.broker_proxy.when(Matcher::any().first(few(random) * 2), Action::Cut)
    }),
    ("the broker's answers are lost", |world, random| {
        world.broker_proxy.when(Matcher::any().first(few(random)), Action::LoseResponse)
    }),
    ("the broker's answers are truncated", |world, random| {
        world.broker_proxy.when(Matcher::any().first(few(random)), Action::Truncate)
    }),
    ("a captive portal before the broker", |world, random| {
        world.broker_proxy.when(Matcher::any().first(few(random)), Action::Respond(CannedResponse::html()))
    }),
];

fn few(random: &mut StdRng) -> usize {
    random.random_range(1..5)
}

fn lose(world: &FaultWorld, what: Matcher, random: &mut StdRng) -> Rule {
    // No step has more than three deletes.
    world.api_proxy.when(what.nth(random.random_range(1..4)), Action::LoseResponse)
}

fn cut(world: &FaultWorld, what: Matcher, random: &mut StdRng) -> Rule {
    world.api_proxy.when(what.first(few(random)), Action::Cut)
}

fn refuse(world: &FaultWorld, what: Matcher, with: CannedResponse, random: &mut StdRng) -> Rule {
    world.api_proxy.when(what.first(few(random)), Action::Respond(with))
}

/// Applies a fault to watches, and ends the open ones, because an agent that watches already would not meet it.
fn at_watches(world: &FaultWorld, fault: Action, random: &mut StdRng) -> Rule {
    let rule = world.api_proxy.when(Matcher::new(ProxiedRequest::is_watch).first(few(random)), fault);
    world.api_proxy.end_watches();
    rule
}

/// Makes the agent list again, without streaming: otherwise it lists only when it starts, and meets no fault of lists.
fn list_again(world: &FaultWorld) {
    world.refuse_streaming_lists();
    expire_watch(world);
}

fn expire_watch(world: &FaultWorld) {
    let expired = Action::WatchLine(CannedResponse::gone_line());
    world.api_proxy.when(Matcher::watches("configmaps").first(1), expired);
    world.api_proxy.end_watches();
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
    let shares = worlds.iter().enumerate().map(|(first, world)| {
        // Not every pair meets both of its faults. Others take the places of those that do not.
        let wanted = pairs.saturating_sub(first).div_ceil(worlds.len());
        let numbers = (first..).step_by(worlds.len()).take(wanted * 2);
        async move {
            let (mut failed, mut met) = (Vec::new(), 0);
            for number in numbers {
                if met == wanted {
                    break;
                }
                let (first, second, process_fault) = draw(seed, number);
                let what =
                    format!("pair {number}: {} + {} + {process_fault:?}", FAULTS[first].0, FAULTS[second].0);
                println!("{what}");
                let mut pair = Pair { world, first, second, process_fault, met: [false; 2] };
                let outcome = pair.run(seed, number).await;
                // `cargo xtask faults` reads these two lines.
                println!("pair {number}: met {} of 2 faults", pair.met.iter().filter(|met| **met).count());
                met += usize::from(pair.met == [true; 2]);
                if let Err(error) = outcome {
                    println!("pair {number}: failed");
                    let statuses = world.statuses("web").await;
                    let log = world.agent.log_tail(12);
                    failed.push(format!("{what}: {error:#}\nstatus: {statuses:?}\n{log}"));
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
    anyhow::ensure!(failed.is_empty(), "seed {seed}:\n{}", failed.join("\n\n"));
    Ok(())
}

fn random(seed: u64, number: usize) -> StdRng {
    StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(number as u64))
}

/// Draws the two different faults of a pair and the process fault. Each pair has its own seed, so that one can be replayed
/// alone.
fn draw(seed: u64, number: usize) -> (usize, usize, ProcessFault) {
    let mut random = random(seed, number);
    let first = random.random_range(0..FAULTS.len());
    let second = (first + random.random_range(1..FAULTS.len())) % FAULTS.len();
    let process_fault = [ProcessFault::None, ProcessFault::None, ProcessFault::Kill, ProcessFault::Pause]
        [random.random_range(0..4)];
    (first, second, process_fault)
}

/// Two faults in one world.
struct Pair<'a> {
    world: &'a FaultWorld,
    first: usize,
    second: usize,
    process_fault: ProcessFault,
    /// Which of the two faults were met, in the step that met most.
    met: [bool; 2],
}

impl Pair<'_> {
    /// Delivers, changes and deletes a stack. Each of the three steps has both faults; after each, everything heals and has to
    /// converge.
    async fn run(&mut self, seed: u64, number: usize) -> Result<()> {
        let (world, process_fault) = (self.world, self.process_fault);
        let mut random = random(seed.wrapping_add(1), number);
        let (old, new) = (format!("{number}-1"), format!("{number}-2"));
        let delivered = [("a", old.as_str()), ("b", old.as_str()), ("c", old.as_str())];
        let changed = [("a", new.as_str()), ("b", old.as_str()), ("d", new.as_str())];

        let faults = self.inject(&mut random);
        world.submit(&delivered).await?;
        disturb_process(world, process_fault, &mut random).await?;
        self.wait_until_met(&faults).await;
        self.heal();
        self.world.wait_until_converged(&delivered).await.context("delivery")?;

        let faults = self.inject(&mut random);
        disturb_process(world, process_fault, &mut random).await?;
        world.submit(&changed).await?;
        disturb_process(world, ProcessFault::None, &mut random).await?;
        self.wait_until_met(&faults).await;
        self.heal();
        self.world.wait_until_converged(&changed).await.context("change")?;

        let faults = self.inject(&mut random);
        disturb_process(world, process_fault, &mut random).await?;
        world.delete_stack().await?;
        disturb_process(world, process_fault, &mut random).await?;
        self.wait_until_met(&faults).await;
        self.heal();
        world.wait_until_deleted().await.context("deletion")?;
        world.assert_invariants().await
    }

    fn has(&self, name: &str) -> bool {
        [self.first, self.second].iter().any(|fault| FAULTS[*fault].0 == name)
    }

    fn heal(&self) {
        let world = self.world;
        world.api_proxy.heal();
        world.broker_proxy.heal();
        if self.has(LOST_EVENTS) {
            // The next list may be minutes away.
            expire_watch(world);
        }
    }

    fn inject(&self, random: &mut StdRng) -> [Rule; 2] {
        [self.first, self.second].map(|fault| FAULTS[fault].1(self.world, random))
    }

    /// Waits until both faults of this step were met, unless an earlier step met both, and records which were.
    async fn wait_until_met(&mut self, faults: &[Rule; 2]) {
        let met = || faults.each_ref().map(|rule| rule.hits() > 0);
        if self.met != [true; 2] {
            // Not every step can meet every fault; the result is recorded and not required.
            let both = eventually(MET_TIMEOUT, "both faults to be met", async || met() == [true; 2]);
            let _ = both.await;
        }
        let count = |met: &[bool; 2]| met.iter().filter(|met| **met).count();
        if count(&met()) > count(&self.met) {
            self.met = met();
        }
    }
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

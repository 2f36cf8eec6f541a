//! Waiting agents: the broker's memory for each, the time to wake all, and how many a change for ten wakes.

use std::time::{Duration, Instant};

use anyhow::Result;
use brokkr_swarm::{Counts, EventKind, Identity, Reaction, Swarm, Transport};

use super::args::BrokerArgs;
use super::environment::{Engine, Environment, PATIENCE};
use super::figures::Figures;
use super::proc::memory_bytes;
use crate::results::percentile;

/// Files of a process that are not connections of agents.
const OTHER_FILES: usize = 500;
/// Agents per connection, for agents beyond the limit of open files; the broker allows 64 concurrent requests
/// on each.
const SHARED: usize = 40;
/// Long enough for a woken agent to poll again.
const ECHO: Duration = Duration::from_secs(2);
const YAML: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: NAME\n";

pub async fn run(args: &BrokerArgs, engine: &Engine, figures: &mut Figures) -> Result<()> {
    let environment = Environment::start(args, engine).await?;
    for (stack, selector) in [("all", "swarm=yes"), ("few", "few=yes")] {
        environment.stack(stack, selector).await?;
        environment.submit(stack, YAML.replace("NAME", stack)).await?;
    }
    let mut agents = environment.enrol(args.waiting).await?;
    tokio::time::sleep(ECHO).await;
    let pid = environment.pid()?;
    let before = memory_bytes(pid, "VmRSS")?;

    let others = OTHER_FILES + args.waiting / SHARED;
    let own = args.waiting.min(figures.files().saturating_sub(others));
    let rest = agents.split_off(own);
    let begun = Instant::now();
    let mut herds = vec![herd(&environment, agents, Transport::Own)?];
    all_wait(&herds, own).await?;
    let connected = begun.elapsed().as_secs_f64();
    let after = memory_bytes(pid, "VmRSS")?;
    figures.add("waiting_bytes_per_agent", (after - before) / own as f64).at_most(20_480.0).note(format!(
        "{own} agents on separate TLS connections; {:.0} MiB before, {:.0} MiB after",
        before / 1048576.0,
        after / 1048576.0
    ));
    figures
        .add("connect_per_s", own as f64 / connected)
        .note("full handshakes, verified assertions, first answers");
    if !rest.is_empty() {
        let shared = rest.len();
        herds.push(herd(&environment, rest, Transport::Shared { agents: SHARED })?);
        all_wait(&herds, args.waiting).await?;
        let all = memory_bytes(pid, "VmRSS")?;
        let files = figures.files();
        figures.add("waiting_shared_bytes_per_agent", (all - after) / shared as f64).note(format!(
            "{shared} more, on shared connections: a process may open only {files} files here"
        ));
    }
    wake(&environment, &herds, args.waiting, figures).await?;
    environment.linger(args).await?;
    for herd in herds {
        herd.stop().await;
    }
    Ok(())
}

fn herd(environment: &Environment<'_>, agents: Vec<Identity>, transport: Transport) -> Result<Swarm> {
    let mut config = environment.swarm(agents)?;
    (config.duty, config.transport, config.wait) = (Reaction::Watch, transport, Duration::from_secs(300));
    config.handshakes = 128;
    Swarm::start(config)
}

async fn all_wait(herds: &[Swarm], count: usize) -> Result<()> {
    let begun = Instant::now();
    loop {
        let counts = total(herds);
        if counts.waiting >= count as u64 && counts.changed >= count as u64 {
            return Ok(());
        }
        let late = herds.last().and_then(Swarm::last_trouble);
        anyhow::ensure!(begun.elapsed() < PATIENCE, "not all {count} agents wait: {counts:?}; {late:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn wake(
    environment: &Environment<'_>,
    herds: &[Swarm],
    count: usize,
    figures: &mut Figures,
) -> Result<()> {
    let before = total(herds);
    let begun = Instant::now();
    environment.submit("few", YAML.replace("NAME", "few-2")).await?;
    tokio::time::sleep(ECHO).await;
    let few = total(herds);
    let woken = (few.changed - before.changed) + (few.not_modified - before.not_modified);
    figures.add("woken_by_a_change_for_10", woken as f64).at_most(count.min(10) as f64);
    let times = answered(herds, begun);
    figures.add("wake_10_p99_s", percentile(&times, 99));

    let begun = Instant::now();
    environment.submit("all", YAML.replace("NAME", "all-2")).await?;
    let accepted = begun.elapsed().as_secs_f64();
    let wanted = few.changed + count as u64;
    while total(herds).changed < wanted {
        anyhow::ensure!(begun.elapsed() < PATIENCE, "not all were woken: {:?}", total(herds));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let times = answered(herds, begun);
    let last = times.iter().copied().fold(0.0, f64::max);
    let note = format!(
        "{count} agents; the first after {:.2} s, median {:.2} s; accepted after {accepted:.2} s",
        times.iter().copied().fold(f64::MAX, f64::min),
        percentile(&times, 50)
    );
    figures.add("wake_all_s", last).note(note);
    Ok(())
}

fn answered(herds: &[Swarm], since: Instant) -> Vec<f64> {
    herds.iter().flat_map(|herd| herd.since(since, EventKind::Answered)).collect()
}

fn total(herds: &[Swarm]) -> Counts {
    herds.iter().map(Swarm::counts).fold(Counts::default(), |sum, counts| sum + counts)
}

//! A poll without changes: its statements, and its CPU time beside that of a minimal handler.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use brokkr_swarm::wire::Dialer;
use brokkr_swarm::{Identity, Reaction, Swarm, Transport};
use futures::{StreamExt as _, TryStreamExt as _};
use http::{HeaderMap, StatusCode};

use super::args::BrokerArgs;
use super::bare::Bare;
use super::closed_loop::{NextRequest, closed_loop};
use super::environment::{Engine, Environment, PATIENCE, Statements};
use super::figures::{Figures, median};
use super::proc::cpu_seconds;

/// Polls per second while statements are counted: enough that single statements of timers do not matter.
const POLLS: f64 = 3_000.0;
/// The largest number of agents that take turns on the shared connections, as behind a proxy.
const DIFFERENT: usize = 2_000;

pub async fn run(args: &BrokerArgs, engine: &Engine, figures: &mut Figures) -> Result<()> {
    let environment = Environment::start(args, engine).await?;
    environment.stack("web", "swarm=yes").await?;
    environment.submit("web", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: web\n".into()).await?;
    let agents = environment.enrol(args.agents).await?;

    let (quiet, busy) = sql_per_poll(args, &environment, &agents, "sql_per_poll", figures).await?;
    let wal = (busy.wal - quiet.wal).max(0.0);
    figures.add("presence_wal_bytes_per_s", wal).note(format!(
        "of {} agents that poll all the time; the rest of the log is {:.0}",
        agents.len(),
        quiet.wal
    ));
    cpu(args, &environment, &agents, figures).await?;
    environment.linger(args).await
}

/// Adds the number of statements per poll. Returns the rates without polls and with them.
pub async fn sql_per_poll(
    args: &BrokerArgs,
    environment: &Environment<'_>,
    agents: &[Identity],
    key: &str,
    figures: &mut Figures,
) -> Result<(Rates, Rates)> {
    let quiet = counted(environment, args, async || Ok(0)).await?;
    let mut config = environment.swarm(agents.to_vec())?;
    (config.duty, config.wait) = (Reaction::Watch, Duration::ZERO);
    config.pause = Duration::from_secs_f64(agents.len() as f64 / POLLS);
    let swarm = Swarm::start(config)?;
    let all = agents.len() as u64;
    swarm.until(PATIENCE, "all agents to poll", |counts| counts.not_modified >= all).await?;
    let busy = counted(environment, args, async || Ok(swarm.counts().not_modified)).await?;
    swarm.stop().await;
    figures.add(key, ((busy.others - quiet.others) / busy.polls.max(1.0)).max(0.0)).at_most(0.001).note(
        format!(
            "{:.0} polls in {:.0} s; statements per second: {:.2} with them, {:.2} without; presence {:.2}",
            busy.polls * args.turn.as_secs_f64(),
            args.turn.as_secs_f64(),
            busy.others,
            quiet.others,
            busy.presence
        ),
    );
    Ok((quiet, busy))
}

/// Rates per second.
pub struct Rates {
    polls: f64,
    presence: f64,
    others: f64,
    wal: f64,
}

async fn counted(
    environment: &Environment<'_>,
    args: &BrokerArgs,
    polls: impl AsyncFn() -> Result<u64>,
) -> Result<Rates> {
    let (begun, before, polled) = (Instant::now(), environment.statements().await?, polls().await?);
    let wal = environment.engine.wal_bytes().await?;
    tokio::time::sleep(args.turn).await;
    let wal = environment.engine.wal_bytes().await? - wal;
    let (seconds, after, polls) =
        (begun.elapsed().as_secs_f64(), environment.statements().await?, polls().await?);
    let rate = |of: fn(&Statements) -> i64| (of(&after) - of(&before)) as f64 / seconds;
    let polls = (polls - polled) as f64 / seconds;
    let (presence, others) = (rate(|counted| counted.presence), rate(|counted| counted.others));
    Ok(Rates { polls, presence, others, wal: wal / seconds })
}

async fn cpu(
    args: &BrokerArgs,
    environment: &Environment<'_>,
    agents: &[Identity],
    figures: &mut Figures,
) -> Result<()> {
    let identity = environment.authority.server(&environment.scratch, "bare", &[])?;
    let bare = Bare::start(&identity, environment.scratch.path()).await?;
    let requests = second_polls(environment, &agents[..agents.len().min(DIFFERENT)]).await?;
    let broker = environment.address()?;
    let dialer = Dialer::new(&environment.authorities(), Transport::Own, 1, 1)?;
    let answer = dialer.connect(&broker, 0).await?.exchange(requests[0].clone()).await?;
    let path = requests[0].uri().path().len() + "GET  HTTP/1.1".len();
    figures
        .add("poll_bytes_in", head_bytes(requests[0].headers(), path))
        .note("of a request, before TLS, TCP and IP");
    let line = "HTTP/1.1 304 Not Modified".len();
    figures.add("poll_bytes_out", head_bytes(&answer.headers, line)).note("of its answer");
    let bare_broker = brokkr_swarm::Broker { address: bare.address, ..broker.clone() };
    // The broker with one connection per agent, the broker with shared connections, and the minimal server.
    let contestants = [(&broker, environment.pid()?, false), (&broker, environment.pid()?, true)];
    let contestants =
        contestants.into_iter().chain([(&bare_broker, bare.process.pid().unwrap_or_default(), true)]);
    let mut micros = [Vec::new(), Vec::new(), Vec::new()];
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..args.rounds {
        for (which, (address, pid, shared)) in contestants.clone().enumerate() {
            let cost = poll_cost(args, environment, (address, pid), &requests, shared).await?;
            micros[which].push(cost.micros);
            rates[which].push(cost.rate);
        }
    }
    let [repeated, parsed, bare] = micros;
    let [repeated_rates, parsed_rates, bare_rates] = rates;
    let (bare_micros, bare_rate) = (median(bare.clone()), median(bare_rates));
    figures.add_rounds("poll_cpu_micros", &repeated).bare(bare_micros);
    figures.add_ratios("poll_cpu_ratio", &repeated, &bare).at_most(1.25).note(
        "of CPU per poll answered at once with 304, of a request that repeats the last one of its connection",
    );
    figures
        .add_rounds("polls_per_s", &repeated_rates)
        .bare(bare_rate)
        .note("repeated requests, with the clients on the same cores");
    figures.add_rounds("poll_parsed_cpu_micros", &parsed).bare(bare_micros);
    figures
        .add_ratios("poll_parsed_cpu_ratio", &parsed, &bare)
        .note("of a request that is parsed: agents take turns on a connection, as behind a proxy");
    figures.add_rounds("polls_parsed_per_s", &parsed_rates).bare(bare_rate);
    Ok(())
}

/// Returns a poll of each agent that gets 304 as long as nothing changes.
pub async fn second_polls(environment: &Environment<'_>, agents: &[Identity]) -> Result<Arc<[NextRequest]>> {
    let requests: Vec<NextRequest> = futures::stream::iter(agents)
        .map(|agent| environment.first_poll(agent))
        .buffer_unordered(8)
        .try_collect()
        .await?;
    Ok(requests.into())
}

/// The cost of a poll in one turn.
pub struct PollCost {
    /// CPU time of the server.
    pub micros: f64,
    /// Polls per second.
    pub rate: f64,
}

/// Sends polls in a closed loop for one turn. On shared connections the agents take turns; on others, each request repeats the
/// last one.
pub async fn poll_cost(
    args: &BrokerArgs,
    environment: &Environment<'_>,
    (address, pid): (&brokkr_swarm::Broker, u32),
    requests: &Arc<[NextRequest]>,
    shared: bool,
) -> Result<PollCost> {
    let (requests, connections) = (Arc::clone(requests), args.connections);
    let next = move |connection: usize, count: u64| {
        let turn = if shared { count as usize * connections } else { 0 };
        requests[(connection + turn) % requests.len()].clone()
    };
    let before = cpu_seconds(pid)?;
    let authorities = environment.authorities();
    let done =
        closed_loop(address, &authorities, connections, args.turn, StatusCode::NOT_MODIFIED, next).await?;
    let micros = (cpu_seconds(pid)? - before) / done.answers as f64 * 1e6;
    Ok(PollCost { micros, rate: done.rate() })
}

/// Returns the bytes of a head in HTTP/1.1.
fn head_bytes(headers: &HeaderMap, line: usize) -> f64 {
    let lines: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    (line + lines + 4) as f64
}

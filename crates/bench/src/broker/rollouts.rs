//! A rollout of a version that fails on some agents, while others are silent and the replica that takes its steps is killed
//! again and again. It has to stop within its bound, and no further agent may begin the version afterwards.
//!
//! | file       | contents                                                          |
//! |------------|-------------------------------------------------------------------|
//! | `args`     | command-line options                                              |
//! | `faults`   | kills and pauses the leader                                       |
//! | `observer` | reads the rollout all the time, and finds steps that are repeated |

pub mod args;
mod faults;
mod observer;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use brokkr_api::rollouts::{Rollout, Share, StopReason};
use brokkr_swarm::{BadUpdates, Config, Counts, EventKind, Identity, Swarm, Transport};
use brokkr_testkit::{Broker, broker, eventually};
use serde_json::json;
use sqlx::PgPool;
use uuid::Uuid;

use super::environment::{Engine, Environment};
use super::figures::Figures;
use args::RolloutArgs;
use faults::{Replicas, seconds_now};
use observer::{Observer, RolloutSnapshot};

const STACK: &str = "web";
/// The built-in waves before the last one.
const WAVES: [Share; 4] = [Share::Count(1), Share::Percent(1), Share::Percent(10), Share::Percent(50)];
const DATABASE_CONNECTIONS: u32 = 20;
/// Agents on one connection.
const SHARED: usize = 40;
/// The polling interval. After a kill, 100,000 agents reconnect over 100 s, and must not count as late until then.
const POLL: Duration = Duration::from_secs(60);
/// The longest time that an agent takes to apply a version.
const APPLYING: Duration = Duration::from_secs(2);
/// Agents that connect per second at the start.
const CONNECTS: f64 = 2_000.0;
/// How long an answer may be under way that a replica sent before it knew of the stop.
const UNDER_WAY: Duration = Duration::from_secs(2);
/// The longest time without a replica that looks at the agents.
const TAKE_OVER_SECONDS: f64 = 20.0;
/// A bound for every wait, which only a hang reaches.
const LONGEST: Duration = Duration::from_secs(3600);

/// Rolls the version out and measures; see the options.
pub async fn run(args: &RolloutArgs) -> Result<Figures> {
    let files = brokkr_swarm::files::raise()?;
    let mut figures = Figures::begin(files, format!("{args:?}"));
    let engine = Engine::start().await.context("cannot start PostgreSQL")?;
    Box::pin(measure(args, &engine, &mut figures)).await?;
    figures.end();
    if let Some(folder) = &args.store {
        figures.store(folder, "rollouts")?;
    }
    Ok(figures)
}

async fn measure(args: &RolloutArgs, engine: &Engine, figures: &mut Figures) -> Result<()> {
    let environment = Box::pin(Environment::start_with(DATABASE_CONNECTIONS, engine, &[])).await?;
    environment.stack(STACK, "swarm=yes").await?;
    environment.submit(STACK, yaml("one")).await?;
    let (all, silent) = (usize::try_from(args.agents)?, part(args.agents, args.silent_percent)?);
    let mut agents = environment.enrol(all).await?;
    let started = seconds_now();
    let second = environment.replica().await?;
    let mut replicas = Replicas::new([&environment.broker, &second], started);

    // Silent agents have the last numbers. The last enrolled agent is not one of them, because it has already polled once.
    agents.rotate_left(silent);
    let silent: Vec<Uuid> = agents[all - silent..].iter().map(|agent| agent.agent.0).collect();
    if args.silent_from_start {
        agents.truncate(all - silent.len());
    }
    let connected = agents.len() as u64;
    let swarm = Swarm::start(config(args, &environment, &second, agents)?)?;
    let begun = Instant::now();
    let settled = swarm
        .until(LONGEST, "all agents to have the first version", |counts| {
            acknowledged(counts) >= 2 * connected
        })
        .await?;
    eprintln!("  {connected} agents have the first version after {:.0} s", begun.elapsed().as_secs_f64());
    swarm.silence_from(all - silent.len());
    until_silent(&environment.pool, &silent).await?;

    // From now on, the built-in waves.
    let policy = json!({ "soak_seconds": args.soak.as_secs() });
    broker::policy_set(&environment.database.url(), &policy).await?;
    let submitted = Instant::now();
    let version = environment.submit(STACK, yaml("two")).await?;
    let observer = Observer::start(&environment.pool, version).await?;
    let take_overs = Box::pin(disturb(args, &observer, &mut replicas)).await?;
    let ended = observer.ended_at().await?;
    // A replica that starts reads the withdrawal from the database, and agents that reconnect must not begin the version either.
    for replica in [&environment.broker, &second] {
        replica.restart().await?;
    }
    tokio::time::sleep(args.watch).await;
    let last = swarm
        .until(LONGEST, "all reports to be acknowledged", |counts| {
            acknowledged(counts) + counts.reports_refused >= 2 * counts.delivered - counts.failed
        })
        .await?;

    let rollout = environment.admin.rollout(version).await?;
    let failed: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM stack_status WHERE sequence_id = $1 AND transition = 'failed'",
    )
    .bind(version.0)
    .fetch_one(&environment.pool)
    .await?;
    let (seen, problems) = observer.finish().await?;
    add_stop(figures, &rollout, ended.duration_since(submitted), failed);
    add_begun(figures, &rollout, &swarm, submitted, ended);
    figures
        .add("rollout_steps", seen.raises.len() as f64)
        .note(format!("{} revisions; each step is one raise of the mark", seen.revision));
    figures.add("rollout_steps_wrong", problems.len() as f64).at_most(0.0).note(problems.join("; "));
    add_take_overs(figures, args, &take_overs);
    let refused = last.reports_refused - settled.reports_refused;
    figures.add("rollout_reports_refused", refused as f64).at_most(0.0);
    let troubles = last.troubles - settled.troubles;
    figures.add("rollout_reconnects", troubles as f64).note("of all agents, after errors");
    swarm.stop().await;
    Ok(())
}

fn config(
    args: &RolloutArgs,
    environment: &Environment<'_>,
    second: &Broker,
    agents: Vec<Identity>,
) -> Result<Config> {
    let count = agents.len();
    let mut config = environment.swarm(agents)?;
    config.brokers.push(brokkr_swarm::Broker::at(&second.url().parse()?)?);
    config.transport = Transport::Shared { agents: SHARED };
    config.wait = POLL;
    config.applying = Duration::ZERO..APPLYING;
    config.start_within = Duration::from_secs_f64(count as f64 / CONNECTS);
    config.handshakes = 128;
    let healthy = usize::from(args.healthy_waves).checked_sub(1).map(|wave| WAVES[wave].of(args.agents));
    config.bad_updates = BadUpdates {
        agents: part(args.agents, args.bad_percent)?,
        of: usize::try_from(args.agents)? - part(args.agents, args.silent_percent)?,
        healthy_first: healthy.unwrap_or_default(),
    };
    Ok(config)
}

/// Disturbs the leader from the first step until the rollout ends. Returns the seconds of each take-over.
async fn disturb(args: &RolloutArgs, observer: &Observer, replicas: &mut Replicas<'_>) -> Result<Vec<f64>> {
    observer.until(|seen| !seen.raises.is_empty()).await?;
    let begun = tokio::time::Instant::now();
    let (mut next, mut take_overs) = (begun, Vec::new());
    while !observer.latest().is_over() {
        let seconds = if next == begun && !args.no_pause {
            replicas.pause_leader(observer).await.context("after a pause of the leader")?
        } else {
            replicas.kill_leader(observer).await.context("after a kill of the leader")?
        };
        let seen = observer.latest();
        eprintln!("  {} after {} steps; take-over {seconds:?} s", seen.state, seen.raises.len());
        take_overs.extend(seconds);
        ensure!(begun.elapsed() < LONGEST, "the rollout does not end: {seen:?}");
        next += args.kill_every;
        if let Ok(over) = tokio::time::timeout_at(next, observer.until(RolloutSnapshot::is_over)).await {
            over?;
        }
    }
    Ok(take_overs)
}

/// Waits until the database says of these agents that they do not poll, and of all others that they do. Until then, a rollout may
/// release the version to more agents than it counts.
async fn until_silent(pool: &PgPool, silent: &[Uuid]) -> Result<()> {
    eventually(LONGEST, "exactly the silent agents to be missed", async || {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let wrong: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM agents a LEFT JOIN unnest($1::uuid[]) AS silent (id) ON silent.id = a.id
             WHERE (silent.id IS NOT NULL) = coalesce(
                a.silent_since IS NULL AND a.last_seen_at >= clock_timestamp() - make_interval(secs => a.poll_seconds * 3),
                false)",
        )
        .bind(silent)
        .fetch_one(pool)
        .await?;
        ensure!(wrong == 0, "{wrong} agents have another state");
        Ok(())
    })
    .await
}

fn add_stop(figures: &mut Figures, rollout: &Rollout, after: Duration, failed: i64) {
    let counted = rollout.figures;
    let reason = rollout.stop_reason.as_ref().map_or_else(|| "no reason".into(), ToString::to_string);
    let is_stopped = matches!(rollout.stop_reason, Some(StopReason::TooManyBad { .. }));
    figures.add("rollout_stopped", f64::from(is_stopped)).at_least(1.0).note(format!(
        "{}: {reason}; wave {} of {}; released to {} of {} agents, of which {} were owed it",
        rollout.state, rollout.wave, rollout.waves, counted.released, counted.members, counted.owed
    ));
    figures.add("rollout_stop_s", after.as_secs_f64()).note("after the submission");
    let bound = rollout.allowed_bad + rollout.in_flight_limit;
    let note = format!("allowed {}, in flight at most {}", rollout.allowed_bad, rollout.in_flight_limit);
    figures.add("rollout_bad_at_stop", counted.bad as f64).at_most(bound as f64).note(note);
    figures
        .add("rollout_bad", failed as f64)
        .at_most(bound as f64)
        .note("when all agents that had begun have reported");
}

fn add_begun(figures: &mut Figures, rollout: &Rollout, swarm: &Swarm, submitted: Instant, ended: Instant) {
    let begun = swarm.since(submitted, EventKind::Begun).len();
    figures
        .add("rollout_begun", begun as f64)
        .at_most(rollout.figures.released as f64)
        .note("agents with an answer that named the version");
    let after: Vec<f64> = swarm.since(ended, EventKind::Begun);
    let late = after.iter().filter(|seconds| **seconds > UNDER_WAY.as_secs_f64()).count();
    let last = after.iter().copied().fold(0.0, f64::max);
    figures.add("rollout_begun_after_stop", late as f64).at_most(0.0).note(format!(
        "later than {UNDER_WAY:?} after the stop; {} had an answer under way, the last for {last:.3} s",
        after.len() - late
    ));
}

fn add_take_overs(figures: &mut Figures, args: &RolloutArgs, take_overs: &[f64]) {
    let first = if args.no_pause { "kills" } else { "a pause, then kills" };
    figures.add_rounds("rollout_take_over_s", take_overs).note(format!("from {first} to the next look"));
    // A rollout that stopped before the first one would prove nothing.
    figures.add("rollout_take_overs", take_overs.len() as f64).at_least(1.0);
    let longest = take_overs.iter().copied().fold(0.0, f64::max);
    figures.add("rollout_take_over_max_s", longest).at_most(TAKE_OVER_SECONDS);
}

fn acknowledged(counts: &Counts) -> u64 {
    counts.reports_accepted + counts.reports_duplicate
}

fn part(agents: u64, percent: u8) -> Result<usize> {
    Ok(usize::try_from(agents * u64::from(percent) / 100)?)
}

fn yaml(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n")
}

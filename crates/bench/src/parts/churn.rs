//! A stack of ten thousand objects with frequent changes of status: the CPU time that they cost the agent, and how fast it
//! repairs another stack meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brokkr_testkit::Agent;
use tokio::task::JoinSet;

use super::drift::{disturb, latencies};
use crate::args::AgentArgs;
use crate::environment::Environment;
use crate::results::{Results, percentile};
use crate::workload::{Object, Workload};

const LARGE: &str = "bench-churn-large";
const SMALL: &str = "bench-churn-small";
/// Many, because the agent delays repeated repairs of one object on purpose.
const REPAIRED_OBJECTS: usize = 200;
/// The pause between two edits that the agent has to revert. Their cost must not hide that of the status changes.
const EDITS: Duration = Duration::from_millis(200);
/// How long each kind of change lasts.
const LASTS: Duration = Duration::from_secs(60);
/// Concurrent changes: more than enough for the rate.
const IN_FLIGHT: usize = 16;

/// What changes in the status of a Deployment.
#[derive(Clone, Copy)]
enum Change {
    /// Only a time, which no decision depends on.
    Heartbeat,
    /// Whether it is ready.
    Readiness,
}

pub async fn run(args: &AgentArgs, environment: &Environment, results: &mut Results) -> Result<()> {
    let large = Workload::mix(LARGE, args.many_objects);
    let (submission, ..) = environment.deliver(LARGE, &large).await?;
    environment.bare.make_ready(&large).await?;
    environment.healthy(LARGE, &submission).await?;
    environment.deliver(SMALL, &Workload::configmaps(SMALL, REPAIRED_OBJECTS)).await?;
    environment.wait_until_idle().await?;
    let deployments: Vec<&Object> =
        large.objects.iter().filter(|object| object.body["kind"] == "Deployment").collect();

    measure(environment, &deployments, args.status_changes, Change::Heartbeat, "heartbeat", results).await?;
    measure(environment, &deployments, args.status_changes, Change::Readiness, "readiness", results).await?;
    environment.remove(SMALL, SMALL).await?;
    environment.remove(LARGE, LARGE).await
}

async fn measure(
    environment: &Environment,
    deployments: &[&Object],
    a_second: u32,
    change: Change,
    key: &str,
    results: &mut Results,
) -> Result<()> {
    let mark = environment.cluster.audit().mark()?;
    let (cpu, started) = (cpu_seconds(&environment.agent)?, Instant::now());
    let (changes, repairs) = tokio::join!(
        change_statuses(environment, deployments, a_second, change),
        repair_until(environment, started + LASTS),
    );
    let seconds = started.elapsed().as_secs_f64();
    let used = (cpu_seconds(&environment.agent)? - cpu) / seconds * 100.0;
    repairs?;
    results.add(&format!("churn_{key}_cpu_percent"), used);
    results.note(
        &format!("churn_{key}_cpu_percent"),
        format!("of one core, {:.0} status changes a second", changes? as f64 / seconds),
    );
    let user = environment.agent.user();
    let requests = environment.cluster.audit().requests(mark)?;
    let repairs = latencies(&requests, SMALL, |request| request.user == user);
    results.add(&format!("churn_{key}_drift_p99_ms"), percentile(&repairs, 99));
    results.note(&format!("churn_{key}_drift_p99_ms"), format!("{} repairs", repairs.len()));
    environment.wait_until_idle().await
}

/// Changes the status of one Deployment after the other at a fixed rate; returns the number of changes.
async fn change_statuses(
    environment: &Environment,
    deployments: &[&Object],
    a_second: u32,
    change: Change,
) -> Result<usize> {
    let mut beat = tokio::time::interval(Duration::from_secs(1) / a_second.max(1));
    let mut running = JoinSet::new();
    let (started, mut count) = (Instant::now(), 0);
    while started.elapsed() < LASTS {
        beat.tick().await;
        let (object, round) = (deployments[count % deployments.len()].clone(), count / deployments.len());
        let ready = match change {
            Change::Heartbeat => 3,
            Change::Readiness => 3 - u32::from(round.is_multiple_of(2)),
        };
        let (bare, number) = (environment.bare.clone(), count);
        running.spawn(async move { bare.set_status(&object, ready, number).await });
        count += 1;
        if running.len() > IN_FLIGHT
            && let Some(done) = running.join_next().await
        {
            done??;
        }
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    Ok(count)
}

async fn repair_until(environment: &Environment, end: Instant) -> Result<()> {
    let mut beat = tokio::time::interval(EDITS);
    for number in 0.. {
        beat.tick().await;
        if Instant::now() > end {
            break;
        }
        disturb(environment, SMALL, number, REPAIRED_OBJECTS).await?;
    }
    Ok(())
}

/// Returns the CPU time that the process has used.
fn cpu_seconds(agent: &Agent) -> Result<f64> {
    /// Of the kernel's clock that `/proc` uses.
    const TICKS_PER_SECOND: f64 = 100.0;
    let pid = agent.pid().context("the agent is not running")?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field, the name in parentheses, may contain spaces.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok());
    let used = ticks(11).zip(ticks(12)).context("no CPU time in the status of the agent")?;
    Ok((used.0 + used.1) / TICKS_PER_SECOND)
}

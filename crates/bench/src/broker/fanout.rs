//! One submission affects all waiting agents: when each has the response, and when each has the content.

use std::time::{Duration, Instant};

use anyhow::Result;
use brokkr_swarm::{EventKind, Swarm};

use super::args::BrokerArgs;
use super::environment::{Engine, Environment, PATIENCE};
use super::figures::Figures;
use super::proc::cpu_seconds;
use crate::results::percentile;
use crate::workload::Workload;

/// The number of objects of the stack; together they have about seven kilobytes.
const OBJECTS: usize = 12;

pub async fn run(args: &BrokerArgs, engine: &Engine, figures: &mut Figures) -> Result<()> {
    let environment = Environment::start(args, engine).await?;
    environment.stack("web", "swarm=yes").await?;
    environment.submit("web", Workload::mix("web", OBJECTS).yaml()).await?;
    let agents = environment.enrol(args.agents).await?;
    let all = agents.len() as u64;
    let mut config = environment.swarm(agents)?;
    config.wait = Duration::from_secs(300);
    // Applying takes time, as in clusters: reports do not come at once.
    config.applying = Duration::from_secs(5)..Duration::from_secs(20);
    config.handshakes = 128;
    let swarm = Swarm::start(config)?;
    let begun = Instant::now();
    let settled = swarm
        .until(PATIENCE, "all agents to hold the stack", |counts| {
            counts.reports_accepted >= 2 * all && counts.waiting >= all
        })
        .await?;
    figures
        .add("first_delivery_s", begun.elapsed().as_secs_f64())
        .note(format!("{all} agents connect, report what they hold, fetch, apply in 5 to 20 s, report"));

    let cpu = || {
        anyhow::Ok([
            cpu_seconds(environment.pid()?)?,
            cpu_seconds(std::process::id())?,
            engine.cpu_seconds()?,
        ])
    };
    let (before, begun) = (cpu()?, Instant::now());
    let yaml = Workload::mix_changed("web", OBJECTS).yaml();
    let bytes = yaml.len();
    environment.submit("web", yaml).await?;
    let accepted = begun.elapsed().as_secs_f64();
    swarm
        .until(PATIENCE, "all agents to have fetched it", |counts| counts.contents >= settled.contents + all)
        .await?;
    let spent: Vec<f64> = cpu()?.into_iter().zip(before).map(|(after, before)| after - before).collect();
    let (answered, fetched) =
        (swarm.since(begun, EventKind::Answered), swarm.since(begun, EventKind::Fetched));
    figures.add("fanout_p99_s", percentile(&fetched, 99)).at_most(2.0).note(format!(
        "answer and {bytes} bytes of content; CPU: broker {:.2} s, swarm {:.2} s, PostgreSQL {:.2} s",
        spent[0], spent[1], spent[2]
    ));
    figures.add("fanout_answer_p99_s", percentile(&answered, 99)).note(format!(
        "median {:.2} s; the submission was accepted after {accepted:.2} s",
        percentile(&answered, 50)
    ));
    let cpu_each = spent[0] / all as f64 * 1e6;
    figures.add("fanout_broker_micros_each", cpu_each).note("CPU of the broker for answer and content");
    swarm
        .until(PATIENCE, "all reports", |counts| {
            counts.reports_accepted >= settled.reports_accepted + 2 * all
        })
        .await?;
    figures
        .add("fanout_reported_s", begun.elapsed().as_secs_f64())
        .note("until the last report was acknowledged");
    environment.linger(args).await?;
    swarm.stop().await;
    Ok(())
}

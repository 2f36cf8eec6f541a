//! What is measured, one file a part. All parts share one API server, one broker and one agent.

mod create;
mod drift;
mod idle;
mod memory;
mod stacks;

use anyhow::{Context as _, Result};

use crate::args::{AgentArgs, Part};
use crate::ground::Ground;
use crate::results::Results;

/// Measures the chosen parts, in an order that lets none disturb the next.
pub async fn run(args: &AgentArgs) -> Result<Results> {
    let mut results = Results::default();
    let mut ground = Ground::start(args).await.context("cannot start what is measured on")?;
    for part in Part::ALL.into_iter().filter(|part| args.only.contains(part)) {
        eprintln!("{part}");
        let done = match part {
            Part::Create => Box::pin(create::run(args, &ground, &mut results)).await,
            Part::Drift => Box::pin(drift::run(args, &ground, &mut results)).await,
            Part::Idle => Box::pin(idle::run(args, &ground, &mut results)).await,
            Part::Memory => Box::pin(memory::run(args, &ground, &mut results)).await,
            Part::Stacks => Box::pin(stacks::run(args, &mut ground, &mut results)).await,
        };
        ground.keep_log()?;
        done.with_context(|| format!("the part {part}; the agent said:\n{}", ground.agent.log_tail(20)))?;
    }
    Ok(results)
}

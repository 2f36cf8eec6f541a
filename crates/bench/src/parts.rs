//! The parts of the agent's measurements. All share one API server, one broker and one agent.

mod churn;
mod create;
mod drift;
mod idle;
mod memory;
mod stacks;

use anyhow::{Context as _, Result};

use crate::args::{AgentArgs, Part};
use crate::environment::Environment;
use crate::results::Results;

/// Measures the selected parts, in an order in which none disturbs the next.
pub async fn run(args: &AgentArgs) -> Result<Results> {
    let mut results = Results::default();
    let mut environment = Environment::start(args).await.context("cannot start the environment")?;
    for part in Part::ALL.into_iter().filter(|part| args.only.contains(part)) {
        eprintln!("{part}");
        let done = match part {
            Part::Create => Box::pin(create::run(args, &environment, &mut results)).await,
            Part::Drift => Box::pin(drift::run(args, &environment, &mut results)).await,
            Part::Idle => Box::pin(idle::run(args, &environment, &mut results)).await,
            Part::Churn => Box::pin(churn::run(args, &environment, &mut results)).await,
            Part::Memory => Box::pin(memory::run(args, &environment, &mut results)).await,
            Part::Stacks => Box::pin(stacks::run(args, &mut environment, &mut results)).await,
        };
        environment.keep_log()?;
        done.with_context(|| {
            format!("the part {part}; the agent's log:\n{}", environment.agent.log_tail(20))
        })?;
    }
    Ok(results)
}

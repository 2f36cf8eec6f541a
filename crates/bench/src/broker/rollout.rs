//! A rollout over a million agents: what a step costs, and what it costs everybody else.
//!
//! | file       | contents                                                                      |
//! |------------|-------------------------------------------------------------------------------|
//! | `fleet`    | the agents and stacks of an index in this process                             |
//! | `steps`    | memory, every step and the completion of a rollout on that index, without SQL |
//! | `database` | reading the evidence, and polls at a broker, while a rollout is under way     |

mod database;
mod fleet;
mod steps;

use anyhow::Result;

use super::args::BrokerArgs;
use super::environment::Engine;
use super::figures::Figures;

pub async fn run(args: &BrokerArgs, engine: &Engine, figures: &mut Figures) -> Result<()> {
    // Before any agent is simulated in this process: memory that was freed would hide growth.
    steps::run(args, figures)?;
    database::run(args, engine, figures).await
}

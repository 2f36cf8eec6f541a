//! Measures the broker, which runs as a process with TLS, with agents from `brokkr-swarm` and a PostgreSQL
//! with fsync on. Each figure is compared with that of a minimal server in the same run.
//!
//! | file          | contents                                                                        |
//! |---------------|---------------------------------------------------------------------------------|
//! | `args`        | command-line options                                                            |
//! | `figures`     | numbers with their targets and the numbers of the minimal server                |
//! | `environment` | one PostgreSQL; a database and a replica for each part                          |
//! | `proc`        | CPU and memory of processes                                                     |
//! | `bare`        | a minimal server in place of the broker's polls                                 |
//! | `closed_loop` | requests in a closed loop                                                       |
//! | `polls`       | statements and CPU of a poll                                                    |
//! | `waiting`     | memory of agents that wait, and waking them                                     |
//! | `fanout`      | one submission for all agents                                                   |
//! | `submissions` | submissions per second                                                          |
//! | `reports`     | reports per second                                                              |
//! | `million`     | a restart, previews and pages with a million agents                             |
//! | `rollout`     | a rollout over a million agents                                                 |
//! | `views`       | the views of a fleet                                                            |
//! | `alerts`      | the messages of a fleet that fails and recovers: a command of its own           |
//! | `rollouts`    | a rollout that has to stop, while its leader is killed: a command of its own    |
//! | `console`     | the web console in a browser, with a whole fleet: a command of its own          |

pub mod alerts;
pub mod args;
pub mod bare;
mod closed_loop;
pub mod console;
mod environment;
mod fanout;
pub mod figures;
mod million;
mod polls;
mod proc;
mod reports;
mod rollout;
pub mod rollouts;
mod submissions;
mod views;
mod waiting;

use anyhow::{Context as _, Result};

use args::{BrokerArgs, BrokerPart};
use environment::Engine;
use figures::Figures;

/// Measures the selected parts one after the other, each on its own database.
pub async fn run(args: &BrokerArgs) -> Result<Figures> {
    let files = brokkr_swarm::files::raise()?;
    let mut figures = Figures::begin(files, format!("{args:?}"));
    let engine = Engine::start().await.context("cannot start PostgreSQL")?;
    for part in BrokerPart::ALL.into_iter().filter(|part| args.only.contains(part)) {
        eprintln!("{part}");
        let done = match part {
            BrokerPart::Polls => Box::pin(polls::run(args, &engine, &mut figures)).await,
            BrokerPart::Submissions => Box::pin(submissions::run(args, &engine, &mut figures)).await,
            BrokerPart::Reports => Box::pin(reports::run(args, &engine, &mut figures)).await,
            BrokerPart::Fanout => Box::pin(fanout::run(args, &engine, &mut figures)).await,
            BrokerPart::Waiting => Box::pin(waiting::run(args, &engine, &mut figures)).await,
            BrokerPart::Million => Box::pin(million::run(args, &engine, &mut figures)).await,
            BrokerPart::Rollout => Box::pin(rollout::run(args, &engine, &mut figures)).await,
            BrokerPart::Views => Box::pin(views::run(args, &engine, &mut figures)).await,
        };
        done.with_context(|| format!("the part {part}"))?;
    }
    figures.end();
    if let Some(folder) = &args.store {
        figures.store(folder, "broker")?;
    }
    Ok(figures)
}

//! Measures the broker: each figure beside its bare counterpart in the same run, PostgreSQL with fsync on, the broker
//! as a process with TLS, agents from `brokkr-swarm`.
//!
//! | file          | what lives there                                                                |
//! |---------------|---------------------------------------------------------------------------------|
//! | `args`        | what can be chosen                                                              |
//! | `figures`     | numbers with what was wanted and what the bare counterpart did                  |
//! | `ground`      | one PostgreSQL; a database and a replica for each part                          |
//! | `proc`        | CPU and memory of processes                                                     |
//! | `bare`        | the bare counterpart of a poll                                                  |
//! | `hammer`      | requests in a closed loop                                                       |
//! | `polls`       | statements and CPU of a poll                                                    |
//! | `waiting`     | memory of agents that wait, and waking them                                     |
//! | `fanout`      | one submission for everybody                                                    |
//! | `submissions` | submissions a second                                                            |
//! | `reports`     | reports a second                                                                |
//! | `million`     | a restart, previews and pages with a million agents                             |

pub mod args;
pub mod bare;
mod fanout;
pub mod figures;
mod ground;
mod hammer;
mod million;
mod polls;
mod proc;
mod reports;
mod submissions;
mod waiting;

use anyhow::{Context as _, Result};

use args::{BrokerArgs, BrokerPart};
use figures::Figures;
use ground::Engine;

/// Measures the chosen parts, one after the other, each on a database of its own.
pub async fn run(args: &BrokerArgs) -> Result<Figures> {
    let files = brokkr_swarm::files::raise()?;
    let mut figures = Figures::begin(files);
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
        };
        done.with_context(|| format!("the part {part}"))?;
    }
    figures.end();
    Ok(figures)
}

//! What each command does: one file a verb, only behaviour.

use crate::args::{Args, Command, DeleteCommand};
use crate::connect::connect;
use crate::failure::Failure;
use crate::printer::Printer;

mod agent;
mod apply;
mod delete;
mod events;
mod history;
mod login;
mod status;
mod system;
mod targets;
mod version;
mod wait;
mod whoami;

pub async fn run(args: Args, printer: Printer) -> Result<(), Failure> {
    let Args { global, command } = args;
    match command {
        Command::Version => version::run(printer),
        Command::Login(login) => Box::pin(login::run(login, &global, printer)).await,
        Command::Apply(apply) => Box::pin(apply::run(apply, &global, printer)).await,
        Command::Delete(DeleteCommand::Stack(delete)) => {
            Box::pin(delete::run(delete, &connect(&global, printer)?, printer)).await
        }
        Command::Agent(agent) => Box::pin(agent::run(agent, &connect(&global, printer)?, printer)).await,
        Command::Status(status) => Box::pin(status::run(status, &connect(&global, printer)?, printer)).await,
        Command::Events(events) => Box::pin(events::run(events, &connect(&global, printer)?, printer)).await,
        Command::History(history) => {
            Box::pin(history::run(history, &connect(&global, printer)?, printer)).await
        }
        Command::Targets(targets) => {
            Box::pin(targets::run(targets, &connect(&global, printer)?, printer)).await
        }
        Command::System(system) => Box::pin(system::run(system, &connect(&global, printer)?, printer)).await,
        Command::Whoami => Box::pin(whoami::run(&connect(&global, printer)?, printer)).await,
    }
}

//! What each command does: one file a verb, only behaviour.

use brokkr_client::Client;

use crate::args::{AdminCommand, AgentCommand, Args, Command, DeleteCommand};
use crate::connect::{connect, connect_at_once};
use crate::failure::{Answer, Failure};
use crate::printer::Printer;

mod admin;
mod agent;
mod apply;
mod approve;
mod audit;
mod bar;
mod completion;
mod confirm;
mod context;
mod delete;
mod deliver;
mod diff;
mod errors;
mod events;
mod grant;
mod history;
mod join;
mod login;
mod man;
mod preview;
mod project;
mod retarget;
mod rollback;
mod show;
mod similar;
mod status;
mod targets;
mod token;
mod version;
mod wait;
mod webhook;
mod whoami;
mod why;

pub async fn run(args: Args, printer: Printer) -> Result<Answer, Failure> {
    let Args { global, command } = args;
    match command {
        Command::Version => version::run(printer).map(yes),
        Command::Context(context) => context::run(context, &global, printer).map(yes),
        Command::Completion(completion) => completion::script(&completion, printer).map(yes),
        Command::Complete(words) => Box::pin(completion::answer(words, &global, printer)).await.map(yes),
        Command::Man(man) => man::run(&man, printer).map(yes),
        Command::Login(login) => Box::pin(login::run(login, &global, printer)).await.map(yes),
        // What is wrong with the files is told before anybody is asked.
        Command::Apply(apply) => Box::pin(apply::run(apply, &global, printer)).await.map(yes),
        Command::Agent(AgentCommand::Join(join)) => {
            Box::pin(join::run(*join, &global, printer)).await.map(yes)
        }
        Command::Admin(AdminCommand::SupportBundle(args)) => {
            Box::pin(admin::support_bundle::run(args, &global, printer)).await.map(yes)
        }
        Command::Admin(AdminCommand::Preflight) => Box::pin(admin::preflight::run(&global, printer)).await,
        command => {
            let client = match &command {
                Command::Why(_) => connect_at_once(&global, printer)?,
                _ => connect(&global, printer)?,
            };
            match Box::pin(ask(command, &client, printer)).await {
                Err(failure) => Err(similar::suggest(failure, &client).await),
                answer => answer,
            }
        }
    }
}

/// Commands that begin with the broker.
async fn ask(command: Command, client: &Client, printer: Printer) -> Result<Answer, Failure> {
    match command {
        Command::Diff(args) => return diff::run(args, client, printer).await,
        Command::Webhook(args) => return webhook::run(args, client, printer).await,
        Command::Audit(args) => return audit::run(args, client, printer).await,
        Command::Status(args) => status::run(args, client, printer).await,
        Command::Why(args) => why::run(args, client, printer).await,
        Command::Wait(args) => wait::run(args, client, printer).await,
        Command::Errors(args) => errors::run(args, client, printer).await,
        Command::Events(args) => events::run(args, client, printer).await,
        Command::History(args) => history::run(args, client, printer).await,
        Command::Show(args) => show::run(args, client, printer).await,
        Command::Retarget(args) => retarget::run(args, client, printer).await,
        Command::Rollback(args) => rollback::run(args, client, printer).await,
        Command::Bar(args) => bar::run(args, client, printer).await,
        Command::Approve(args) => approve::run(args, client, printer).await,
        Command::Preview(args) => preview::run(args, client, printer).await,
        Command::Targets(args) => targets::run(args, client, printer).await,
        Command::Delete(DeleteCommand::Stack(args)) => delete::run(args, client, printer).await,
        Command::Agent(args) => agent::run(args, client, printer).await,
        Command::Project(args) => project::run(args, client, printer).await,
        Command::Token(args) => token::run(args, client, printer).await,
        Command::Grant(args) => grant::run(args, client, printer).await,
        Command::Admin(args) => admin::run(args, client, printer).await,
        Command::Whoami => whoami::run(client, printer).await,
        // Answered before anybody was asked.
        Command::Version
        | Command::Login(_)
        | Command::Apply(_)
        | Command::Context(_)
        | Command::Completion(_)
        | Command::Complete(_)
        | Command::Man(_) => Ok(()),
    }
    .map(yes)
}

fn yes((): ()) -> Answer {
    Answer::Yes
}

//! The behaviour of each command, one file per noun or everyday verb.

use brokkr_client::Client;

use crate::args::{AdminCommand, AgentCommand, Args, Command, HealthCommand, StackCommand};
use crate::connect::{connect, connect_at_once};
use crate::failure::{Outcome, Result};
use crate::printer::Printer;

mod admin;
mod agent;
mod apply;
mod audit;
mod completion;
mod confirm;
mod context;
mod delete;
mod deliver;
mod diff;
mod events;
mod grant;
mod health;
mod health_rules;
mod join;
mod login;
mod man;
mod project;
mod rollback;
mod rollout;
mod rollout_policy;
mod similar;
mod stack;
mod status;
mod suspend;
mod token;
mod version;
mod wait;
mod webhook;
mod why;
mod window;

pub async fn run(args: Args, printer: Printer) -> Result<Outcome> {
    let Args { global, command } = args;
    match everyday(command) {
        Command::Version(args) => Box::pin(version::run(args, &global, printer)).await.map(success),
        Command::Context(context) => context::run(context, &global, printer).map(success),
        Command::Logout => login::logout(&global, printer).map(success),
        Command::Completion(completion) => completion::script(&completion, printer).map(success),
        Command::Complete(words) => Box::pin(completion::answer(words, &global, printer)).await.map(success),
        Command::Man(man) => man::run(&man, printer).map(success),
        Command::Health(HealthCommand::Test(args)) => health::test(&args, printer),
        Command::Login(login) => Box::pin(login::run(login, &global, printer)).await.map(success),
        // Errors in the manifests are shown before the broker is contacted.
        Command::Apply(apply) => Box::pin(apply::run(*apply, &global, printer)).await.map(success),
        Command::Agent(AgentCommand::Join(join)) => {
            Box::pin(join::run(*join, &global, printer)).await.map(success)
        }
        Command::Admin(AdminCommand::SupportBundle(args)) => {
            Box::pin(admin::support_bundle::run(args, &global, printer)).await.map(success)
        }
        Command::Admin(AdminCommand::Preflight) => Box::pin(admin::preflight::run(&global, printer)).await,
        command => {
            let client = match &command {
                Command::Why(_) => connect_at_once(&global, printer)?,
                _ => connect(&global, printer)?,
            };
            match Box::pin(with_client(command, &client, printer)).await {
                Err(failure) => Err(similar::suggest(failure, &client).await),
                answer => answer,
            }
        }
    }
}

/// Maps a command of the stack group that also exists at top level to the top-level command.
fn everyday(command: Command) -> Command {
    match command {
        Command::Stack(StackCommand::Apply(args)) => Command::Apply(args),
        Command::Stack(StackCommand::Status(args)) => Command::Status(args),
        Command::Stack(StackCommand::Why(args)) => Command::Why(args),
        Command::Stack(StackCommand::Wait(args)) => Command::Wait(args),
        Command::Stack(StackCommand::Diff(args)) => Command::Diff(args),
        Command::Stack(StackCommand::Rollback(args)) => Command::Rollback(args),
        command => command,
    }
}

/// Runs the commands that only need a client.
async fn with_client(command: Command, client: &Client, printer: Printer) -> Result<Outcome> {
    match command {
        Command::Diff(args) => return diff::run(args, client, printer).await,
        Command::Webhook(args) => return webhook::run(args, client, printer).await,
        Command::Audit(args) => return audit::run(args, client, printer).await,
        Command::Status(args) => status::run(args, client, printer).await,
        Command::Why(args) => why::run(args, client, printer).await,
        Command::Wait(args) => wait::run(args, client, printer).await,
        Command::Errors(args) => events::errors(args, client, printer).await,
        Command::Events(args) => events::run(args, client, printer).await,
        Command::Rollback(args) => rollback::run(args, client, printer).await,
        Command::Suspend(args) => suspend::suspend(args, client, printer).await,
        Command::Resume(args) => suspend::resume(args, client, printer).await,
        Command::Health(HealthCommand::Rules(args)) => health_rules::run(args, client, printer).await,
        Command::Stack(args) => manage_stack(args, client, printer).await,
        Command::Rollout(args) => rollout::run(args, client, printer).await,
        Command::Agent(args) => agent::run(args, client, printer).await,
        Command::Project(args) => project::run(args, client, printer).await,
        Command::Token(args) => token::run(args, client, printer).await,
        Command::Window(args) => window::run(args, client, printer).await,
        Command::Grant(args) => grant::run(args, client, printer).await,
        Command::Admin(args) => admin::run(args, client, printer).await,
        Command::Whoami => login::whoami(client, printer).await,
        // Handled by `run`.
        Command::Version(_)
        | Command::Login(_)
        | Command::Logout
        | Command::Apply(_)
        | Command::Context(_)
        | Command::Completion(_)
        | Command::Complete(_)
        | Command::Health(HealthCommand::Test(_))
        | Command::Man(_) => Ok(()),
    }
    .map(success)
}

async fn manage_stack(command: StackCommand, client: &Client, printer: Printer) -> Result {
    match command {
        StackCommand::List(args) => stack::list(args, client, printer).await,
        StackCommand::Show { stack } => stack::show(&stack, client, printer).await,
        StackCommand::History(args) => stack::history(args, client, printer).await,
        StackCommand::Manifest(args) => stack::manifest(args, client, printer).await,
        StackCommand::Barred { stack } => stack::barred(&stack, client, printer).await,
        StackCommand::Suspensions(args) => suspend::list(args, client, printer).await,
        StackCommand::Unbar(args) => stack::unbar(args, client, printer).await,
        StackCommand::Drift(args) => stack::set_drift(args, client, printer).await,
        StackCommand::Retarget(args) => stack::retarget(args, client, printer).await,
        StackCommand::Approve(args) => stack::approve(args, client, printer).await,
        StackCommand::Rerun(args) => stack::rerun(args, client, printer).await,
        StackCommand::Annotate(args) => stack::annotate(args, client, printer).await,
        StackCommand::Delete(args) => delete::run(args, client, printer).await,
        // Mapped by `everyday`.
        StackCommand::Apply(_)
        | StackCommand::Status(_)
        | StackCommand::Why(_)
        | StackCommand::Wait(_)
        | StackCommand::Diff(_)
        | StackCommand::Rollback(_) => Ok(()),
    }
}

fn success((): ()) -> Outcome {
    Outcome::Success
}

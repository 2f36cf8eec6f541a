//! What can be asked: only types, with the words of `--help`.

use std::path::PathBuf;
use std::time::Duration;

use brokkr_api::Name;
use brokkr_api::names::parse_label;
use clap::{Parser, Subcommand, ValueEnum};
use url::Url;

mod agent;
mod apply;
mod delete;
mod events;
mod login;
mod system;

pub use agent::{AgentCommand, JoinToken, LabelChange, Labelling, SetStatus};
pub use apply::Apply;
pub use delete::{DeleteCommand, DeleteStack};
pub use events::Events;
pub use login::Login;
pub use system::{Settle, SystemCommand};

/// Deliver to many Kubernetes clusters, and see that it arrived.
#[derive(Debug, Parser)]
#[command(
    name = "brokkr",
    version,
    propagate_version = false,
    max_term_width = 100,
    after_help = "Exit status: 0 ok, 2 usage, 3 operation failed, 4 not authenticated or not allowed,\n\
                  5 not found, 6 conflict, 7 broker unreachable, 124 timeout, 130 interrupted.\n\n\
                  Environment: BROKKR_TOKEN (an API token; never a flag), HTTPS_PROXY, NO_PROXY, NO_COLOR."
)]
pub struct Args {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// For people, or for programs: json is one document on stdout
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        env = "BROKKR_OUTPUT",
        hide_env_values = true
    )]
    pub output: Output,
    /// Which stored login to use
    #[arg(long, global = true, value_name = "NAME", env = "BROKKR_CONTEXT", hide_env_values = true)]
    pub context: Option<String>,
    /// The broker to talk to, instead of the context's
    #[arg(long, global = true, value_name = "URL", env = "BROKKR_SERVER", hide_env_values = true)]
    pub server: Option<Url>,
    /// Certificate authorities (PEM) to trust beside those of the system
    #[arg(long, global = true, value_name = "FILE", env = "BROKKR_CA_FILE", hide_env_values = true)]
    pub ca_file: Option<PathBuf>,
    /// Print only results and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    #[default]
    Table,
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Login(Login),
    Apply(Apply),
    Status(Status),
    Events(Events),
    History(History),
    Targets(Targets),
    /// Delete a stack and, on every agent, what it brought
    #[command(subcommand)]
    Delete(DeleteCommand),
    /// Agents: one for each cluster
    #[command(subcommand)]
    Agent(AgentCommand),
    /// The broker itself: on hold or not, and what a restore of its database left to settle
    #[command(subcommand)]
    System(SystemCommand),
    /// Who the broker takes you for
    Whoami,
    /// The version of this program
    Version,
}

/// Where stacks stand: all of them, or one on each agent and why
#[derive(Debug, clap::Args)]
pub struct Status {
    /// A stack, by name or id
    pub stack: Option<Name>,
}

/// The versions of a stack, newest first
#[derive(Debug, clap::Args)]
pub struct History {
    /// By name or id
    pub stack: Name,
}

/// What targets an agent, and why
#[derive(Debug, clap::Args)]
pub struct Targets {
    /// By name or id
    pub agent: Name,
}

fn label(text: &str) -> Result<(String, String), String> {
    parse_label(text).map_err(|error| error.to_string())
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "use a number and a unit, such as 90s, 5m or 1h30m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    /// The help of every command: a public surface, so a change of it shows.
    #[test]
    fn help() {
        let mut text = String::new();
        let mut brokkr = Args::command().term_width(100);
        brokkr.build();
        write_help(&mut brokkr, "brokkr", &mut text);
        insta::assert_snapshot!(text);
    }

    fn write_help(command: &mut clap::Command, path: &str, text: &mut String) {
        text.push_str(&format!("### {path}\n\n{}\n", command.render_long_help()));
        for inner in command.get_subcommands_mut().filter(|inner| inner.get_name() != "help") {
            let path = format!("{path} {}", inner.get_name());
            write_help(inner, &path, text);
        }
    }

    #[test]
    fn an_empty_selector_and_a_token_as_a_flag_are_refused() {
        assert!(Args::try_parse_from(["brokkr", "apply", "-f", "x", "--stack", "web", "--to", ""]).is_err());
        assert!(Args::try_parse_from(["brokkr", "login", "https://b", "--token", "brk_x"]).is_err());
    }
}

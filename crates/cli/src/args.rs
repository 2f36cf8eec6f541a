//! What can be asked: only types, with the words of `--help`.

use std::path::PathBuf;
use std::time::Duration;

use brokkr_api::Name;
use brokkr_api::names::parse_label;
use brokkr_api::page::LARGEST_PAGE;
use clap::{Parser, Subcommand, ValueEnum};
use jiff::Timestamp;
use url::Url;

mod admin;
mod agent;
mod apply;
mod approve;
mod audit;
mod bar;
mod content;
mod context;
mod delete;
mod diff;
mod events;
mod grant;
mod join;
mod login;
mod preview;
mod project;
mod rollback;
mod status;
mod targeting;
mod token;
mod wait;
mod webhook;
mod why;

pub use admin::{AdminCommand, Settle, SupportBundle};
pub use agent::{
    Abandon, AgentCommand, JoinToken, LabelChange, Labelling, ListAgents, Rejoin, Retire, Revoke, Rotate,
};
pub use apply::Apply;
pub use approve::Approve;
pub use audit::{AuditCommand, AuditList};
pub use bar::{BarCommand, LiftBar};
pub use content::Content;
pub use context::{Complete, Completion, ContextCommand, Man, Shell};
pub use delete::{DeleteCommand, DeleteStack};
pub use diff::DiffVersions;
pub use events::Events;
pub use grant::{DeleteGrant, GrantCommand, SetGrant};
pub use join::Join;
pub use login::Login;
pub use preview::Preview;
pub use project::{ProjectCommand, ProjectQuotas};
pub use rollback::Rollback;
pub use status::{Errors, History, ShowVersion, Status, Targets};
pub use targeting::{Retarget, Targeting};
pub use token::{CreateToken, RotateToken, TokenCommand};
pub use wait::{For, Wait, Waiting};
pub use webhook::{CreateHook, Deliveries, RotateHook, SetHook, WebhookCommand};
pub use why::{Subject, Why};

/// Deliver to many Kubernetes clusters, and see that it arrived.
#[derive(Debug, Parser)]
#[command(
    name = "brokkr",
    version,
    propagate_version = false,
    max_term_width = 100,
    after_help = "Exit status: 0 ok, 1 the answer is no (it differs, it does not hold), 2 usage, 3 operation failed,\n\
                  4 not authenticated or not allowed, 5 not found, 6 conflict or a guard, 7 broker unreachable,\n\
                  124 timeout, 130 interrupted.\n\n\
                  Environment: BROKKR_TOKEN (an API token; never a flag), HTTPS_PROXY, NO_PROXY, NO_COLOR, COLUMNS."
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
    /// How results are printed: table and wide for people, the others for programs
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
    /// Leave out the titles of tables
    #[arg(long, global = true)]
    pub no_headers: bool,
    /// Which stored login to use
    #[arg(long, global = true, value_name = "CONTEXT", env = "BROKKR_CONTEXT", hide_env_values = true)]
    pub context: Option<String>,
    /// The broker to talk to, instead of the context's
    #[arg(long, global = true, value_name = "URL", env = "BROKKR_SERVER", hide_env_values = true, value_parser = address)]
    pub server: Option<Url>,
    /// Certificate authorities (PEM) to trust beside those of the system
    #[arg(long, global = true, value_name = "FILE", env = "BROKKR_CA_FILE", hide_env_values = true)]
    pub ca_file: Option<PathBuf>,
    /// Read the token from this file (- is stdin) instead of using a stored one
    #[arg(long, global = true, value_name = "FILE", env = "BROKKR_TOKEN_FILE", hide_env_values = true)]
    pub token_file: Option<PathBuf>,
    /// The project to act in, for admins and auditors; everybody else acts in that of their token
    #[arg(long, global = true, value_name = "PROJECT", env = "BROKKR_PROJECT", hide_env_values = true)]
    pub project: Option<Name>,
    /// Print only results and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Columns, cut to the width of the terminal
    #[default]
    Table,
    /// More columns, and nothing is cut
    Wide,
    /// One document; with --watch one a line
    Json,
    /// The same as YAML
    Yaml,
    /// Only names, such as stack/web
    Name,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Login(Login),
    Apply(Apply),
    Diff(DiffVersions),
    Status(Status),
    Why(Why),
    Wait(Wait),
    Errors(Errors),
    Events(Events),
    History(History),
    Show(ShowVersion),
    Rollback(Rollback),
    /// Contents that a roll-back barred
    #[command(subcommand)]
    Bar(BarCommand),
    Approve(Approve),
    Retarget(Retarget),
    Targets(Targets),
    Preview(Preview),
    /// Delete a stack and, on every agent, what it brought
    #[command(subcommand)]
    Delete(DeleteCommand),
    /// Agents: one for each cluster
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Projects: who owns stacks, tokens and webhooks
    #[command(subcommand)]
    Project(ProjectCommand),
    /// API tokens, for people and machines
    #[command(subcommand)]
    Token(TokenCommand),
    /// Grants: which agents a project may use, for what, and as whom
    #[command(subcommand)]
    Grant(GrantCommand),
    /// Webhooks: who is told of what happens
    #[command(subcommand)]
    Webhook(WebhookCommand),
    /// The audit log: who did what, and whether nobody rewrote it
    #[command(subcommand)]
    Audit(AuditCommand),
    /// What an administrator of the broker looks at and does, before an upgrade and after a restore
    #[command(subcommand, alias = "system")]
    Admin(AdminCommand),
    /// Who the broker takes you for
    Whoami,
    /// Stored logins
    #[command(subcommand)]
    Context(ContextCommand),
    Completion(Completion),
    Man(Man),
    #[command(name = "__complete", hide = true)]
    Complete(Complete),
    /// The version of this program
    Version,
}

impl Command {
    /// Whether something may go on when the command is interrupted.
    pub fn submits(&self) -> bool {
        matches!(self, Self::Apply(_) | Self::Rollback(_) | Self::Delete(_))
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    parse_label(text).map_err(|error| error.to_string())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "use a whole number, such as 120".to_owned())
}

/// Where a broker is.
fn address(text: &str) -> Result<Url, String> {
    let url = text.parse::<Url>().ok().filter(Url::has_host);
    url.ok_or_else(|| "write the whole address, such as https://brokkr.example:8780".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "use a number and a unit, such as 90s, 5m or 1h30m".to_owned())
}

/// A time, or how long ago.
fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let ago = duration(text)
        .ok()
        .and_then(|ago| jiff::SignedDuration::try_from(ago).ok())
        .and_then(|ago| Timestamp::now().checked_sub(ago).ok());
    ago.ok_or_else(|| "use a time such as 2026-03-01T12:00:00Z, or how long ago, such as 2h".to_owned())
}

/// How much of a list is shown.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Most {
    /// How many at most, 0 for all; if not given, 100 on a terminal and all elsewhere
    #[arg(long, value_name = "NUMBER")]
    pub limit: Option<usize>,
}

/// How many items a page may have.
fn limit() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(LARGEST_PAGE))
}

/// A name, also as `-o name` prints it.
fn stack(text: &str) -> Result<Name, String> {
    text.strip_prefix("stack/")
        .unwrap_or(text)
        .parse()
        .map_err(|error: brokkr_api::names::BadName| error.to_string())
}

/// A name, also as `-o name` prints it.
fn agent(text: &str) -> Result<Name, String> {
    text.strip_prefix("agent/")
        .unwrap_or(text)
        .parse()
        .map_err(|error: brokkr_api::names::BadName| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    /// The help of every command: a public surface, so a change of it shows. What every command has is shown once.
    #[test]
    fn help() {
        let mut text = String::new();
        let mut brokkr = Args::command().term_width(100);
        brokkr.build();
        write_help(&mut brokkr, "brokkr", &mut text);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn the_reference_page_of_the_command_line_is_current() {
        let introduction = brokkr_reference::made_from("crates/cli/src/args")
            + "# brokkr\n\nThe command line for people and pipelines. Results are on stdout, everything else on stderr; \
               what it exits with is in [exit codes](../exit-codes.md). `brokkr man DIR` writes the same as manual \
               pages, `brokkr completion SHELL` completes it.\n";
        let command = Args::command().term_width(100);
        brokkr_reference::check("cli.md", &brokkr_reference::program(command, &introduction));
    }

    fn write_help(command: &mut clap::Command, path: &str, text: &mut String) {
        let help = command.render_long_help().to_string();
        let own =
            if path == "brokkr" { &help } else { help.split("Global options:").next().unwrap_or(&help) };
        let after = command.get_after_help().filter(|_| path != "brokkr");
        let after = after.map(|after| format!("\n\n{after}")).unwrap_or_default();
        text.push_str(&format!("### {path}\n\n{}{after}\n\n", own.trim_end()));
        let is_shown = |inner: &&mut clap::Command| inner.get_name() != "help" && !inner.is_hide_set();
        for inner in command.get_subcommands_mut().filter(is_shown) {
            let path = format!("{path} {}", inner.get_name());
            write_help(inner, &path, text);
        }
    }

    #[test]
    fn an_empty_selector_and_a_token_as_a_flag_are_refused() {
        assert!(Args::try_parse_from(["brokkr", "apply", "-f", "x", "--stack", "web", "--to", ""]).is_err());
        assert!(Args::try_parse_from(["brokkr", "login", "https://b", "--token", "brk_x"]).is_err());
    }

    #[test]
    fn admin_is_also_found_by_the_name_that_it_had() {
        let args = Args::try_parse_from(["brokkr", "system", "status"]).unwrap();
        assert!(matches!(args.command, Command::Admin(AdminCommand::Status)));
    }

    #[test]
    fn names_are_taken_as_they_are_printed() {
        let args = Args::try_parse_from(["brokkr", "history", "stack/web"]).unwrap();
        assert!(matches!(args.command, Command::History(History { stack, .. }) if stack.as_str() == "web"));
        assert!(Args::try_parse_from(["brokkr", "history", "agent/web"]).is_err());
    }
}

//! The command line's grammar: types and help texts only, one file per noun.

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
mod agent_upgrade;
mod audit;
mod context;
mod deliver;
mod grant;
mod health;
mod help;
mod observe;
mod project;
mod rollout;
mod stack;
mod suspend;
mod token;
mod webhook;
mod window;

pub use admin::{AdminCommand, Purge, Settle, SupportBundle};
pub use agent::{
    Abandon, AgentCommand, DeleteAgent, Join, JoinToken, LabelAgent, LabelChange, ListAgents, Preview,
    Rejoin, Retire, Revoke, Rotate,
};
pub use agent_upgrade::{BeginUpgrade, OneUpgrade, ReasonedUpgrade, UpgradeAgents, UpgradeCommand};
pub use audit::{AuditCommand, AuditList};
pub use context::{Complete, Completion, ContextCommand, Login, Man, Shell, Version};
pub use deliver::{
    Apply, Content, Diff, Rollback, Targeting, Wait, WaitGoal, WaitOptions, WaitTerms, WaitUntil,
};
pub use grant::{DeleteGrant, GrantCommand, SetGrant};
pub use health::{HealthCommand, HealthRulesCommand, HealthRulesScope, TestHealth};
pub use help::command;
pub use observe::{Errors, Events, Status, Subject, Why};
pub use project::{ProjectCommand, ProjectQuotas, SetProject};
pub use rollout::{OneRollout, ReasonedRollout, RolloutArgs, RolloutCommand, SetRolloutPolicy};
pub use stack::{
    Annotate, AnnotationChange, Approve, DeleteStack, History, ListStacks, Manifest, Rerun, Retarget,
    SetDrift, StackCommand, Unbar,
};
pub use suspend::{ListSuspensions, Resume, Suspend};
pub use token::{CreateToken, RotateToken, TokenCommand};
pub use webhook::{CreateWebhookArgs, Deliveries, RotateWebhookSecret, SetWebhook, WebhookCommand};
pub use window::{DeleteWindow, WindowCommand, WindowScope};

/// Deploy to many Kubernetes clusters and see the result
#[derive(Debug, Parser)]
#[command(
    name = "brokkr",
    version,
    propagate_version = false,
    max_term_width = 100,
    after_help = "Exit status: 0 success, 1 negative result (a difference, a failed check), 2 usage error, 3 operation failed, \
                  4 not authenticated or not allowed, 5 not found, 6 conflict or --expect required, \
                  7 broker unreachable, 8 rolled out but bad on some agents, 124 timeout, 130 interrupted.\n\n\
                  Environment: BROKKR_TOKEN (an API token; there is no flag for it), HTTPS_PROXY, NO_PROXY, NO_COLOR, COLUMNS."
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
    /// Output format
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
    /// Do not print table headers
    #[arg(long, global = true)]
    pub no_headers: bool,
    /// Use this context instead of the current one
    #[arg(long, global = true, value_name = "CONTEXT", env = "BROKKR_CONTEXT", hide_env_values = true)]
    pub context: Option<String>,
    /// Use this broker instead of the context's
    #[arg(long, global = true, value_name = "URL", env = "BROKKR_SERVER", hide_env_values = true, value_parser = server_url)]
    pub server: Option<Url>,
    /// Trust the certificate authorities in this PEM file, in addition to the system's
    #[arg(long, global = true, value_name = "FILE", env = "BROKKR_CA_FILE", hide_env_values = true)]
    pub ca_file: Option<PathBuf>,
    /// Read the token from this file (- for stdin) instead of using the stored one
    #[arg(long, global = true, value_name = "FILE", env = "BROKKR_TOKEN_FILE", hide_env_values = true)]
    pub token_file: Option<PathBuf>,
    /// Act in this project (admins and auditors only; other tokens act in their own project)
    #[arg(long, global = true, value_name = "PROJECT", env = "BROKKR_PROJECT", hide_env_values = true)]
    pub project: Option<Name>,
    /// Print only results and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Table, truncated to the width of the terminal
    #[default]
    Table,
    /// Table with more columns, not truncated
    Wide,
    /// One JSON document; with --watch, one per line
    Json,
    /// The same document as YAML
    Yaml,
    /// Names only, such as stack/web
    Name,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Apply(Box<Apply>),
    Status(Status),
    Why(Why),
    Diff(Diff),
    Rollback(Rollback),
    Suspend(Suspend),
    Resume(Resume),
    Wait(Wait),
    Events(Events),
    Errors(Errors),
    /// Check rules for the health of objects
    #[command(subcommand)]
    Health(HealthCommand),
    /// Manage stacks and their versions
    #[command(subcommand)]
    Stack(StackCommand),
    /// Manage rollouts
    #[command(subcommand)]
    Rollout(RolloutCommand),
    /// Manage agents, one per cluster
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Manage webhooks
    #[command(subcommand)]
    Webhook(WebhookCommand),
    /// Manage projects and their quotas
    #[command(subcommand)]
    Project(ProjectCommand),
    /// Manage maintenance windows and freezes
    #[command(subcommand)]
    Window(WindowCommand),
    /// Manage grants, which let projects use agents
    #[command(subcommand)]
    Grant(GrantCommand),
    /// Manage API tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// View and verify the audit log
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Check the installation, and settle stacks after a restore
    #[command(subcommand)]
    Admin(AdminCommand),
    Login(Login),
    /// Remove the stored token of the current context
    ///
    /// The context itself stays, and the token stays valid until it is revoked or expires.
    Logout,
    /// Show your identity and role
    Whoami,
    /// Manage contexts, which store logins
    #[command(subcommand)]
    Context(ContextCommand),
    Version(Version),
    Completion(Completion),
    Man(Man),
    #[command(name = "__complete", hide = true)]
    Complete(Complete),
}

impl Command {
    /// Returns whether work continues on the broker and the agents if the command is interrupted.
    pub fn submits(&self) -> bool {
        matches!(
            self,
            Self::Apply(_)
                | Self::Rollback(_)
                | Self::Stack(StackCommand::Apply(_) | StackCommand::Rollback(_) | StackCommand::Delete(_))
        )
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    parse_label(text).map_err(|error| error.to_string())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "expected a whole number, such as 120".to_owned())
}

fn server_url(text: &str) -> Result<Url, String> {
    let url = text.parse::<Url>().ok().filter(Url::has_host);
    url.ok_or_else(|| "expected a complete URL, such as https://brokkr.example:8780".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "expected a number and a unit, such as 90s, 5m or 1h30m".to_owned())
}

/// Parses a time, or a duration before now.
fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let ago = duration(text)
        .ok()
        .and_then(|ago| jiff::SignedDuration::try_from(ago).ok())
        .and_then(|ago| Timestamp::now().checked_sub(ago).ok());
    ago.ok_or_else(|| {
        "expected a time such as 2026-03-01T12:00:00Z, or a duration before now such as 2h".to_owned()
    })
}

/// Limits the rows of a list.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct RowLimit {
    /// Show at most this many, 0 for all [default: 100 on a terminal, otherwise all]
    #[arg(long, value_name = "NUMBER")]
    pub limit: Option<usize>,
}

/// Parses the size of a page.
fn limit() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(LARGEST_PAGE))
}

/// Parses a stack's name or id, also as `-o name` prints it.
fn stack(text: &str) -> Result<Name, String> {
    text.strip_prefix("stack/")
        .unwrap_or(text)
        .parse()
        .map_err(|error: brokkr_api::names::BadName| error.to_string())
}

/// Parses an agent's name or id, also as `-o name` prints it.
fn agent(text: &str) -> Result<Name, String> {
    text.strip_prefix("agent/")
        .unwrap_or(text)
        .parse()
        .map_err(|error: brokkr_api::names::BadName| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        command().debug_assert();
    }

    /// Snapshots the help of every command. Global options are shown once.
    #[test]
    fn help() {
        let mut text = String::new();
        let mut brokkr = command().term_width(100);
        brokkr.build();
        write_help(&mut brokkr, "brokkr", &mut text);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn the_reference_page_of_the_command_line_is_current() {
        let introduction = brokkr_reference::made_from("crates/cli/src/args")
            + "# brokkr\n\nThe CLI, for people and pipelines. Results go to stdout, everything else to stderr. \
               The exit status is described in [exit codes](../exit-codes.md). `brokkr man DIR` writes the same text as \
               manual pages; `brokkr completion SHELL` prints a completion script.\n";
        let command = command().term_width(100);
        brokkr_reference::check("cli.md", &brokkr_reference::program(command, &introduction));
    }

    fn write_help(command: &mut clap::Command, path: &str, text: &mut String) {
        let help = command.render_long_help().to_string();
        let own =
            if path == "brokkr" { &help } else { help.split("Global options:").next().unwrap_or(&help) };
        let after = command.get_after_help().filter(|_| path != "brokkr");
        let after = after.map(|after| format!("\n\n{after}")).unwrap_or_default();
        text.push_str(&format!("### {path}\n\n{}{after}\n\n", own.trim_end()));
        for inner in command.get_subcommands_mut().filter(|inner| is_shown(inner)) {
            let path = format!("{path} {}", inner.get_name());
            write_help(inner, &path, text);
        }
    }

    fn is_shown(command: &clap::Command) -> bool {
        command.get_name() != "help" && !command.is_hide_set()
    }

    /// Calls `visit` with the path of every visible command.
    fn walk(command: &clap::Command, path: &str, visit: &mut impl FnMut(&str, &clap::Command)) {
        visit(path, command);
        for inner in command.get_subcommands().filter(|inner| is_shown(inner)) {
            walk(inner, &format!("{path} {}", inner.get_name()), visit);
        }
    }

    fn built() -> clap::Command {
        let mut brokkr = command();
        brokkr.build();
        brokkr
    }

    #[test]
    fn a_short_flag_means_the_same_everywhere() {
        let mut meanings: BTreeMap<char, (String, String)> = BTreeMap::new();
        walk(&built(), "brokkr", &mut |path, command| {
            for arg in command.get_arguments() {
                let (Some(short), Some(long)) = (arg.get_short(), arg.get_long()) else { continue };
                let first = meanings.entry(short).or_insert_with(|| (long.to_owned(), path.to_owned()));
                assert_eq!(first.0, long, "-{short} of `{path}` is --{} in `{}`", first.0, first.1);
            }
        });
        assert!(meanings.len() > 10, "{meanings:?}");
    }

    /// Help lines start with a verb in the imperative; this is the vocabulary.
    const VERBS: &[&str] = &[
        "Abandon", "Abort", "Apply", "Approve", "Ask", "Change", "Check", "Compare", "Create", "Delete",
        "Deny", "Deploy", "Disable", "Enable", "End", "Explain", "Install", "Lift", "List", "Log", "Manage",
        "Pause", "Preview", "Print", "Promote", "Remove", "Replace", "Resend", "Resume", "Retire", "Revoke",
        "Roll", "Rotate", "Run", "Send", "Set", "Settle", "Show", "Skip", "Stop", "Suspend", "Switch",
        "Unbar", "Upgrade", "Verify", "View", "Wait", "Watch", "Write",
    ];

    #[test]
    fn every_help_line_starts_with_a_verb_and_fits_on_one_line() {
        walk(&built(), "brokkr", &mut |path, command| {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let verb = about.split_whitespace().next().unwrap_or_default();
            assert!(VERBS.contains(&verb), "the help of `{path}` starts with {verb:?}: {about}");
            assert!(about.chars().count() <= 80, "the help of `{path}` is too long: {about}");
            assert!(!about.ends_with('.'), "the help of `{path}` ends with a full stop");
        });
    }

    #[test]
    fn an_empty_selector_and_a_token_as_a_flag_are_refused() {
        assert!(Args::try_parse_from(["brokkr", "apply", "web", "-f", "x", "--to", ""]).is_err());
        assert!(Args::try_parse_from(["brokkr", "login", "https://b", "--token", "brk_x"]).is_err());
    }

    #[test]
    fn everyday_commands_are_also_in_the_stack_group() {
        let brokkr = built();
        let stack = brokkr.find_subcommand("stack").unwrap();
        for name in ["apply", "status", "why", "diff", "rollback", "wait"] {
            let about = |command: &clap::Command| {
                command.find_subcommand(name).and_then(clap::Command::get_about).map(ToString::to_string)
            };
            assert!(about(&brokkr).is_some() && about(&brokkr) == about(stack), "{name}");
        }
    }

    #[test]
    fn names_are_accepted_as_they_are_printed() {
        let args = Args::try_parse_from(["brokkr", "stack", "history", "stack/web"]).unwrap();
        assert!(
            matches!(args.command, Command::Stack(StackCommand::History(History { stack, .. })) if stack.as_str() == "web")
        );
        assert!(Args::try_parse_from(["brokkr", "stack", "history", "agent/web"]).is_err());
    }
}

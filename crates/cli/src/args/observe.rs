//! `brokkr status`, `why`, `events` and `errors`: what happens on the agents.

use std::str::FromStr;

use brokkr_api::names::BadName;
use brokkr_api::report::Transition;
use brokkr_api::status::State;
use brokkr_api::{Name, Selector, SequenceId};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use jiff::Timestamp;

/// Show the state of all stacks, or of one stack on each agent
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  brokkr status\n  brokkr status web --state failed -l region=eu\n  \
                        brokkr status --watch\n  \
                        brokkr status web --watch -o json")]
pub struct Status {
    /// Name or id; without it, all stacks are shown
    #[arg(value_parser = super::stack)]
    pub stack: Option<Name>,
    /// Show only agents with matching labels, such as env=prod
    #[arg(short = 'l', long, value_name = "SELECTOR", requires = "stack")]
    pub selector: Option<Selector>,
    /// Show only agents in this state
    #[arg(long, value_name = "STATE", requires = "stack", value_parser = state())]
    pub state: Option<State>,
    #[command(flatten)]
    pub rows: super::RowLimit,
    /// Print changes until interrupted
    #[arg(short, long, conflicts_with = "limit")]
    pub watch: bool,
}

fn state() -> impl clap::builder::TypedValueParser<Value = State> {
    let states = ["pending", "applied", "healthy", "degraded", "failed", "removing", "blocked", "removed"];
    PossibleValuesParser::new(states).try_map(|text| text.parse::<State>())
}

/// Explain why a stack or an agent is not in sync, and what to do about it
///
/// Shows the first hop that is not complete, the cause and the next step. The hops are published, targeted, released,
/// fetched, verified, applied, pruned, healthy and reported.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  brokkr why web\n  brokkr why web --agent eu-1\n  brokkr why agent/eu-1")]
pub struct Why {
    /// Name or id of a stack, or agent/NAME
    #[arg(value_name = "STACK|agent/AGENT")]
    pub subject: Subject,
    /// Explain the stack on this agent [default: up to 10 agents on which it is not in sync]
    #[arg(short, long, value_name = "AGENT", value_parser = super::agent)]
    pub agent: Option<Name>,
}

/// The stack or agent to explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Stack(Name),
    Agent(Name),
}

impl FromStr for Subject {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("agent/") {
            Some(agent) => agent.parse().map(Self::Agent),
            None => text.strip_prefix("stack/").unwrap_or(text).parse().map(Self::Stack),
        }
    }
}

/// List events that agents reported, newest last
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  brokkr events web --since 2h --event failed\n  brokkr events --watch")]
pub struct Events {
    /// Show only events of this stack, by name or id
    #[arg(value_parser = super::stack)]
    pub stack: Option<Name>,
    /// Show only events of this agent, by name or id
    #[arg(short, long, value_name = "AGENT", value_parser = super::agent)]
    pub agent: Option<Name>,
    /// Show only events of this version
    #[arg(long, value_name = "SEQUENCE", conflicts_with = "watch")]
    pub sequence: Option<SequenceId>,
    /// Show only events of this kind
    #[arg(long = "event", value_name = "EVENT", conflicts_with = "watch", value_parser = transition())]
    pub transition: Option<Transition>,
    /// Show only events after this time, or within this duration
    #[arg(long, value_name = "TIME|DURATION", conflicts_with = "watch", value_parser = super::time)]
    pub since: Option<Timestamp>,
    /// Show only events before this time, or older than this duration
    #[arg(long, value_name = "TIME|DURATION", conflicts_with = "watch", value_parser = super::time)]
    pub until: Option<Timestamp>,
    /// Show at most this many
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = super::limit())]
    pub limit: u32,
    /// Print new events until interrupted
    #[arg(short, long)]
    pub watch: bool,
}

fn transition() -> impl clap::builder::TypedValueParser<Value = Transition> {
    let kinds = [
        "applied",
        "healthy",
        "degraded",
        "failed",
        "repaired",
        "suspended",
        "resumed",
        "blocked",
        "removed",
    ];
    PossibleValuesParser::new(kinds).try_map(|text| text.parse::<Transition>())
}

/// List current errors, grouped, with the number of occurrences
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr errors web")]
pub struct Errors {
    /// Show only errors of this stack, by name or id
    #[arg(value_parser = super::stack)]
    pub stack: Option<Name>,
}

//! `brokkr status`, `errors`, `history`, `show` and `targets`

use brokkr_api::status::State;
use brokkr_api::{Name, Selector, SequenceId};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

/// Where stacks stand: all of them, or one on each agent and why
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  brokkr status\n  brokkr status web --state failed -l region=eu\n  \
                        brokkr status --watch\n  \
                        brokkr status web --watch -o json")]
pub struct Status {
    /// A stack, by name or id
    #[arg(value_parser = super::stack)]
    pub stack: Option<Name>,
    /// Only agents whose labels match, such as env=prod
    #[arg(short = 'l', long, value_name = "SELECTOR", requires = "stack")]
    pub selector: Option<Selector>,
    /// Only agents on which it is so
    #[arg(long, value_name = "STATE", requires = "stack", value_parser = state())]
    pub state: Option<State>,
    #[command(flatten)]
    pub most: super::Most,
    /// Go on with every change, until interrupted
    #[arg(short, long, conflicts_with = "limit")]
    pub watch: bool,
}

fn state() -> impl clap::builder::TypedValueParser<Value = State> {
    let states = ["pending", "applied", "healthy", "degraded", "failed", "removing", "blocked", "removed"];
    PossibleValuesParser::new(states).try_map(|text| text.parse::<State>())
}

/// What is wrong now: each mistake once, with how often it is there
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr errors web")]
pub struct Errors {
    /// Only of this stack, by name or id
    #[arg(value_parser = super::stack)]
    pub stack: Option<Name>,
}

/// The versions of a stack, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr history web")]
pub struct History {
    /// By name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    #[command(flatten)]
    pub most: super::Most,
}

/// The YAML of a version of a stack, as it was submitted
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  brokkr show web\n  brokkr show web 42 > web-42.yaml")]
pub struct ShowVersion {
    /// By name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// Its sequence id, as in the history; the newest if left out
    #[arg(value_name = "SEQUENCE")]
    pub sequence: Option<SequenceId>,
}

/// What targets an agent, and why
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr targets eu-1")]
pub struct Targets {
    /// By name or id
    #[arg(value_parser = super::agent)]
    pub agent: Name,
}

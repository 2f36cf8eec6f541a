//! `brokkr events`

use brokkr_api::report::Transition;
use brokkr_api::{Name, SequenceId};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use jiff::Timestamp;

/// What agents reported, the newest last
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr events --stack web --since 2h --event failed")]
pub struct Events {
    /// Only of this stack, by name or id
    #[arg(long, value_name = "STACK", value_parser = super::stack)]
    pub stack: Option<Name>,
    /// Only of this agent, by name or id
    #[arg(short, long, value_name = "AGENT", value_parser = super::agent)]
    pub agent: Option<Name>,
    /// Only of this version
    #[arg(long, value_name = "SEQUENCE", conflicts_with = "watch")]
    pub sequence: Option<SequenceId>,
    /// Only of this kind
    #[arg(long = "event", value_name = "EVENT", conflicts_with = "watch", value_parser = transition())]
    pub transition: Option<Transition>,
    /// From this time on: a time, or how long ago
    #[arg(long, value_name = "TIME|DURATION", conflicts_with = "watch", value_parser = super::time)]
    pub since: Option<Timestamp>,
    /// Before this time: a time, or how long ago
    #[arg(long, value_name = "TIME|DURATION", conflicts_with = "watch", value_parser = super::time)]
    pub until: Option<Timestamp>,
    /// How many at most
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = super::limit())]
    pub limit: u32,
    /// Go on with every event as it comes, until interrupted
    #[arg(short, long)]
    pub watch: bool,
}

fn transition() -> impl clap::builder::TypedValueParser<Value = Transition> {
    let kinds = ["applied", "healthy", "degraded", "failed", "repaired", "blocked", "removed"];
    PossibleValuesParser::new(kinds).try_map(|text| text.parse::<Transition>())
}

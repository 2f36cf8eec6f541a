//! `brokkr why`

use std::str::FromStr;

use brokkr_api::Name;
use brokkr_api::names::BadName;

/// Why something is not as it should be: the first hop that is not passed, what keeps it, and what to do
///
/// The hops are published, targeted, released, fetched, verified, applied, pruned, healthy and reported.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  brokkr why web\n  brokkr why web --agent eu-1\n  brokkr why agent/eu-1")]
pub struct Why {
    /// A stack by name or id, or agent/NAME
    #[arg(value_name = "STACK|agent/AGENT")]
    pub subject: Subject,
    /// On this agent, by name or id; without it, on the first agents where the stack is not as it should be
    #[arg(short, long, value_name = "AGENT", value_parser = super::agent)]
    pub agent: Option<Name>,
}

/// What is asked about.
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

//! `brokkr agent …`

use std::str::FromStr;
use std::time::Duration;

use brokkr_api::Name;
use brokkr_api::agents::AgentStatus;
use brokkr_api::names::{BadLabel, check_label_key, parse_label};
use clap::{Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    JoinToken(JoinToken),
    /// All agents
    List,
    /// One agent
    Status {
        /// By name or id
        name: Name,
    },
    SetStatus(SetStatus),
    Label(Labelling),
}

/// Make a token with which one agent can join
///
/// The token alone is printed to stdout, once. It can be used by one agent, which gets this name and these labels.
#[derive(Debug, clap::Args)]
pub struct JoinToken {
    /// The name that the agent will have
    pub name: Name,
    /// A label that the agent will have; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::label)]
    pub label: Vec<(String, String)>,
    /// How long it can be used
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = super::duration)]
    pub ttl: Duration,
}

/// Let an agent work, or hold it
///
/// An agent that is not active gets no deployment objects and changes nothing in its cluster.
#[derive(Debug, clap::Args)]
pub struct SetStatus {
    /// By name or id
    pub name: Name,
    /// What the agent is to be
    #[arg(value_enum)]
    pub status: Wanted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wanted {
    Active,
    Inactive,
}

impl From<Wanted> for AgentStatus {
    fn from(wanted: Wanted) -> Self {
        match wanted {
            Wanted::Active => Self::Active,
            Wanted::Inactive => Self::Inactive,
        }
    }
}

/// Set (KEY=VALUE) and remove (KEY-) labels of an agent
///
/// Selectors are matched again at once: an agent that a stack no longer targets removes that stack.
#[derive(Debug, clap::Args)]
pub struct Labelling {
    /// By name or id
    pub name: Name,
    /// What to set or remove
    #[arg(required = true, value_name = "KEY=VALUE|KEY-")]
    pub changes: Vec<LabelChange>,
    /// How many stacks the agent loses by it; the refusal without it says the number
    #[arg(long, value_name = "NUMBER")]
    pub expect: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelChange {
    Set(String, String),
    Remove(String),
}

impl FromStr for LabelChange {
    type Err = BadLabel;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_suffix('-') {
            Some(key) if !text.contains('=') => check_label_key(key).map(|()| Self::Remove(key.to_owned())),
            _ => parse_label(text).map(|(key, value)| Self::Set(key, value)),
        }
    }
}

//! `brokkr agent …`

use std::str::FromStr;
use std::time::Duration;

use brokkr_api::agents::AgentStatus;
use brokkr_api::names::{BadLabel, check_label_key, parse_label};
use brokkr_api::why::Presence;
use brokkr_api::{Name, Selector, TokenId};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    Join(Box<super::Join>),
    List(ListAgents),
    /// One agent
    #[command(visible_alias = "status")]
    Show(OneAgent),
    Label(Labelling),
    /// Pause an agent: it gets nothing new and changes nothing in its cluster
    Pause(OneAgent),
    /// Let a paused agent work again
    #[command(visible_alias = "resume")]
    Activate(OneAgent),
    JoinToken(JoinToken),
    /// The join tokens, oldest first, with the expired ones of the last 30 days
    JoinTokens,
    /// Revoke a join token; an agent that has used it stays
    RevokeJoinToken {
        /// As `brokkr agent join-tokens` shows it
        #[arg(value_name = "ID")]
        id: TokenId,
    },
    Rejoin(Rejoin),
    Rotate(Rotate),
    Revoke(Revoke),
    Retire(Retire),
    Abandon(Abandon),
    #[command(hide = true)]
    SetStatus(SetStatus),
}

/// All agents, or some of them
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr agent list -l env=prod --presence silent")]
pub struct ListAgents {
    /// Only agents whose labels match, such as env=prod
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<Selector>,
    /// Only agents with this in their names
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// Only agents that are active, or paused (inactive)
    #[arg(long, value_enum)]
    pub status: Option<Wanted>,
    /// Only agents that are there, or not
    #[arg(long, value_name = "PRESENCE", value_parser = presence())]
    pub presence: Option<Presence>,
    #[command(flatten)]
    pub most: super::Most,
}

fn presence() -> impl clap::builder::TypedValueParser<Value = Presence> {
    PossibleValuesParser::new(["fresh", "late", "silent", "never"]).try_map(|text| text.parse::<Presence>())
}

#[derive(Debug, clap::Args)]
pub struct OneAgent {
    /// By name or id
    #[arg(value_parser = super::agent)]
    pub agent: Name,
}

/// Make a token with which one agent can join
///
/// The token alone is printed to stdout, once. It can be used by one agent, which gets this name and these labels.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr agent join-token eu-1 -l env=prod -l region=eu > join-token")]
pub struct JoinToken {
    /// The name that the agent will have
    pub name: Name,
    /// A label that the agent will have; can be repeated
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = super::label)]
    pub label: Vec<(String, String)>,
    /// How long it can be used, a week at most
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = super::duration)]
    pub ttl: Duration,
}

/// Make a token with which an agent that exists gets a new key
///
/// The agent keeps its id, labels and targets. Once the token is used, every other key of the agent ends.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr agent rejoin eu-1 > join-token")]
pub struct Rejoin {
    /// By name or id
    #[arg(value_parser = super::agent)]
    pub agent: Name,
    /// How long it can be used, a week at most
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = super::duration)]
    pub ttl: Duration,
}

/// Ask an agent for a new key, and wait until it has one
///
/// Agents do that by themselves after 60 days. The key is made in the cluster and never leaves it; the one before is good for
/// another hour. If somebody else may have the key, revoke it instead.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr agent rotate eu-1")]
pub struct Rotate {
    /// By name or id
    #[arg(value_parser = super::agent)]
    pub agent: Name,
    /// How long to wait
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = super::duration)]
    pub timeout: Duration,
}

/// End every key of an agent: whoever has them is refused within a second
///
/// Its cluster is left as it is. `brokkr agent join NAME --rejoin` lets it in again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr agent revoke eu-1 --yes")]
pub struct Revoke {
    /// By name or id
    #[arg(value_parser = super::agent)]
    pub agent: Name,
    /// Do not ask (for scripts)
    #[arg(short, long)]
    pub yes: bool,
}

/// Take an agent out of service: it removes everything that it brought, and is let go when that is done
///
/// Nothing targets it from now on, so its labels are taken off. The agent has to be there; for one whose cluster does not come
/// back, there is `brokkr agent abandon`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr agent retire shop-17 --yes")]
pub struct Retire {
    /// By name or id
    #[arg(value_parser = super::agent)]
    pub agent: Name,
    /// Do not ask (for scripts)
    #[arg(short, long)]
    pub yes: bool,
    /// How long to wait until everything is gone
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = super::duration)]
    pub timeout: Duration,
}

/// Give up an agent whose cluster does not come back: it is refused, and nothing is owed there any more
///
/// What is still in its cluster stays there. Who gave it up, and why, is kept with the agent.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr agent abandon shop-17 --reason 'the shop burnt down'")]
pub struct Abandon {
    /// By name or id
    #[arg(value_parser = super::agent)]
    pub agent: Name,
    /// Why, for whoever asks later
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Do not ask (for scripts)
    #[arg(short, long)]
    pub yes: bool,
}

/// Let an agent work, or pause it: the same as activate and pause
#[derive(Debug, clap::Args)]
pub struct SetStatus {
    /// By name or id
    #[arg(value_parser = super::agent)]
    pub agent: Name,
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
#[command(after_help = "Example: brokkr agent label eu-1 env=prod canary-")]
pub struct Labelling {
    /// By name or id
    #[arg(value_parser = super::agent)]
    pub agent: Name,
    /// What to set or remove
    #[arg(required = true, value_name = "KEY=VALUE|KEY-")]
    pub changes: Vec<LabelChange>,
    /// How many stacks the agent loses by it; the refusal without it says the number
    #[arg(long, value_name = "NUMBER", value_parser = super::number::<u64>)]
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

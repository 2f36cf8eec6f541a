//! `brokkr agent …`

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use brokkr_api::agents::AgentStatus;
use brokkr_api::names::{BadLabel, check_label_key, parse_label};
use brokkr_api::why::Presence;
use brokkr_api::{Name, Selector, TokenId};
use brokkr_install::rights::Rights;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Subcommand, ValueEnum};
use url::Url;

use super::UpgradeAgents;

#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    Join(Box<Join>),
    List(ListAgents),
    /// Show one agent
    Show(OneAgent),
    Label(LabelAgent),
    /// List the stacks that target an agent, and how
    Targets(OneAgent),
    Preview(Preview),
    /// Pause an agent, so that it neither fetches nor changes anything
    Pause(OneAgent),
    /// Resume a paused agent
    Resume(OneAgent),
    JoinToken(JoinToken),
    /// List join tokens, oldest first, including those expired in the last 30 days
    JoinTokens,
    /// Revoke a join token; an agent that has used it keeps its key
    RevokeJoinToken {
        /// Id, as shown by `brokkr agent join-tokens`
        #[arg(value_name = "ID")]
        id: TokenId,
    },
    Rejoin(Rejoin),
    Rotate(Rotate),
    Revoke(Revoke),
    Retire(Retire),
    Abandon(Abandon),
    Delete(DeleteAgent),
    Upgrade(Box<UpgradeAgents>),
}

/// Install an agent into a cluster and wait until it is connected
///
/// kubectl must be able to reach the cluster. If it cannot, or with --print, the command prints a script to run on a machine
/// that can. The agent gets a single-use token, and trusts the same certificate authority for the broker as you do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  brokkr agent join shop-1 --label env=prod --label region=eu\n  \
                  brokkr agent join shop-1 --print > shop-1.sh")]
pub struct Join {
    /// Name for the agent
    pub name: Name,
    /// Give the agent a label; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::label)]
    pub label: Vec<(String, String)>,
    /// Print the installation script instead of running it
    #[arg(long)]
    pub print: bool,
    /// Install an existing agent again: it keeps its id, labels and targets, and gets a new key
    #[arg(long, conflicts_with = "label")]
    pub rejoin: bool,
    /// Use this kubectl context
    #[arg(long, value_name = "CONTEXT")]
    pub kube_context: Option<String>,
    /// Use this kubeconfig file
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Install the agent into this namespace
    #[arg(long, default_value = brokkr_install::NAMESPACE)]
    pub namespace: String,
    #[command(flatten)]
    pub rights: Rights,
    /// Use this agent image; the cluster's nodes must be able to pull it
    #[arg(long, default_value = brokkr_install::workload::IMAGE, env = "BROKKR_AGENT_IMAGE", hide_env_values = true)]
    pub image: String,
    /// URL of the broker as seen from the cluster, if it differs from yours
    #[arg(long, value_name = "URL")]
    pub broker_url: Option<Url>,
    /// HTTP proxy between the agent and the broker
    #[arg(long, value_name = "URL")]
    pub proxy: Option<Url>,
    /// Validity of the join token, at most 7 days
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = super::duration)]
    pub ttl: Duration,
    /// Stop waiting for the agent after this time
    #[arg(long, value_name = "DURATION", default_value = "3m", value_parser = super::duration)]
    pub timeout: Duration,
}

/// Delete an agent that was retired or abandoned
///
/// Its name can be used again. Events and audit entries stay. To retire an agent, use `brokkr agent retire`; if its cluster is
/// lost, `brokkr agent abandon`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr agent delete shop-1 --yes")]
pub struct DeleteAgent {
    /// Name or id
    #[arg(value_parser = super::agent)]
    pub agent: Name,
    /// Skip the confirmation
    #[arg(short, long)]
    pub yes: bool,
}

/// List agents
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr agent list -l env=prod --presence silent")]
pub struct ListAgents {
    /// Show only agents with matching labels, such as env=prod
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<Selector>,
    /// Show only agents with this text in their names
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// Show only active or only paused (inactive) agents
    #[arg(long, value_enum)]
    pub status: Option<StatusFilter>,
    /// Show only agents with this presence
    #[arg(long, value_name = "PRESENCE", value_parser = presence())]
    pub presence: Option<Presence>,
    #[command(flatten)]
    pub rows: super::RowLimit,
}

fn presence() -> impl clap::builder::TypedValueParser<Value = Presence> {
    PossibleValuesParser::new(["fresh", "late", "silent", "never"]).try_map(|text| text.parse::<Presence>())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatusFilter {
    Active,
    Inactive,
}

impl From<StatusFilter> for AgentStatus {
    fn from(filter: StatusFilter) -> Self {
        match filter {
            StatusFilter::Active => Self::Active,
            StatusFilter::Inactive => Self::Inactive,
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct OneAgent {
    /// Name or id
    #[arg(value_parser = super::agent)]
    pub agent: Name,
}

/// Set (KEY=VALUE) and remove (KEY-) labels of an agent
///
/// Selectors are evaluated at once: the agent removes stacks that no longer target it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr agent label eu-1 env=prod canary-")]
pub struct LabelAgent {
    /// Name or id
    #[arg(value_parser = super::agent)]
    pub agent: Name,
    /// Labels to set or remove
    #[arg(required = true, value_name = "KEY=VALUE|KEY-")]
    pub changes: Vec<LabelChange>,
    /// Confirm the number of stacks that the agent loses because its labels changed
    ///
    /// Without it, such a change is refused, and the error message shows the number.
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

/// Preview which agents a selector matches
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr agent preview 'env=prod,region in (eu,us)' web")]
pub struct Preview {
    /// Label selector, such as env=prod; * matches all agents
    pub selector: Selector,
    /// Name or id; show how many agents the stack would gain, keep and lose if this became its only selector
    ///
    /// Agents targeted by name stay targeted.
    #[arg(value_name = "STACK", value_parser = super::stack)]
    pub stack: Option<Name>,
    /// Show at most this many names
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = super::limit())]
    pub limit: u32,
}

/// Create a join token for one agent
///
/// Only the token is printed to stdout; it cannot be shown again. One agent can join with it, and gets this name and these
/// labels.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: brokkr agent join-token eu-1 --label env=prod --label region=eu > join-token"
)]
pub struct JoinToken {
    /// Name for the agent
    pub name: Name,
    /// Give the agent a label; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::label)]
    pub label: Vec<(String, String)>,
    /// Validity, at most 7 days
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = super::duration)]
    pub ttl: Duration,
}

/// Create a join token that gives an existing agent a new key
///
/// The agent keeps its id, labels and targets. When the token is used, all other keys of the agent become invalid.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr agent rejoin eu-1 > join-token")]
pub struct Rejoin {
    /// Name or id
    #[arg(value_parser = super::agent)]
    pub agent: Name,
    /// Validity, at most 7 days
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = super::duration)]
    pub ttl: Duration,
}

/// Rotate the key of an agent and wait until it is replaced
///
/// Agents rotate their keys automatically every 60 days. The agent generates the key, which never leaves the cluster. The old
/// key stays valid for an hour. If the key may be compromised, use `brokkr agent revoke` instead.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr agent rotate eu-1")]
pub struct Rotate {
    /// Name or id
    #[arg(value_parser = super::agent)]
    pub agent: Name,
    /// Stop waiting after this time
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = super::duration)]
    pub timeout: Duration,
}

/// Revoke all keys of an agent; they are refused within a second
///
/// The cluster is left as it is. `brokkr agent join NAME --rejoin` connects the agent again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr agent revoke eu-1 --yes")]
pub struct Revoke {
    /// Name or id
    #[arg(value_parser = super::agent)]
    pub agent: Name,
    /// Skip the confirmation
    #[arg(short, long)]
    pub yes: bool,
}

/// Retire an agent: remove all its stacks, then revoke its keys
///
/// The agent loses its labels and is removed from the targets of all stacks, so that nothing targets it. It
/// must be connected; for a cluster that is lost, use `brokkr agent abandon`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr agent retire shop-17 --yes")]
pub struct Retire {
    /// Name or id
    #[arg(value_parser = super::agent)]
    pub agent: Name,
    /// Skip the confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// Stop waiting for the removal after this time
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = super::duration)]
    pub timeout: Duration,
}

/// Abandon the agent of a lost cluster, so that deletions no longer wait for it
///
/// Its keys are revoked. Resources in its cluster stay there. `brokkr agent show` shows who abandoned it and why.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr agent abandon shop-17 --reason 'the shop was closed'")]
pub struct Abandon {
    /// Name or id
    #[arg(value_parser = super::agent)]
    pub agent: Name,
    /// Record a reason
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Skip the confirmation
    #[arg(short, long)]
    pub yes: bool,
}

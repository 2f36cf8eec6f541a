//! `brokkr stack …`

use std::str::FromStr;
use std::time::Duration;

use brokkr_api::names::{BadLabel, check_label_key};
use brokkr_api::rollouts::Share;
use brokkr_api::{Name, SequenceId};
use clap::Subcommand;

use super::{Apply, Diff, ListSuspensions, Rollback, Status, Targeting, Wait, WaitOptions, Why};

#[derive(Debug, Subcommand)]
pub enum StackCommand {
    List(ListStacks),
    /// Show one stack: targets, labels, newest version
    Show {
        /// Name or id
        #[arg(value_parser = super::stack)]
        stack: Name,
    },
    Apply(Box<Apply>),
    Status(Status),
    Why(Why),
    Wait(Wait),
    History(History),
    Diff(Diff),
    Manifest(Manifest),
    Rollback(Rollback),
    /// List the content that rollbacks barred, newest first
    Barred {
        /// Name or id
        #[arg(value_parser = super::stack)]
        stack: Name,
    },
    Unbar(Unbar),
    Retarget(Retarget),
    Drift(SetDrift),
    Approve(Approve),
    Rerun(Rerun),
    Annotate(Annotate),
    Suspensions(ListSuspensions),
    Delete(DeleteStack),
}

/// List stacks
#[derive(Debug, clap::Args)]
pub struct ListStacks {
    #[command(flatten)]
    pub rows: super::RowLimit,
}

/// List the versions of a stack, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr stack history web")]
pub struct History {
    /// Name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    #[command(flatten)]
    pub rows: super::RowLimit,
}

/// Print the manifest of a version, exactly as submitted
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brokkr stack manifest web\n  brokkr stack manifest web 42 > web-42.yaml"
)]
pub struct Manifest {
    /// Name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// Sequence id of the version, as shown in the history [default: the newest]
    #[arg(value_name = "SEQUENCE")]
    pub sequence: Option<SequenceId>,
}

/// Unbar content, so that it can be submitted again
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr stack unbar web 42")]
pub struct Unbar {
    /// Name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// Sequence id that was rolled back, or the first digits of its checksum
    #[arg(value_name = "SEQUENCE|CHECKSUM")]
    pub content: String,
}

/// Change the agents that a stack targets
///
/// New targets get the newest version. Agents that are no longer targeted remove the stack.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr stack retarget web --to env=prod --to-agent lab-1")]
#[group(id = "new", args = ["to", "to_agent"], required = true, multiple = true)]
pub struct Retarget {
    /// Name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    #[command(flatten)]
    pub targeting: Targeting,
}

/// Set what agents do about changes that others make to objects of a stack
///
/// With `report`, they name the changed objects and fields in the condition Drifted and in events, and repair nothing. New versions
/// and deletions are still applied; a new version also puts back what others have changed. With `repair`, they repair it again at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr stack drift web report")]
pub struct SetDrift {
    /// Name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// repair or report
    #[arg(value_name = "POLICY", value_parser = ["repair", "report"])]
    pub policy: String,
}

/// Approve a pending prune
///
/// A prune of more than 50 objects that is also more than 30 % of the stack waits for approval; the rest of
/// the version is already applied. Without --expect, the pending prunes are shown and nothing is approved.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr stack approve web --expect 120 --agent eu-1")]
pub struct Approve {
    /// Name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// Allow each agent to delete at most this many objects
    ///
    /// Use the number that the agent reported; for several agents, the largest one.
    #[arg(long, value_name = "NUMBER", value_parser = super::number::<u32>)]
    pub expect: Option<u32>,
    /// List the approvals of the newest version
    #[arg(long, conflicts_with_all = ["expect", "agent", "sequence"])]
    pub list: bool,
    /// Approve only on this agent, by name or id [default: on every agent]
    #[arg(short, long, value_name = "AGENT", value_parser = super::agent)]
    pub agent: Option<Name>,
    /// Approve only if this is still the newest version [default: approve the newest]
    #[arg(long, value_name = "SEQUENCE")]
    pub sequence: Option<SequenceId>,
}

/// Run Jobs of a stack again
///
/// A Job runs once for each version of its manifest. This submits the newest content again, as a new version that runs the Jobs again;
/// it is rolled out like any other version.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr stack rerun web --job migrate --wait")]
pub struct Rerun {
    /// Name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// Only this Job [default: all Jobs of the stack]
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    pub job: Option<String>,
    #[command(flatten)]
    pub waiting: WaitOptions,
}

/// Set (KEY=VALUE) and remove (KEY-) annotations of a stack
///
/// If there is no stack of this name, it is created, without a version and without targets.
///
/// The annotation brokkr.io/wave-wait=healthy makes the waves of the stack wait for each other, from its next version on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr stack annotate web brokkr.io/wave-wait=healthy team-")]
pub struct Annotate {
    /// Name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// Annotations to set or remove
    #[arg(required = true, value_name = "KEY=VALUE|KEY-")]
    pub changes: Vec<AnnotationChange>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnotationChange {
    Set(String, String),
    Remove(String),
}

impl AnnotationChange {
    /// Returns whether the annotation exists afterwards.
    #[must_use]
    pub fn sets(&self) -> bool {
        matches!(self, Self::Set(..))
    }
}

impl FromStr for AnnotationChange {
    type Err = BadLabel;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (key, change) = match (text.split_once('='), text.strip_suffix('-')) {
            (Some((key, value)), _) => (key, Self::Set(key.to_owned(), value.to_owned())),
            (None, Some(key)) => (key, Self::Remove(key.to_owned())),
            (None, None) => return Err(BadLabel::Form(text.to_owned())),
        };
        check_label_key(key).map(|()| change)
    }
}

/// Delete a stack and its resources on every agent
///
/// On a terminal, the command asks you to type the stack's name. In scripts, use --yes; if the stack is on more than 10
/// agents, --expect is also required.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr stack delete web --yes --expect 1204 --wait")]
pub struct DeleteStack {
    /// Name or id
    #[arg(value_name = "STACK", value_parser = super::stack)]
    pub stack: Name,
    /// Skip the confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// Confirm how many agents have the stack; if the number differs, nothing is deleted
    #[arg(long, value_name = "NUMBER", value_parser = super::number::<usize>)]
    pub expect: Option<usize>,
    /// Leave the resources in the clusters, unmanaged and without Brokkr's metadata
    #[arg(long)]
    pub keep_resources: bool,
    /// Delete it in waves of these sizes, such as 1,10%,100% [default: below 100 agents on all at once]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub waves: Vec<Share>,
    /// How long a wave must stay removed before the next one begins
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    pub soak: Option<Duration>,
    /// End the suspensions of the stack; otherwise agents on which it is suspended keep it until they end
    #[arg(long)]
    pub force: bool,
    /// Wait until every agent has reported that the resources are gone
    #[arg(long)]
    pub wait: bool,
    /// Stop waiting after this time
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = super::duration, requires = "wait")]
    pub timeout: Duration,
}

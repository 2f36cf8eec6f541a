//! `brokkr suspend`, `brokkr resume` and `brokkr stack suspensions`

use std::time::Duration;

use brokkr_api::suspensions::ObjectName;
use brokkr_api::{Name, Selector, SuspensionId};

/// Suspend a stack, or one object of it: agents leave it alone for some time
///
/// Nothing of it is applied, repaired or pruned until the time is over, or until `brokkr resume`; also while the broker is
/// unreachable. Everything else is. Rollouts go on without the agents; deletions and rollbacks of the stack wait, unless they are
/// forced. When it ends, the agents report what others have changed meanwhile (`brokkr stack suspensions --diff`), then repair it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  brokkr suspend web --for 2h --reason 'debugging the cache'\n  \
                  brokkr suspend web --agent shop-1 --object Deployment/web --for 30m --reason 'load test'")]
pub struct Suspend {
    /// Name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// Only on this agent, by name or id
    #[arg(short, long, value_name = "AGENT", value_parser = super::agent, conflicts_with = "selector")]
    pub agent: Option<Name>,
    /// Only on agents with matching labels
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<Selector>,
    /// Only this object, such as Deployment/web
    #[arg(long, value_name = "KIND/NAME")]
    pub object: Option<ObjectName>,
    /// Only the object in this namespace
    #[arg(long, value_name = "NAMESPACE", requires = "object")]
    pub namespace: Option<String>,
    /// How long, at most 30 days
    #[arg(long = "for", value_name = "DURATION", value_parser = super::duration)]
    pub duration: Duration,
    /// Record a reason; it is shown to others who look at the stack
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
}

/// Resume a suspended stack: agents apply and repair it again
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr resume web")]
pub struct Resume {
    /// Name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// End only this suspension [default: all of the stack]
    #[arg(long, value_name = "ID")]
    pub id: Option<SuspensionId>,
}

/// List the suspensions of a stack, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  brokkr stack suspensions web\n  brokkr stack suspensions web --diff")]
pub struct ListSuspensions {
    /// Name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// Show what others changed during suspensions that have ended, as patches
    #[arg(long)]
    pub diff: bool,
}

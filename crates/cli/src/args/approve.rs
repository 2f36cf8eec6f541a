//! `brokkr approve`

use brokkr_api::{Name, SequenceId};

/// Let a prune that waits go on
///
/// A version that would delete more than 50 objects and more than 30 % of a stack waits for this. Without --expect,
/// what waits is shown and nothing is approved.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr approve web --expect 120 --agent eu-1")]
pub struct Approve {
    /// By name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// How many objects may be deleted on an agent, at most: the number that the agent told
    #[arg(long, value_name = "NUMBER", value_parser = super::number::<u32>)]
    pub expect: Option<u32>,
    /// Show what was approved for the newest version
    #[arg(long, conflicts_with_all = ["expect", "agent", "sequence"])]
    pub list: bool,
    /// Only on this agent, by name or id; without it, on every agent
    #[arg(short, long, value_name = "AGENT", value_parser = super::agent)]
    pub agent: Option<Name>,
    /// The version that was looked at; without it, the newest one. An older one is refused
    #[arg(long, value_name = "SEQUENCE")]
    pub sequence: Option<SequenceId>,
}

//! `brokkr delete`

use std::time::Duration;

use brokkr_api::Name;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum DeleteCommand {
    Stack(DeleteStack),
}

/// Delete a stack and, on every agent, what it brought
///
/// On a terminal, the stack's name has to be typed. In scripts, --yes takes the place of that; if the stack is on more than
/// 10 agents, their number has to be given, too.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr delete stack web --yes --expect 1204 --wait")]
pub struct DeleteStack {
    /// By name or id
    #[arg(value_name = "STACK", value_parser = super::stack)]
    pub name: Name,
    /// Do not ask (for scripts)
    #[arg(short, long)]
    pub yes: bool,
    /// How many agents the stack is on; if it is another number, nothing is deleted
    #[arg(long, value_name = "NUMBER", value_parser = super::number::<usize>)]
    pub expect: Option<usize>,
    /// Leave its resources in the clusters: they lose Brokkr's marks, keep their values, and are nobody's from then on
    #[arg(long)]
    pub keep_resources: bool,
    /// Wait until every agent has reported that its resources are gone
    #[arg(long)]
    pub wait: bool,
    /// How long to wait
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = super::duration, requires = "wait")]
    pub timeout: Duration,
}

//! `brokkr delete`

use std::time::Duration;

use brokkr_api::Name;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum DeleteCommand {
    Stack(DeleteStack),
}

/// Delete a stack and, on every agent, what it brought
#[derive(Debug, clap::Args)]
pub struct DeleteStack {
    /// By name or id
    pub name: Name,
    /// Do not ask (for scripts)
    #[arg(short, long)]
    pub yes: bool,
    /// Wait until every agent has reported that its resources are gone
    #[arg(long)]
    pub wait: bool,
    /// How long to wait
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = super::duration, requires = "wait")]
    pub timeout: Duration,
}

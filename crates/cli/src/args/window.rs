//! `brokkr window …`

use std::time::Duration;

use brokkr_api::windows::Day;
use brokkr_api::{Name, Selector};
use clap::Subcommand;
use jiff::Timestamp;
use jiff::civil::Time;

#[derive(Debug, Subcommand)]
pub enum WindowCommand {
    /// List maintenance windows and freezes
    List,
    /// Show a maintenance window or a freeze
    Show {
        /// Name
        #[arg(value_name = "WINDOW")]
        name: Name,
    },
    Set(SetWindow),
    Freeze(SetFreeze),
    Delete(DeleteWindow),
}

/// Create or replace a maintenance window, outside of which no new version begins
///
/// Agents go on with what they have begun, and repair drift at any time. Rollbacks do not wait. If several windows select an agent,
/// the first by name applies.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: brokkr window set night -l site=shop --timezone Europe/Berlin --days mon,tue,wed --start 22:00 \
                  --duration 6h"
)]
pub struct SetWindow {
    /// Name
    #[arg(value_name = "WINDOW")]
    pub name: Name,
    #[command(flatten)]
    pub scope: WindowScope,
    /// IANA time zone, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub timezone: String,
    /// Days on which it opens, such as mon,tue; without it every day
    #[arg(long, value_name = "DAYS", value_delimiter = ',', value_parser = day)]
    pub days: Vec<Day>,
    /// Local time at which it opens
    #[arg(long, value_name = "HH:MM", value_parser = local_time)]
    pub start: Time,
    /// How long it stays open, at most a week
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    pub duration: Duration,
}

/// Create or replace a freeze, in which no new version begins
///
/// Agents go on with what they have begun, and repair drift at any time. Rollbacks do not wait.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: brokkr window freeze year-end --from 2026-12-20T00:00:00Z --until 2027-01-03T00:00:00Z \
                  --reason 'no one is on call'"
)]
pub struct SetFreeze {
    /// Name
    #[arg(value_name = "WINDOW")]
    pub name: Name,
    #[command(flatten)]
    pub scope: WindowScope,
    /// When it begins
    #[arg(long, value_name = "TIME")]
    pub from: Timestamp,
    /// When it ends
    #[arg(long, value_name = "TIME")]
    pub until: Timestamp,
    /// Shown where it holds a version back
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
}

/// What a window applies to.
#[derive(Debug, clap::Args)]
pub struct WindowScope {
    /// Agents with matching labels; * matches all agents
    #[arg(short = 'l', long, value_name = "SELECTOR", default_value = "*")]
    pub selector: Selector,
    /// Only for stacks of this project
    #[arg(long, value_name = "PROJECT")]
    pub for_project: Option<Name>,
}

/// Delete a maintenance window or a freeze: agents that waited for it begin
#[derive(Debug, clap::Args)]
pub struct DeleteWindow {
    /// Name
    #[arg(value_name = "WINDOW")]
    pub name: Name,
    /// Skip the confirmation
    #[arg(short, long)]
    pub yes: bool,
}

fn day(text: &str) -> Result<Day, String> {
    text.to_lowercase().parse().map_err(|_| "use mon, tue, wed, thu, fri, sat or sun".to_owned())
}

fn local_time(text: &str) -> Result<Time, String> {
    text.parse().map_err(|_| "use a local time such as 22:00".to_owned())
}

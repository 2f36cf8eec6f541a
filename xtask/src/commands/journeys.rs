//! `cargo xtask journeys`: runs the commands of a user's first hour, and counts commands and seconds.

use anyhow::Result;

use super::engines;
use crate::runner::{become_built, build_tests};

/// Run the commands of a user's first hour, and count commands and seconds.
#[derive(clap::Args)]
pub struct Args {
    /// Print the result as JSON, without the commands.
    #[arg(long)]
    json: bool,
    /// Release every version to all agents at once, to measure what waves add.
    #[arg(long)]
    at_once: bool,
}

pub fn run(args: &Args) -> Result<()> {
    engines::ensure()?;
    build_tests()?;
    become_built("journeys", |command| {
        let flags = [("--json", args.json), ("--at-once", args.at_once)];
        command.args(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag))
    })
}

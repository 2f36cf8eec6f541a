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
}

pub fn run(args: &Args) -> Result<()> {
    engines::ensure()?;
    build_tests()?;
    become_built("journeys", |command| if args.json { command.arg("--json") } else { command })
}

//! `cargo xtask journeys`: the first hour typed as a user would, on real parts, with commands and seconds counted.

use anyhow::Result;

use super::engines;
use crate::runner::{become_built, build};

/// Type the first hour as a user would, and count commands and seconds.
#[derive(clap::Args)]
pub struct Args {
    /// Print the result as JSON, and nothing of what was typed.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    engines::ensure()?;
    build(&["--workspace", "--bins"])?;
    become_built("journeys", |command| if args.json { command.arg("--json") } else { command })
}

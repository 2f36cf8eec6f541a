//! `cargo xtask dev`: a whole Brokkr on this machine, until Ctrl-C.

use anyhow::Result;

use super::engines;
use crate::runner::{become_built, build};

/// Start PostgreSQL, a broker and clusters with agents, and stay until Ctrl-C.
#[derive(clap::Args)]
pub struct Args {
    /// How many clusters to start, each with an agent.
    #[arg(long, default_value_t = 2)]
    clusters: u32,
}

pub fn run(args: &Args) -> Result<()> {
    engines::ensure()?;
    build(&["--workspace", "--bins"])?;
    become_built("dev-fleet", |command| command.args(["--clusters", &args.clusters.to_string()]))
}

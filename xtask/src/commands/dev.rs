//! `cargo xtask dev`: runs a complete Brokkr on this machine, until Ctrl-C.

use anyhow::Result;

use super::engines;
use crate::runner::{become_built, build};

/// Run PostgreSQL, a broker and clusters with agents until Ctrl-C.
#[derive(clap::Args)]
pub struct Args {
    /// Start this many clusters, each with an agent.
    #[arg(long, default_value_t = 2)]
    clusters: u32,
    /// Give each cluster this many real nodes, on which Pods really run, instead of a simulated one. Needs root.
    #[arg(long, default_value_t = 0)]
    real_nodes: u8,
}

pub fn run(args: &Args) -> Result<()> {
    engines::ensure()?;
    build(&["--workspace", "--bins"])?;
    let (clusters, real_nodes) = (args.clusters.to_string(), args.real_nodes.to_string());
    become_built("dev-fleet", |command| command.args(["--clusters", &clusters, "--real-nodes", &real_nodes]))
}

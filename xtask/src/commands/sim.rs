//! `cargo xtask sim`: runs the agent's decisions against the simulated API server: the stories of many seeds, each with
//! every fault at every step. Fails on any violation of an invariant.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::bench::build_optimised;
use crate::runner::{become_at, root};

/// Run the stories of the simulator with every fault at every step.
#[derive(clap::Args)]
pub struct Args {
    /// Run the stories of this many seeds.
    #[arg(long, default_value_t = 200, value_name = "COUNT")]
    seeds: u64,
    /// Print the result as JSON, and nothing else to stdout.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let programs = build_optimised()?;
    let format = if args.json { "json" } else { "text" };
    become_at(&programs.join("simulate"), &[args.seeds.to_string(), commit()?, format.to_owned()])
}

/// Returns the commit that is checked out.
fn commit() -> Result<String> {
    let output = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root()).output();
    let output = output.context("cannot run git")?;
    ensure!(output.status.success(), "git rev-parse HEAD failed");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

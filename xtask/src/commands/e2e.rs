//! `cargo xtask e2e`: the end-to-end tests, which are the test targets whose names begin with `e2e`.

use anyhow::Result;

use super::engines;
use crate::runner::{Tests, become_engines_then, build};

/// Run the end-to-end tests on real processes.
#[derive(clap::Args)]
pub struct Args {
    /// Only tests whose name contains this.
    filter: Option<String>,
    /// Replay the random choices of an earlier run, which printed this number.
    #[arg(long)]
    seed: Option<u64>,
}

const TARGETS: &str = "e2e*";

pub fn run(args: &Args) -> Result<()> {
    engines::ensure()?;
    // Binaries and tests in one selection: cargo would else build dependencies twice, with other features.
    build(&["--workspace", "--bins", "--test", TARGETS])?;
    let filter = args.filter.as_deref();
    let tests = Tests { selection: &["--workspace", "--test", TARGETS], filters: filter.as_slice() };
    become_engines_then(&tests, args.seed)
}

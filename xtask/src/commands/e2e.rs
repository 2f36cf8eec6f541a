//! `cargo xtask e2e`: runs the end-to-end tests, which are the test targets with names that begin with `e2e`.

use anyhow::Result;

use super::engines;
use crate::runner::{Tests, become_engines_then, build};

/// Run the end-to-end tests.
#[derive(clap::Args)]
pub struct Args {
    /// Run only tests with this text in their names.
    filter: Option<String>,
    /// Replay the random choices of an earlier run, which printed this seed.
    #[arg(long)]
    seed: Option<u64>,
}

const TARGETS: &str = "e2e*";

pub fn run(args: &Args) -> Result<()> {
    engines::ensure()?;
    // Programs and tests in one selection; otherwise cargo builds dependencies twice, with different features.
    build(&["--workspace", "--bins", "--test", TARGETS])?;
    let filter = args.filter.as_deref();
    let tests = Tests { selection: &["--workspace", "--test", TARGETS], filters: filter.as_slice() };
    become_engines_then(&tests, args.seed)
}

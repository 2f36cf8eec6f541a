//! `cargo xtask e2e`: runs the end-to-end tests, which are the test targets with names that begin with `e2e`.

use anyhow::Result;

use super::{engines, image};
use crate::runner::{Tests, become_engines_then, build_tests};

/// Run the end-to-end tests. `real` runs those on real nodes, which need root and `cargo xtask image --profile dev`.
#[derive(clap::Args)]
pub struct Args {
    /// Run only tests with this text in their names, or `real`.
    filter: Option<String>,
    /// With `real`: also those that take longer than ten minutes.
    #[arg(long)]
    nightly: bool,
    /// Replay the random choices of an earlier run, which printed this seed.
    #[arg(long)]
    seed: Option<u64>,
}

const TESTS: &str = "binary(/^e2e/)";
/// The name of the tests on real nodes.
const REAL: &str = "real";

pub fn run(args: &Args) -> Result<()> {
    engines::ensure()?;
    if args.filter.as_deref() == Some(REAL) {
        return run_on_real_nodes(args);
    }
    build_tests()?;
    let filter = args.filter.as_deref();
    let tests = Tests { selection: &["--workspace", "-E", TESTS], filters: filter.as_slice() };
    become_engines_then(&tests, args.seed)
}

fn run_on_real_nodes(args: &Args) -> Result<()> {
    image::run_dev()?;
    build_tests()?;
    let mut selection = vec!["--workspace", "-E", "binary(real)"];
    if args.nightly {
        selection.extend(["--run-ignored", "all"]);
    }
    become_engines_then(&Tests { selection: &selection, filters: &[] }, args.seed)
}

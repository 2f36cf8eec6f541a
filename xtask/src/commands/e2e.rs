//! `cargo xtask e2e`: runs the end-to-end tests, which are the test targets with names that begin with `e2e`.

use anyhow::{Result, ensure};

use super::{engines, image};
use crate::runner::{Tests, become_engines_then, build_tests, root};

/// Run the end-to-end tests. `real` runs those on real nodes, and `console` those of the web console in a browser; both need root.
#[derive(clap::Args)]
pub struct Args {
    /// Run only tests with this text in their names, or `real`, or `console`.
    filter: Option<String>,
    /// With `real`: also those that take longer than ten minutes. With `console`: those that CI leaves out.
    #[arg(long)]
    nightly: bool,
    /// With `console`: only take the pictures of the documentation, and store them in docs/images/console.
    #[arg(long, conflicts_with = "nightly")]
    pictures: bool,
    /// Replay the random choices of an earlier run, which printed this seed.
    #[arg(long)]
    seed: Option<u64>,
}

const TESTS: &str = "binary(/^e2e/)";
/// The names of the tests on real nodes.
const ON_REAL_NODES: [&str; 2] = ["real", "console"];

pub fn run(args: &Args) -> Result<()> {
    engines::ensure()?;
    let mut environment = Vec::new();
    if let Some(seed) = args.seed {
        environment.push(("BROKKR_SEED", seed.to_string()));
    }
    ensure!(!args.pictures || args.filter.as_deref() == Some("console"), "--pictures needs `console`");
    if let Some(binary) = args.filter.as_deref().filter(|filter| ON_REAL_NODES.contains(filter)) {
        return run_on_real_nodes(binary, args, environment);
    }
    build_tests()?;
    let filter = args.filter.as_deref();
    let tests = Tests { selection: &["--workspace", "-E", TESTS], filters: filter.as_slice() };
    become_engines_then(&tests, &environment)
}

fn run_on_real_nodes(binary: &str, args: &Args, mut environment: Vec<(&str, String)>) -> Result<()> {
    image::run_dev()?;
    build_tests()?;
    let mut tests = format!("binary({binary})");
    let mut ignored = "default";
    if args.pictures {
        tests.push_str(" & test(pictures)");
        ignored = "only";
        let folder = root().join("docs/images/console");
        environment.push(("BROKKR_CONSOLE_PICTURES", folder.display().to_string()));
    } else if args.nightly {
        // At night, every screen includes those of CI.
        ignored = if binary == "console" { "only" } else { "all" };
    }
    let selection = ["--workspace", "-E", &tests, "--run-ignored", ignored];
    become_engines_then(&Tests { selection: &selection, filters: &[] }, &environment)
}

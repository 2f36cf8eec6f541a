//! `cargo xtask test`: runs every test of the workspace, with engines that are started once for all of them.

use anyhow::Result;

use super::engines;
use crate::runner::{Tests, become_engines_then, build_tests};

/// Run every test on shared engines.
#[derive(clap::Args)]
pub struct Args {
    /// Run only tests with this text in their names.
    filter: Option<String>,
    /// Run only tests of these packages.
    #[arg(long, short)]
    package: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    engines::ensure()?;
    build_tests()?;
    let mut selection = Vec::new();
    for package in &args.package {
        selection.extend(["--package", package]);
    }
    if selection.is_empty() {
        selection.push("--workspace");
    }
    become_engines_then(&Tests { selection: &selection, filters: args.filter.as_deref().as_slice() }, &[])
}

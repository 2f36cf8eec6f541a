//! `cargo xtask bench agent|broker|rollouts|alerts|console`: measures an optimised build on its own engines. The agent is compared with
//! Flux's engine, the broker with minimal servers that do the same work; a rollout and the console with their own bounds.

use std::path::PathBuf;

use anyhow::{Context, Result};
use brokkr_engines::{FLUX, build_module};

use super::engines;
use crate::runner::{become_at, build_into};

/// Measure Brokkr beside its peers, in an optimised build; `agent --help`, `broker --help` and so on list the options.
#[derive(clap::Args)]
pub struct Args {
    /// Measure `agent`, `broker`, `rollouts`, `alerts` or `console`, with its options.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, default_value = "--help")]
    arguments: Vec<String>,
}

/// Built together, because a build of one alone would build the dependencies once more with other features.
const PACKAGES: [&str; 5] = ["brokkr-agent", "brokkr-broker", "brokkr", "brokkr-bench", "brokkr-sim"];

pub fn run(args: &Args) -> Result<()> {
    // The broker needs only PostgreSQL, which is not built here.
    let needs_clusters =
        |what: &String| !matches!(what.as_str(), "broker" | "rollouts" | "alerts" | "console");
    if args.arguments.first().is_none_or(needs_clusters) {
        engines::ensure()?;
        if !args.arguments.iter().any(|argument| argument == "--no-flux") {
            build_module(&FLUX, |name| eprintln!("building {name} …"))
                .context("cannot build Flux's engine")?;
        }
    }
    become_at(&build_optimised()?.join("brokkr-bench"), &args.arguments)
}

/// Builds the programs that are measured or run for long, and returns their folder. It is outside the clone, because an
/// optimised build would double the clone's target folder.
pub fn build_optimised() -> Result<PathBuf> {
    let target = cache()?.join("release");
    let mut selection = vec!["--profile", "measure", "--locked", "--bins"];
    for package in PACKAGES {
        selection.extend(["--package", package]);
    }
    build_into(&target, &selection)?;
    Ok(target.join("measure"))
}

/// Returns the project's cache, outside the clone, which CI uses as well.
pub fn cache() -> Result<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("brokkr"))
        .context("neither XDG_CACHE_HOME nor HOME is set")
}

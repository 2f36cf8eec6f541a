//! `cargo xtask bench agent|broker`: an optimised build of everything, on engines of their own. The agent has Flux's engine as
//! its peer, the broker bare counterparts.

use std::path::PathBuf;

use anyhow::{Context, Result};
use brokkr_engines::{FLUX, build_module};

use super::engines;
use crate::runner::{become_at, build_into};

/// Measure Brokkr beside its peers, in an optimised build; `agent --help` and `broker --help` tell what can be chosen.
#[derive(clap::Args)]
pub struct Args {
    /// What to measure, and how.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, default_value = "--help")]
    arguments: Vec<String>,
}

const PACKAGES: [&str; 4] = ["brokkr-agent", "brokkr-broker", "brokkr", "brokkr-bench"];

pub fn run(args: &Args) -> Result<()> {
    // The broker is measured on PostgreSQL alone, which is not ours to build.
    if args.arguments.first().is_none_or(|first| first != "broker") {
        engines::ensure()?;
        if !args.arguments.iter().any(|argument| argument == "--no-flux") {
            build_module(&FLUX, |name| eprintln!("building {name} …"))
                .context("cannot build Flux's engine")?;
        }
    }
    // A folder of its own: an optimised build beside the debug build of the clone would double its size.
    let target = cache()?.join("release");
    let mut selection = vec!["--profile", "measure", "--locked", "--bins"];
    for package in PACKAGES {
        selection.extend(["--package", package]);
    }
    build_into(&target, &selection)?;
    become_at(&target.join("measure/brokkr-bench"), &args.arguments)
}

/// The project's cache, outside the clone, where CI keeps its builds, too.
pub fn cache() -> Result<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("brokkr"))
        .context("neither XDG_CACHE_HOME nor HOME is set")
}

//! `cargo xtask fuzz`: feeds made-up input to everything that reads what strangers send.
//!
//! The targets are in `fuzz/`, a workspace of its own; libFuzzer drives them, with the compiler's coverage, which the
//! ordinary toolchain can do. What it found interesting stays in `fuzz/corpus` only if it is kept on purpose
//! (`--keep`): corpora in the repository are small.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::runner::root;

const TARGETS: [&str; 7] =
    ["yaml", "selectors", "credentials", "cursors", "event_batches", "webhook_urls", "http_heads"];

/// What libFuzzer needs to see where the input led.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// Feed made-up input to everything that reads what strangers send.
#[derive(clap::Args)]
pub struct Args {
    /// Only these.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(TARGETS))]
    targets: Vec<String>,
    /// How long each.
    #[arg(long, default_value_t = 60, value_name = "COUNT")]
    seconds: u64,
    /// Keep what led somewhere new, reduced to the smallest set.
    #[arg(long)]
    keep: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let fuzz = root().join("fuzz");
    let target = host()?;
    let built =
        cargo(&fuzz).args(["build", "--release", "--target", &target]).env("RUSTFLAGS", COVERAGE).status();
    if !built.context("cannot run cargo")?.success() {
        bail!("the fuzz targets do not build");
    }
    let programs = fuzz.join("target").join(&target).join("release");
    let chosen = |name: &&str| args.targets.is_empty() || args.targets.iter().any(|target| target == name);
    let mut found = Vec::new();
    for name in TARGETS.into_iter().filter(chosen) {
        eprintln!("{name}: {} s", args.seconds);
        if !one(&fuzz, &programs.join(name), name, args)? {
            found.push(name);
        }
    }
    if !found.is_empty() {
        bail!("findings in: {}; the input is in fuzz/artifacts", found.join(", "));
    }
    Ok(())
}

/// Runs one; false if it found something.
fn one(fuzz: &Path, program: &Path, name: &str, args: &Args) -> Result<bool> {
    let (corpus, artifacts) = (fuzz.join("corpus").join(name), fuzz.join("artifacts").join(name));
    // New input goes into the first folder, the others are only read.
    let fresh = fuzz.join("target").join("fresh").join(name);
    for folder in [&artifacts, &fresh] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let status = Command::new(program)
        .arg(&fresh)
        .arg(&corpus)
        .arg(format!("-max_total_time={}", args.seconds))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(["-timeout=10", "-rss_limit_mb=2048", "-max_len=8192", "-verbosity=0", "-print_final_stats=1"])
        .status()
        .with_context(|| format!("cannot run {}", program.display()))?;
    if status.success() && args.keep {
        let mut merge = Command::new(program);
        merge.args(["-merge=1", "-max_len=512", "-verbosity=0"]).arg(&corpus).arg(&fresh);
        if !merge.status().context("cannot merge")?.success() {
            bail!("the corpus of {name} cannot be reduced");
        }
    }
    Ok(status.success())
}

fn cargo(folder: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(folder);
    cargo
}

/// Named to cargo, so that the flags are for the targets alone and not for build scripts.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc")?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not tell its host")?.to_owned())
}

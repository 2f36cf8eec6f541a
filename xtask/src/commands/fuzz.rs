//! `cargo xtask fuzz`: fuzzes everything that parses untrusted input.
//!
//! The targets are in `fuzz/`, a separate workspace. libFuzzer drives them with the compiler's coverage, which the stable
//! toolchain supports. New inputs are added to `fuzz/corpus` only with `--keep`, so that the corpora in the repository stay
//! small.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::runner::root;

const TARGETS: [&str; 7] =
    ["yaml", "selectors", "credentials", "cursors", "event_batches", "webhook_urls", "http_heads"];

/// The compiler flags for libFuzzer's coverage.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// Fuzz everything that parses untrusted input.
#[derive(clap::Args)]
pub struct Args {
    /// Fuzz only these targets.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(TARGETS))]
    targets: Vec<String>,
    /// Fuzz each target for this many seconds.
    #[arg(long, default_value_t = 60, value_name = "COUNT")]
    seconds: u64,
    /// Add inputs with new coverage to the corpus, reduced to the smallest set.
    #[arg(long)]
    keep: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let fuzz = root().join("fuzz");
    let target = host()?;
    let built =
        cargo(&fuzz).args(["build", "--release", "--target", &target]).env("RUSTFLAGS", COVERAGE).status();
    if !built.context("cannot run cargo")?.success() {
        bail!("cannot build the fuzz targets");
    }
    let programs = fuzz.join("target").join(&target).join("release");
    let chosen = |name: &&str| args.targets.is_empty() || args.targets.iter().any(|target| target == name);
    let mut found = Vec::new();
    for name in TARGETS.into_iter().filter(chosen) {
        eprintln!("{name}: {} s", args.seconds);
        if !fuzz_target(&fuzz, &programs.join(name), name, args)? {
            found.push(name);
        }
    }
    if !found.is_empty() {
        bail!("found failures in: {}; the inputs are in fuzz/artifacts", found.join(", "));
    }
    Ok(())
}

/// Fuzzes one target; returns false if it found a failure.
fn fuzz_target(fuzz: &Path, program: &Path, name: &str, args: &Args) -> Result<bool> {
    let (corpus, artifacts) = (fuzz.join("corpus").join(name), fuzz.join("artifacts").join(name));
    // libFuzzer adds new inputs to the first folder and only reads the others.
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
            bail!("cannot reduce the corpus of {name}");
        }
    }
    Ok(status.success())
}

fn cargo(folder: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(folder);
    cargo
}

/// Returns the host triple; with an explicit target, the flags do not apply to build scripts.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc")?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not print its host")?.to_owned())
}

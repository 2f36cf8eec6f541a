//! `cargo xtask hostile`: sends what an attacker with the key of an agent could send, on every route of an agent and in
//! every situation, and counts the attempts that reached something. `cargo xtask faults bugs hostile` checks that the test
//! finds each missing check of the broker.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::engines;
use crate::runner::{Tests, Workspace, build_tests};

/// Send what an attacker with the key of an agent could send.
#[derive(clap::Args)]
pub struct Args {
    /// Print the result as JSON, and nothing else to stdout.
    #[arg(long)]
    json: bool,
}

const SELECTION: [&str; 5] =
    ["--workspace", "-E", "binary(broker) & test(j1_j2_)", "--success-output", "immediate"];

pub fn run(args: &Args) -> Result<()> {
    engines::ensure()?;
    build_tests()?;
    let tests = Tests { selection: &SELECTION, filters: &[] };
    let mut result = None;
    let passed = Workspace::own()?.run_tests(&tests, &[("BROKKR_FAULTS", "all".to_owned())], |line| {
        eprintln!("{line}");
        let figures = serde_json::from_str::<Value>(line.trim()).ok();
        result = figures.filter(|figures| figures["attempts"].is_u64()).or(result.take());
    })?;
    let result = result.context("the test printed no result")?;
    if args.json {
        println!("{result}");
    } else {
        println!("{} attempts, {} violations", result["attempts"], result["violations"]);
    }
    if !passed || result["violations"] != 0 {
        bail!("{} violations", result["violations"]);
    }
    Ok(())
}

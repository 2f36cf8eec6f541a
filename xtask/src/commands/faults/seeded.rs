//! Bugs on purpose: a harness that never failed proves nothing.
//!
//! The program is built with the feature `seeded-bugs`, put into a folder of its own, told by `BROKKR_SEEDED_BUG` which bug
//! to have, and the tests that should find it are run. One of them has to fail.

use std::fs;

use anyhow::{Context, Result, bail};

use super::tally::Tally;
use crate::commands::engines;
use crate::runner::{Tests, build, engines_then, root};

#[derive(clap::Args)]
pub struct Args {
    /// Print the result as JSON, and nothing else to stdout.
    #[arg(long)]
    json: bool,
    /// Only these bugs.
    bugs: Vec<String>,
}

/// A bug, and names of the tests that should find it.
struct Bug {
    name: &'static str,
    tests: &'static [&'static str],
}

/// A program that can have bugs, and where the tests are that should find them.
pub struct Seeded {
    feature: &'static str,
    selection: &'static [&'static str],
    bugs: &'static [Bug],
}

pub const AGENT: Seeded = Seeded {
    feature: "brokkr-agent/seeded-bugs",
    selection: &["--workspace", "--test", "faults", "--test", "e2e"],
    bugs: &[
        Bug { name: "delete-without-uid", tests: &["row_27_"] },
        Bug { name: "prune-on-empty-list", tests: &["e4_an_empty", "e4_a_wrong_answer"] },
        Bug { name: "report-before-apply", tests: &["row_23_"] },
        Bug { name: "older-sequence-accepted", tests: &["e4_a_wrong_answer", "e4_an_older"] },
        Bug { name: "owner-check-on-cached-copy", tests: &["c4_"] },
        Bug { name: "inventory-after-apply", tests: &["row_19_", "row_21_"] },
    ],
};

pub const BROKER: Seeded = Seeded {
    feature: "brokkr-broker/seeded-bugs",
    selection: &["--workspace", "--test", "broker_faults"],
    bugs: &[
        Bug { name: "global-cursor", tests: &["row_04_"] },
        Bug { name: "event-without-unique-key", tests: &["row_03_"] },
        Bug { name: "retry-without-idempotency-key", tests: &["row_02_"] },
        Bug { name: "lock-without-fence", tests: &["row_16_a_leader"] },
        Bug { name: "webhook-outside-transaction", tests: &["row_01_"] },
    ],
};

pub fn run(seeded: &Seeded, args: &Args) -> Result<()> {
    let bugs: Vec<&Bug> = seeded
        .bugs
        .iter()
        .filter(|bug| args.bugs.is_empty() || args.bugs.iter().any(|name| name == bug.name))
        .collect();
    if bugs.is_empty() {
        let names: Vec<&str> = seeded.bugs.iter().map(|bug| bug.name).collect();
        bail!("no such bug; there are {}", names.join(", "));
    }
    engines::ensure()?;
    let programs = seeded_programs(seeded.feature)?;
    build(&[&["--bins"], seeded.selection].concat())?;
    let mut survived = Vec::new();
    for bug in &bugs {
        let environment = [("BROKKR_BIN_DIR", programs.clone()), ("BROKKR_SEEDED_BUG", bug.name.to_owned())];
        let tests = Tests { selection: seeded.selection, filters: bug.tests };
        let mut tally = Tally::default();
        let passed = engines_then(&tests, &environment, |line| {
            eprintln!("{line}");
            tally.hear(line);
        })?;
        if passed {
            survived.push(bug.name);
        }
        let found = if passed {
            "NOT FOUND".to_owned()
        } else {
            format!("found {}", tally.failed_tests().join(", "))
        };
        eprintln!("══ {}: {found}", bug.name);
    }
    let found = bugs.len() - survived.len();
    println!(r#"{{"bugs":{},"found":{found},"survived":{}}}"#, bugs.len(), serde_json::to_string(&survived)?);
    if !args.json && survived.is_empty() {
        println!("every bug was found");
    }
    if !survived.is_empty() {
        bail!("no test found: {}", survived.join(", "));
    }
    Ok(())
}

/// A folder with the program that has the bugs, and everything else as it is. Built where everything is built, so that
/// nothing but that program is compiled anew, and put aside before the one without bugs takes its place again.
fn seeded_programs(feature: &str) -> Result<String> {
    build(&["--workspace", "--bins", "--features", feature])?;
    let seeded = root().join("target/seeded");
    fs::create_dir_all(&seeded)?;
    let this = std::env::current_exe().context("cannot tell where this program is")?;
    for name in ["brokkr", "brokkr-broker", "brokkr-agent"] {
        fs::copy(this.with_file_name(name), seeded.join(name))
            .with_context(|| format!("cannot copy {name}"))?;
    }
    Ok(seeded.to_string_lossy().into_owned())
}

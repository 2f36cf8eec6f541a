//! `cargo xtask versions`: runs the tests that depend on the behaviour of Kubernetes on every supported version, each with its
//! own API server and controllers.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use brokkr_engines::OLDER_KUBERNETES;
use serde_json::json;

use super::engines;
use super::faults::tally::Tally;
use crate::runner::{Tests, Workspace, build_tests};

/// Run the tests of fence, delivery, drift, prune and deletion, and the simulator's corpus, on every supported Kubernetes.
#[derive(clap::Args)]
pub struct Args {
    /// Print the result as JSON, and nothing else to stdout.
    #[arg(long)]
    json: bool,
    /// Run only on this version, such as 1.30.
    #[arg(long)]
    only: Option<String>,
}

/// The newest version, which all other commands use.
const NEWEST: &str = "1.36";
/// As an expression of the test runner.
const TESTS: &str = "binary(simulator) | \
    binary(e2e) & test(/^(admission_policy|adoption|deletion|delivery|drift|interference|moving|orders)::/)";

pub fn run(args: &Args) -> Result<()> {
    engines::ensure_all()?;
    build_tests()?;
    let versions = OLDER_KUBERNETES.iter().map(|(version, _)| *version).chain([NEWEST]);
    let versions = versions.filter(|version| args.only.as_deref().is_none_or(|only| only == *version));
    let (mut results, mut has_failed) = (BTreeMap::new(), false);
    for version in versions {
        let selection = ["--workspace", "--no-fail-fast", "-E", TESTS];
        let older = (version != NEWEST).then(|| ("BROKKR_KUBERNETES", version.to_owned()));
        let mut tally = Tally::default();
        let tests = Tests { selection: &selection, filters: &[] };
        let passed = Workspace::own()?.run_tests(&tests, older.as_slice(), |line| {
            eprintln!("{line}");
            tally.add_line(line);
        })?;
        has_failed |= !passed || tally.tests() == 0;
        results.insert(version, json!({"tests": tally.tests(), "failed": tally.failed()}));
    }
    let results = json!({"versions": results});
    println!("{}", if args.json { results.to_string() } else { format!("{results:#}") });
    if results["versions"].as_object().is_none_or(serde_json::Map::is_empty) {
        bail!("not a supported version");
    }
    if has_failed {
        bail!("tests have failed");
    }
    Ok(())
}

//! `cargo xtask results`: writes `docs/verification.md` from the newest stored result of each part of `.ci/nightly`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::runner::root;

/// Write the page about the results of .ci/nightly, from the newest result of each part in bench/results.
#[derive(clap::Args)]
pub struct Args {}

const PAGE: &str = "docs/verification.md";
const RESULTS: &str = "bench/results";
const HEAD: &str = "# Verification

CI runs every test for each change, and samples what takes hours: faults at random, older versions of Kubernetes, deliberate bugs,
long simulations. `.ci/nightly` runs all of it in full, with random seeds. This page lists the newest stored result of each part;
`cargo xtask results` generates it. Each file has the commit, the seed and all figures. A part that is not listed has no stored
result yet.

| part | result | run |
|---|---|---|
";

/// A file of `.ci/nightly`.
#[derive(Deserialize)]
struct Stored {
    part: String,
    commit: String,
    /// RFC 3339, so texts are ordered like times.
    date: String,
    seconds: u64,
    /// None if the part could not run on this machine.
    passed: Option<bool>,
    result: Value,
    #[serde(skip)]
    file: String,
}

pub fn run(_: &Args) -> Result<()> {
    let root = root();
    let page = page(&newest(&root)?);
    fs::write(root.join(PAGE), page).with_context(|| format!("cannot write {PAGE}"))
}

/// Returns the newest result of each part.
fn newest(root: &Path) -> Result<BTreeMap<String, Stored>> {
    let mut newest: BTreeMap<String, Stored> = BTreeMap::new();
    let read = |path: &Path| fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()));
    for folder in read(&root.join(RESULTS))? {
        let folder = folder?.path();
        if !folder.is_dir() {
            continue;
        }
        for file in read(&folder)? {
            let path = file?.path();
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let mut stored: Stored =
                serde_json::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))?;
            stored.file = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            let is_newer = |known: &Stored| known.date < stored.date;
            if stored.passed.is_some() && newest.get(&stored.part).is_none_or(is_newer) {
                newest.insert(stored.part.clone(), stored);
            }
        }
    }
    Ok(newest)
}

fn page(newest: &BTreeMap<String, Stored>) -> String {
    let mut page = HEAD.to_owned();
    for stored in newest.values() {
        let outcome = if stored.passed == Some(true) { "passed" } else { "**failed**" };
        let figures =
            figures(&stored.part, &stored.result).map(|text| format!(": {text}")).unwrap_or_default();
        let (date, minutes) = (&stored.date[..10.min(stored.date.len())], stored.seconds.div_ceil(60));
        page.push_str(&format!(
            "| `{}` | {outcome}{figures} | {date}, commit {}, {minutes} minutes, `{}` |\n",
            stored.part, stored.commit, stored.file
        ));
    }
    page
}

/// Returns the most important figures of a part, in words.
fn figures(part: &str, result: &Value) -> Option<String> {
    let number = |name: &str| result[name].as_u64().map(grouped);
    let rounded = |name: &str| result[name].as_f64().map(f64::round);
    Some(match part {
        "faults-agent" | "faults-broker" => format!(
            "{} of {} kinds of fault, {} pairs of faults at once, {} violations",
            number("passed")?,
            number("rows")?,
            number("pairs")?,
            number("violations")?
        ),
        "sim" => format!(
            "{} random stories, each with every fault at every step: {} runs, {} requests, {} violations; final states compared \
             for {} of the stories",
            number("seeds")?,
            number("stories")?,
            number("steps")?,
            result["violations"]
                .as_object()?
                .values()
                .filter_map(Value::as_array)
                .map(Vec::len)
                .sum::<usize>(),
            number("compared")?
        ),
        "versions" => {
            let versions = result["versions"].as_object()?.iter();
            let tests = |(version, counts): (&String, &Value)| {
                let failed = counts["failed"].as_array()?.len();
                Some(format!("Kubernetes {version}: {} tests, {failed} failed", counts["tests"]))
            };
            versions.map(tests).collect::<Option<Vec<_>>>()?.join("; ")
        }
        "hostile" => format!("{} attempts, {} violations", number("attempts")?, number("violations")?),
        "console-fleet" => format!(
            "largest content after {} ms, slowest interaction {} ms, longest task {} ms, {} KB/s during a release, {} MB of heap",
            rounded("console_lcp_ms")?,
            rounded("console_interaction_ms")?,
            rounded("console_longest_task_ms")?,
            rounded("console_release_kilobytes_per_s")?,
            rounded("console_heap_megabytes")?
        ),
        "seeded" => format!("{} of {} deliberate bugs found", number("found")?, number("bugs")?),
        _ => return None,
    })
}

/// Returns a number with separators, such as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_page_is_current() {
        let committed = fs::read_to_string(root().join(PAGE)).unwrap();
        assert_eq!(page(&newest(&root()).unwrap()), committed, "run `cargo xtask results`");
    }

    #[test]
    fn the_newest_result_of_a_part_counts_unless_it_did_not_run() {
        let root = tempfile::tempdir().unwrap();
        let write = |folder: &str, date: &str, passed: Value| {
            let folder = root.path().join(RESULTS).join(folder);
            fs::create_dir_all(&folder).unwrap();
            let stored = json!({
                "part": "seeded", "commit": "abc", "date": date, "seed": 1, "seconds": 61, "passed": passed,
                "result": {"bugs": 52, "found": 51, "survived": ["x"]},
            });
            fs::write(folder.join("seeded.json"), stored.to_string()).unwrap();
        };
        write("a", "2026-11-15T00:00:00Z", json!(true));
        write("b", "2026-11-16T00:00:00Z", json!(false));
        write("c", "2026-11-17T00:00:00Z", json!(null));
        let page = page(&newest(root.path()).unwrap());
        let row = "| `seeded` | **failed**: 51 of 52 deliberate bugs found | 2026-11-16, commit abc, 2 minutes, \
                   `bench/results/b/seeded.json` |\n";
        assert_eq!(page, format!("{HEAD}{row}"));
    }

    #[test]
    fn figures_are_sentences() {
        let sim = json!({
            "seeds": 2000, "compared": 900, "stories": 1_200_345, "steps": 7, "violations": {"B1": [{}, {}], "D6": [{}]},
        });
        let text = figures("sim", &sim).unwrap();
        assert!(
            text.starts_with("2,000 random stories")
                && text.contains("1,200,345 runs, 7 requests, 3 violations")
        );
        for (failed, count) in [(json!([]), 0), (json!(["one", "two"]), 2)] {
            let versions = json!({"versions": {"1.30": {"tests": 9, "failed": failed}}});
            let expected = format!("Kubernetes 1.30: 9 tests, {count} failed");
            assert_eq!(figures("versions", &versions).unwrap(), expected);
        }
    }
}

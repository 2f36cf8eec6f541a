//! Screens of docs/why.md: what `kubectl get pods -A` and `brokkr why` print in a situation, compared with the page.
//!
//! `INSTA_UPDATE=always` writes them into the page, with one test at a time.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use brokkr_e2e::fits;
use brokkr_testkit::eventually;

use crate::site::{DEADLINE, Site};

const MARK: &str = "<!-- not run: compared by the tests on real nodes -->\n```text\n";
/// Shown instead of the random parts of names.
const HASH: &str = "6d5f9c7b88";
const SUFFIXES: [&str; 3] = ["x2k4p", "7hq9d", "mm2vt"];

impl Site {
    /// Waits until the page shows what is printed, under this title.
    pub async fn screen(&self, title: &str) -> Result<()> {
        if std::env::var_os("INSTA_UPDATE").is_some_and(|value| value == "always") {
            return record(title, &self.printed().await?);
        }
        eventually(DEADLINE, &format!("the screen {title:?} of docs/why.md"), async || {
            let (page, seen) = (lines(&shown(title)?), lines(&self.printed().await?));
            let is_same =
                page.len() == seen.len() && page.iter().zip(&seen).all(|(page, seen)| fits(page, seen));
            ensure!(is_same, "docs/why.md: {page:#?}\nprinted: {seen:#?}");
            anyhow::Ok(())
        })
        .await
    }

    async fn printed(&self) -> Result<String> {
        let pods = self.cluster.kubectl(["get", "pods", "-A"]).await?.ok()?.stdout;
        let own = |line: &&str| line.starts_with("NAMESPACE ") || line.starts_with(&self.namespace);
        let pods: Vec<&str> = pods.lines().filter(own).collect();
        let (mut pods, mut why) = (pods.join("\n"), self.why().await?);
        for (name, replacement) in self.random_names().await? {
            (pods, why) = (pods.replace(&name, &replacement), why.replace(&name, &replacement));
        }
        Ok(format!("$ kubectl get pods -A\n{}\n$ brokkr why web\n{why}", aligned(&pods)))
    }

    /// Returns the names that differ from run to run, longest first, each with what is shown instead.
    async fn random_names(&self) -> Result<Vec<(String, String)>> {
        let list = ["-n", &self.namespace, "get", "pods,replicasets", "-o", "name"];
        let list = self.cluster.kubectl(list).await?.ok()?.stdout;
        let mut names = vec![(self.namespace.clone(), "shop".to_owned())];
        let (pods, sets): (Vec<&str>, Vec<&str>) = list.lines().partition(|name| name.starts_with("pod/"));
        for name in sets.iter().filter_map(|name| name.split('/').nth(1)) {
            let (owner, _) = name.rsplit_once('-').context("the name of a ReplicaSet")?;
            names.push((name.to_owned(), format!("{owner}-{HASH}")));
        }
        // The number of a StatefulSet's Pod is not random.
        let pods = pods.iter().filter_map(|name| name.strip_prefix("pod/")?.rsplit_once('-'));
        for ((owner, suffix), shown) in pods.filter(|(_, suffix)| suffix.len() == 5).zip(SUFFIXES) {
            let owner_shown = owner
                .rsplit_once('-')
                .map_or_else(|| owner.to_owned(), |(owner, _)| format!("{owner}-{HASH}"));
            names.push((format!("{owner}-{suffix}"), format!("{owner_shown}-{shown}")));
        }
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Ok(names)
    }
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/why.md")
}

/// Returns where the screen begins and ends in the text of the page.
fn place(page: &str, title: &str) -> Result<std::ops::Range<usize>> {
    let heading = format!("\n### {title}\n");
    let heading = page.find(&heading).with_context(|| format!("docs/why.md has no section {title:?}"))?;
    let start = page[heading..].find(MARK).context("the section has no screen")? + heading + MARK.len();
    let end = page[start..].find("```").context("the screen has no end")? + start;
    Ok(start..end)
}

fn shown(title: &str) -> Result<String> {
    let page = fs::read_to_string(page())?;
    let place = place(&page, title)?;
    Ok(page[place].to_owned())
}

fn record(title: &str, screen: &str) -> Result<()> {
    let mut text = fs::read_to_string(page())?;
    text.replace_range(place(&text, title)?, screen);
    Ok(fs::write(page(), text)?)
}

/// Aligns the columns of a table again, after names in it were replaced.
fn aligned(table: &str) -> String {
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.len()).max();
    let line = |row: &Vec<&str>| {
        let cells = row.iter().enumerate().map(|(at, cell)| format!("{cell:0$}", width(at).unwrap_or(0) + 3));
        cells.collect::<String>().trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns what has to be equal: not the restarts and ages of Pods, and no other numbers.
fn lines(screen: &str) -> Vec<String> {
    let (pods, why) = screen.split_once("$ brokkr why").unwrap_or((screen, ""));
    let pods = pods.lines().map(|line| line.split_whitespace().take(4).collect::<Vec<_>>().join(" "));
    pods.chain(why.lines().map(without_numbers)).map(|line| with_one_word_per_state(&line)).collect()
}

/// Replaces numbers and durations such as `12s` that stand alone.
fn without_numbers(line: &str) -> String {
    let is_number = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_digit()) && !word.contains(['/', '.']) && word.len() < 8
    };
    let words = line.split_whitespace().map(|word| if is_number(word) { "N" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// While a container keeps exiting, or an image cannot be pulled, Kubernetes alternates between several words.
fn with_one_word_per_state(line: &str) -> String {
    // A Pod may be read before its first restart, and the same problem is not reported again.
    let mut line = line
        .replace("restarted once", "restarted N times")
        .replace(", restarted N times", "")
        .replace("ErrImagePull", "ImagePullBackOff")
        .replace(": Error: pod", ": CrashLoopBackOff: pod");
    for word in ["CrashLoopBackOff", "OOMKilled"] {
        line = line.replace(&format!(" 0/1 {word}"), " 0/1 Error");
    }
    line
}

//! `cargo xtask charts`: generates what the charts repeat from other files, so that it is maintained once.
//!
//! The agent's chart contains the files of `deploy/`, the broker's chart the alerts and dashboards of `deploy/monitoring/`,
//! because Helm can only read files inside the chart. The charts have the version of the workspace. The table of values in each
//! README is generated from the comments in `values.yaml` (`charts/values.rs`). A test compares the result with the repository.

mod values;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::runner::root;

const CHARTS: [&str; 2] = ["charts/brokkr", "charts/brokkr-agent"];
/// Files to copy: their source folder, the folder of the chart with the copies, and their suffix.
const COPIES: [(&str, &str, &str); 3] = [
    ("deploy", "charts/brokkr-agent/files", ".yaml"),
    ("deploy/monitoring", "charts/brokkr/files", ".yaml"),
    ("deploy/monitoring/dashboards", "charts/brokkr/files/dashboards", ".json"),
];
/// Helm creates the namespace; tests of alert rules are not part of the chart.
const NOT_COPIED: [&str; 2] = ["namespace.yaml", "rules.test.yaml"];
const TABLE_BEGINS: &str = "<!-- values, made by `cargo xtask charts` -->\n";
const TABLE_ENDS: &str = "<!-- end of values -->";

/// Update the charts: files of `deploy/`, versions, and the tables of values in their READMEs.
#[derive(clap::Args)]
pub struct Args {
    /// Change nothing, and fail if something is not up to date.
    #[arg(long)]
    check: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let stale = stale()?;
    if stale.is_empty() {
        println!("the charts are up to date");
        return Ok(());
    }
    for (path, wanted) in &stale {
        println!("{}", path.display());
        if !args.check {
            write(&root().join(path), wanted.as_deref())?;
        }
    }
    if args.check {
        bail!("not up to date; run `cargo xtask charts`");
    }
    Ok(())
}

/// Returns the files, relative to the root, that are missing, outdated or superfluous.
fn stale() -> Result<Vec<(PathBuf, Option<String>)>> {
    let mut wanted = Vec::new();
    for (source, copy, ending) in COPIES {
        for name in names(source, ending)? {
            if !NOT_COPIED.contains(&name.as_str()) {
                wanted.push((Path::new(copy).join(&name), Some(read(&Path::new(source).join(&name))?)));
            }
        }
        for name in names(copy, ending)? {
            let path = Path::new(copy).join(name);
            if !wanted.iter().any(|(other, _)| *other == path) {
                wanted.push((path, None));
            }
        }
    }
    for chart in CHARTS.map(Path::new) {
        let (about, readme) = (chart.join("Chart.yaml"), chart.join("README.md"));
        wanted.push((about.clone(), Some(with_version(&read(&about)?))));
        let table = values::table(&read(&chart.join("values.yaml"))?)?;
        let filled = with_table(&read(&readme)?, &table);
        wanted.push((readme.clone(), Some(filled.with_context(|| format!("{}", readme.display()))?)));
    }
    wanted.retain(|(path, wanted)| read(path).ok() != *wanted);
    Ok(wanted)
}

/// Returns the files of a folder with this suffix.
fn names(folder: &str, ending: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root().join(folder)).with_context(|| format!("cannot read {folder}"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(ending) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, wanted: Option<&str>) -> Result<()> {
    match wanted {
        Some(text) => fs::write(path, text),
        None => fs::remove_file(path),
    }
    .with_context(|| format!("cannot change {}", path.display()))
}

fn with_version(text: &str) -> String {
    let versioned = |line: &str| match line.split_once(": ") {
        Some((key @ ("version" | "appVersion"), _)) => format!("{key}: {}\n", env!("CARGO_PKG_VERSION")),
        _ => format!("{line}\n"),
    };
    text.lines().map(versioned).collect()
}

fn with_table(readme: &str, table: &str) -> Result<String> {
    let (before, rest) = readme.split_once(TABLE_BEGINS).context("no marker for the table of values")?;
    let (_, after) = rest.split_once(TABLE_ENDS).context("the table of values has no end")?;
    Ok(format!("{before}{TABLE_BEGINS}\n{table}\n{TABLE_ENDS}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_charts_are_up_to_date() {
        let stale: Vec<PathBuf> = stale().unwrap().into_iter().map(|(path, _)| path).collect();
        assert!(stale.is_empty(), "run `cargo xtask charts` to update {stale:?}");
    }
}

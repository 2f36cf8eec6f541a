//! The charts, installed by Helm into a real API server; the programs run with the permissions that the charts grant.
//!
//! ```text
//! charts/agent.rs     the agent's chart: join, deliver, fewer permissions, uninstall, reinstall, leave nothing behind
//! charts/broker.rs    the broker's chart: migrate, serve, upgrade
//! charts/values.rs    rendered objects and rejected values; needs no cluster
//! ```

mod agent;
mod broker;
mod values;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_testkit::Scratch;
use brokkr_testkit::process::{Launch, Output, run};

const DEADLINE: Duration = Duration::from_secs(60);

/// Returns a chart of this clone, `brokkr` or `brokkr-agent`.
fn chart(name: &str) -> PathBuf {
    root().join("charts").join(name)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the chart before its last change, as the starting point of an upgrade.
async fn earlier_chart(name: &str, scratch: &Scratch) -> Result<PathBuf> {
    let (folder, inside) = (scratch.path().to_owned(), format!("charts/{name}"));
    let log = git(&["log", "--format=%H", "-n", "2", "--", &inside]).await?;
    let Some(commit) = log.stdout.lines().last().filter(|_| log.success()) else { return Ok(chart(name)) };
    let archive = folder.join("chart.tar");
    let output = archive.to_str().context("a path as text")?;
    let archived = git(&["archive", "-o", output, commit, &inside]).await?;
    if !archived.success() {
        return Ok(chart(name));
    }
    let unpack = Launch::new("tar", "tar").arg("-xf").arg(&archive).arg("-C").arg(&folder);
    run(unpack, DEADLINE).await?.ok()?;
    Ok(folder.join(inside))
}

async fn git(arguments: &[&str]) -> Result<Output> {
    run(Launch::new("git", "git").args(arguments).folder(root()), DEADLINE).await
}

/// Runs helm without a cluster.
async fn helm(arguments: &[&str]) -> Result<Output> {
    let helm = brokkr_engines::locate()?.binary("helm").to_owned();
    run(Launch::new("helm", helm).args(arguments).env("KUBECONFIG", "/dev/null"), DEADLINE).await
}

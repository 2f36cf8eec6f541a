//! The README's five minutes, typed exactly as they stand there.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_testkit::process::run;
use brokkr_testkit::programs::program;
use brokkr_testkit::{Launch, Process, Scratch, eventually};

/// Two clusters with controllers have to start.
const STARTING: Duration = Duration::from_secs(120);
const TYPING: Duration = Duration::from_secs(240);

/// The lines that begin with `$` in the console blocks of a page.
pub fn commands(readme: &str) -> Vec<&str> {
    let mut inside = false;
    let mut commands = Vec::new();
    for line in readme.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            commands.push(command);
        }
    }
    commands
}

#[tokio::test]
async fn the_commands_of_the_readme_work_as_they_are_written() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let readme = fs::read_to_string(root.join("README.md"))?;
    let commands = commands(&readme);
    assert!(commands.len() >= 10, "the README shows how it is used: {commands:?}");

    let scratch = Scratch::new("readme")?;
    std::os::unix::fs::symlink(root.join("examples"), scratch.join("examples"))?;
    let launch = Launch::new("dev-fleet", program("dev-fleet")?).folder(scratch.path());
    let fleet = Process::start(launch, scratch.path())?;
    let environment = scratch.join("target/dev/env");
    eventually(STARTING, "the fleet to be up", async || {
        environment.is_file() && fleet.log().contains("Ctrl-C here")
    })
    .await?;

    let script = format!("set -euo pipefail\nset -x\n{}\n", commands.join("\n"));
    let script = scratch.write("commands.sh", &script)?;
    let output = run(Launch::new("bash", "/bin/bash").arg(script).folder(scratch.path()), TYPING).await?;
    let output = output.ok().context("a command of the README failed")?;
    assert!(output.stdout.contains("healthy"), "{}", output.stdout);
    assert!(output.stdout.contains("hello is gone") || output.stderr.contains("hello is gone"), "{output:?}");
    fleet.stop().await?;
    assert!(!environment.exists(), "nothing is left behind");
    Ok(())
}

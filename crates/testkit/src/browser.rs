//! Pages in a real browser: Playwright runs the specs of `console/e2e` with Debian's Chromium.

mod control;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use brokkr_engines::locate_node;

use crate::nodes;
use crate::process::{Launch, run};
use control::Control;

const CHROMIUM: &str = "/usr/bin/chromium";

/// Returns whether a test has to be skipped, and prints the reason; fails where real nodes are required, as in CI.
pub fn skipped() -> Result<bool> {
    match obstacle() {
        Some(reason) if nodes::is_required() => Err(anyhow!(reason)),
        Some(reason) => {
            eprintln!("SKIPPED: {reason}");
            Ok(true)
        }
        None => Ok(false),
    }
}

/// Returns why the specs cannot run on this machine.
pub fn obstacle() -> Option<&'static str> {
    if !Path::new(CHROMIUM).exists() {
        return Some("a browser needs the package chromium");
    }
    let is_built = runner().exists() && console().join("dist/index.html").exists();
    (!is_built).then_some("the console was not built; run `cargo xtask console`")
}

/// The specs of one run, and what they need to know.
#[derive(Debug, Default)]
pub struct Specs<'a> {
    pub arguments: &'a [&'a str],
    /// The variables of `console/e2e/README.md`, except those of the browser and of the control server.
    pub variables: Vec<(&'static str, String)>,
    pub deadline: Duration,
}

impl Specs<'_> {
    /// Runs the specs, and carries out their commands meanwhile: from the name of a command and its body to the text that it returns.
    pub async fn run(self, mut carry_out: impl AsyncFnMut(&str, &str) -> Result<String>) -> Result<()> {
        let mut control = Control::start().await?;
        let results = format!("e2e/results/{}", std::process::id());
        let launch = Launch::new("playwright", locate_node()?)
            .arg(runner())
            .arg("test")
            .args(self.arguments)
            // Apart from another run, which would delete what this one writes.
            .args(["--output", &results])
            .folder(console())
            .env("CI", "true")
            .envs(self.variables)
            .env("BROKKR_CONSOLE_CHROMIUM", CHROMIUM)
            .env("BROKKR_CONSOLE_CONTROL", control.url());
        let running = run(launch, self.deadline);
        tokio::pin!(running);
        let output = loop {
            tokio::select! {
                output = &mut running => break output?,
                Some(request) = control.next() => {
                    let answer = carry_out(&request.command, &request.body).await;
                    // The spec may have given up.
                    let _ = request.answer.send(answer);
                }
            }
        };
        // Also if all pass: the list of specs, with their times.
        eprintln!("{}", output.stdout);
        ensure!(output.success(), "specs failed; traces are in console/{results}\n{}", output.stderr);
        Ok(())
    }
}

/// Returns the folder with the sources of the console.
pub fn console() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console")
}

fn runner() -> PathBuf {
    console().join("node_modules/@playwright/test/cli.js")
}

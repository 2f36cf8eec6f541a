//! `cargo xtask docs`: generates the OpenAPI document and the pages of `docs/reference`.
//!
//! Tests generate the pages. They normally compare them with the committed ones; here they write them.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::runner::{build_tests, built, cargo, root};

/// Generate the OpenAPI document and the pages of docs/reference from the code.
#[derive(clap::Args)]
pub struct Args {}

/// Part of the names of the tests that generate a page.
const PAGE_TESTS: &str = "the_reference_page";

pub fn run(_: &Args) -> Result<()> {
    build_tests()?;
    let openapi =
        Command::new(built("brokkr-broker")?).arg("openapi").output().context("cannot run brokkr-broker")?;
    if !openapi.status.success() {
        bail!("`brokkr-broker openapi` failed:\n{}", String::from_utf8_lossy(&openapi.stderr));
    }
    fs::write(root().join("docs/openapi.json"), openapi.stdout).context("cannot write docs/openapi.json")?;
    let tests = cargo()
        .args(["test", "--workspace", "--lib", "--bins", "--test", "broker", "--", PAGE_TESTS])
        .env("INSTA_UPDATE", "always")
        .status();
    if !tests.context("cannot run cargo")?.success() {
        bail!("cannot generate a page");
    }
    Ok(())
}

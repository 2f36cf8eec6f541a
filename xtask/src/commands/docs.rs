//! `cargo xtask docs`: generates the OpenAPI document and the pages of `docs/reference`.
//!
//! The pages are made by tests, which normally compare them with the committed ones; here the tests write them.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::runner::{cargo, root};

/// Generate the OpenAPI document and the pages of docs/reference from the code.
#[derive(clap::Args)]
pub struct Args {}

/// A part of the names of the tests that make a page.
const MAKERS: &str = "the_reference_page";

pub fn run(_: &Args) -> Result<()> {
    let openapi = cargo().args(["run", "--quiet", "-p", "brokkr-broker", "--", "openapi"]).output();
    let openapi = openapi.context("cannot run cargo")?;
    if !openapi.status.success() {
        bail!(
            "the broker does not print its OpenAPI document:\n{}",
            String::from_utf8_lossy(&openapi.stderr)
        );
    }
    fs::write(root().join("docs/openapi.json"), openapi.stdout).context("cannot write docs/openapi.json")?;
    let made = cargo()
        .args(["test", "--workspace", "--lib", "--bins", "--test", "broker", "--", MAKERS])
        .env("INSTA_UPDATE", "always")
        .status();
    if !made.context("cannot run cargo")?.success() {
        bail!("cannot generate a page");
    }
    Ok(())
}

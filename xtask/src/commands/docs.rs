//! `cargo xtask docs`: writes what is made from the code: the OpenAPI document and the pages of `docs/reference`.
//!
//! The pages are made by tests, which otherwise compare them with what is committed; here they are let to write.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::runner::{cargo, root};

/// Write the OpenAPI document and the pages of docs/reference anew, from the code.
#[derive(clap::Args)]
pub struct Args {}

/// What the tests that make a page have in their names.
const MAKERS: &str = "the_reference_page";

pub fn run(_: &Args) -> Result<()> {
    let openapi = cargo().args(["run", "--quiet", "-p", "brokkr-broker", "--", "openapi"]).output();
    let openapi = openapi.context("cannot run cargo")?;
    if !openapi.status.success() {
        bail!("the broker does not tell its OpenAPI document:\n{}", String::from_utf8_lossy(&openapi.stderr));
    }
    fs::write(root().join("docs/openapi.json"), openapi.stdout).context("cannot write docs/openapi.json")?;
    let made = cargo()
        .args(["test", "--workspace", "--lib", "--bins", "--test", "broker", "--", MAKERS])
        .env("INSTA_UPDATE", "always")
        .status();
    if !made.context("cannot run cargo")?.success() {
        bail!("a page could not be made");
    }
    Ok(())
}

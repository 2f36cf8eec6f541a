//! Every screen by every role, in both themes, and while the broker is away.

use std::time::Duration;

use anyhow::Result;
use brokkr_testkit::browser::{Specs, skipped};
use brokkr_testkit::{Scratch, nodes};

use crate::lab::Lab;

const DEADLINE: Duration = Duration::from_secs(900);
const DEADLINE_AT_NIGHT: Duration = Duration::from_secs(1800);
const DEADLINE_OF_PICTURES: Duration = Duration::from_secs(300);
/// Names the folder for the pictures.
const PICTURES: &str = "BROKKR_CONSOLE_PICTURES";

#[tokio::test(flavor = "multi_thread")]
async fn every_screen_works_in_a_browser() -> Result<()> {
    // The other roles and the other theme run every night.
    run(&["--project", "light", "--grep-invert", "@nightly"], DEADLINE).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "every screen by every role in both themes, and while the broker is away; .ci/nightly runs it"]
async fn every_screen_works_by_every_role_in_both_themes_and_without_the_broker() -> Result<()> {
    run(&["--project", "light", "--project", "dark", "--project", "faults"], DEADLINE_AT_NIGHT).await
}

/// Not part of the other tests: pictures contain ages and times, so each run changes them.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes the pictures of the documentation; .ci/nightly runs it, and `cargo xtask e2e console --pictures` stores them"]
async fn the_pictures_of_the_documentation() -> Result<()> {
    run(&["--project", "pictures"], DEADLINE_OF_PICTURES).await
}

async fn run(arguments: &[&str], deadline: Duration) -> Result<()> {
    if nodes::skipped()? || skipped()? {
        return Ok(());
    }
    let mut lab = Box::pin(Lab::start()).await?;
    let scratch = Scratch::new("console")?;
    let pictures = std::env::var(PICTURES).unwrap_or_else(|_| scratch.path().display().to_string());
    let mut variables = lab.variables();
    variables.push((PICTURES, pictures));
    let specs = Specs { arguments, variables, deadline };
    specs.run(async |command, body| lab.carry_out(command, body).await).await
}

//! Every screen by every role, in both themes, and while the broker is away.

use std::time::Duration;

use anyhow::Result;
use brokkr_testkit::browser::{Specs, console, skipped};
use brokkr_testkit::nodes;

use crate::lab::Lab;

const DEADLINE: Duration = Duration::from_secs(1500);

#[tokio::test(flavor = "multi_thread")]
async fn every_screen_works_in_a_browser() -> Result<()> {
    // The other roles and the other theme run every night.
    run(&["--project", "light", "--grep-invert", "@nightly"]).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "every screen by every role in both themes, and while the broker is away; .ci/nightly runs it"]
async fn every_screen_works_by_every_role_in_both_themes_and_without_the_broker() -> Result<()> {
    run(&["--project", "light", "--project", "dark", "--project", "faults"]).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes the pictures of the documentation, docs/images/console; .ci/nightly runs it"]
async fn the_pictures_of_the_documentation() -> Result<()> {
    run(&["--project", "pictures"]).await
}

async fn run(arguments: &[&str]) -> Result<()> {
    if nodes::skipped()? || skipped()? {
        return Ok(());
    }
    let mut lab = Box::pin(Lab::start()).await?;
    let mut variables = lab.variables();
    let pictures = console().join("../docs/images/console");
    variables.push(("BROKKR_CONSOLE_PICTURES", pictures.display().to_string()));
    let specs = Specs { arguments, variables, deadline: DEADLINE };
    specs.run(async |command, body| lab.carry_out(command, body).await).await
}

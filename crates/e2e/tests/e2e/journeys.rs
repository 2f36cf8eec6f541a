//! The first hour of `cargo xtask journeys`: no journey takes more commands than its target.

use std::time::Duration;

use anyhow::Result;
use brokkr_testkit::Launch;
use brokkr_testkit::process::run;
use brokkr_testkit::programs::program;
use serde_json::Value;

/// Enough to start three clusters and run six journeys.
const DEADLINE: Duration = Duration::from_secs(300);

#[tokio::test]
async fn the_first_hour_takes_no_more_commands_than_promised() -> Result<()> {
    let walked = run(Launch::new("journeys", program("journeys")?).arg("--json"), DEADLINE).await?.ok()?;
    let journeys: Vec<Value> = walked.json()?;
    println!("{}", walked.stdout);
    let commands: Vec<_> = journeys.iter().map(|journey| journey["commands"].as_u64()).collect();
    assert_eq!(commands, [2, 1, 1, 1, 1, 1].map(Some), "{journeys:#?}");
    Ok(())
}

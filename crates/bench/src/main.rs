//! `brokkr-bench`, which `cargo xtask bench` builds and runs.

use anyhow::{Result, ensure};
use brokkr_bench::args::Command;
use brokkr_bench::broker;
use brokkr_bench::broker::figures::Figures;
use clap::Parser as _;
use serde_json::Value;

#[tokio::main]
async fn main() -> Result<()> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match Command::parse() {
        Command::Agent(args) => {
            let results = Box::pin(brokkr_bench::run(&args)).await?;
            print_result(args.json, &results.to_json(), &results.to_table())
        }
        Command::Broker(args) => {
            let figures = Box::pin(broker::run(&args)).await?;
            print_result(args.json, &figures.to_json(), &figures.to_table())
        }
        Command::Rollouts(args) => print_and_check(args.json, &Box::pin(broker::rollouts::run(&args)).await?),
        Command::Alerts(args) => print_and_check(args.json, &Box::pin(broker::alerts::run(&args)).await?),
        Command::Console(args) => print_and_check(args.json, &Box::pin(broker::console::run(&args)).await?),
        Command::Bare(args) => broker::bare::serve(&args).await,
    }
}

/// Prints the numbers; fails if one misses its target.
fn print_and_check(json: bool, figures: &Figures) -> Result<()> {
    print_result(json, &figures.to_json(), &figures.to_table())?;
    ensure!(figures.missed().is_empty(), "missed targets: {}", figures.missed().join(", "));
    Ok(())
}

fn print_result(json: bool, document: &Value, table: &str) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(document)?);
    } else {
        print!("{table}");
    }
    Ok(())
}

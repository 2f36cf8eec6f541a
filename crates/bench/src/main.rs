//! `brokkr-bench`, which `cargo xtask bench` builds and runs.

use anyhow::{Result, ensure};
use brokkr_bench::args::Command;
use brokkr_bench::broker;
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
        Command::Rollouts(args) => {
            let figures = Box::pin(broker::rollouts::run(&args)).await?;
            print_result(args.json, &figures.to_json(), &figures.to_table())?;
            ensure!(figures.missed().is_empty(), "missed targets: {}", figures.missed().join(", "));
            Ok(())
        }
        Command::Alerts(args) => {
            let figures = Box::pin(broker::alerts::run(&args)).await?;
            print_result(args.json, &figures.to_json(), &figures.to_table())?;
            ensure!(figures.missed().is_empty(), "missed targets: {}", figures.missed().join(", "));
            Ok(())
        }
        Command::Bare(args) => broker::bare::serve(&args).await,
    }
}

fn print_result(json: bool, document: &Value, table: &str) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(document)?);
    } else {
        print!("{table}");
    }
    Ok(())
}

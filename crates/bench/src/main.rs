//! `brokkr-bench`: what `cargo xtask bench` builds and becomes.

use anyhow::Result;
use brokkr_bench::args::Command;
use clap::Parser as _;

#[tokio::main]
async fn main() -> Result<()> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let Command::Agent(args) = Command::parse();
    let results = brokkr_bench::run(&args).await?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&results.to_json())?);
    } else {
        print!("{}", results.to_table());
    }
    Ok(())
}

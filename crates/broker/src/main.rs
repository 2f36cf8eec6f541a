//! Doorway: parse, install the crypto provider, run.

use std::process::ExitCode;

use brokkr_broker::args::Args;
use brokkr_broker::commands;
use clap::Parser as _;

fn main() -> ExitCode {
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        eprintln!("brokkr-broker: another crypto provider is installed already");
        return ExitCode::FAILURE;
    }
    commands::run(Args::parse())
}

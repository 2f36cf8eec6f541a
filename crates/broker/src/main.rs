//! Doorway: parse, install the crypto provider, run.

use std::process::ExitCode;

use brokkr_broker::commands;
use brokkr_broker::config::{self, ConfigError};

fn main() -> ExitCode {
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        eprintln!("brokkr-broker: another crypto provider is installed already");
        return ExitCode::FAILURE;
    }
    match config::parse(std::env::args_os()) {
        Ok(parsed) => commands::run(parsed),
        Err(ConfigError::Flags(error)) => error.exit(),
        Err(error) => {
            eprintln!("brokkr-broker: {:#}", anyhow::Error::from(error));
            ExitCode::FAILURE
        }
    }
}

//! Entry point: install the crypto provider, parse, run.

use std::process::ExitCode;

use brokkr_broker::commands;
use brokkr_broker::config::{self, ConfigError};

/// jemalloc returns memory to the system: after a manifest that reaches every limit, glibc keeps hundreds of
/// megabytes per thread.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        eprintln!("brokkr-broker: failed to install the crypto provider: another one is installed");
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

//! Entry point: installs the crypto provider, parses the arguments and runs the command.

use brokkr_agent::args::{Arguments, Command};
use brokkr_agent::{forget_position, install, run};
use clap::Parser as _;

/// An allocator that returns memory to the system: a list of ten thousand objects is large, but short-lived.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match Arguments::parse().command {
        Command::Run(arguments) => Box::pin(run::run(arguments)).await,
        Command::Install(arguments) => install::install(arguments).await,
        Command::ForgetPosition(arguments) => forget_position::forget_position(arguments).await,
    }
}

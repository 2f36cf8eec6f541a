//! `brokkr bar …`

use brokkr_api::Name;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum BarCommand {
    /// What is barred on a stack, the latest first
    List {
        /// By name or id
        #[arg(value_parser = super::stack)]
        stack: Name,
    },
    Lift(LiftBar),
}

/// Let a barred content be submitted again
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr bar lift web 42")]
pub struct LiftBar {
    /// By name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// Which: the sequence id that was rolled back, or the first digits of the checksum
    #[arg(value_name = "SEQUENCE|CHECKSUM")]
    pub content: String,
}

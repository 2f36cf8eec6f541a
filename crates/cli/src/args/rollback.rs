//! `brokkr rollback`

use brokkr_api::{Name, SequenceId};

use super::Waiting;

/// Go back to an earlier version of a stack, and bar the one that is left
///
/// The content of the earlier version is submitted as a new one. The content that it replaces is refused on this stack
/// from then on, so that a pipeline does not bring it back by itself; `brokkr bar lift` allows it again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr rollback web --reason 'crash loop since 1.8.2' --wait")]
pub struct Rollback {
    /// By name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// The version to go back to; without it, the last one whose content is another and is not barred
    #[arg(long, value_name = "SEQUENCE")]
    pub to: Option<SequenceId>,
    /// Told to whoever submits the barred content again
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
    /// Do not bar the content that is left
    #[arg(long)]
    pub keep_open: bool,
    #[command(flatten)]
    pub waiting: Waiting,
}

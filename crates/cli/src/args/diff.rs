//! `brokkr diff`

use std::path::PathBuf;

use brokkr_api::{Name, SequenceId};

/// What differs between two versions of a stack, or between its newest version and files
///
/// Without sequence ids, the newest version is compared with the one before it; with one, that one with the newest.
/// Values of Secrets are never shown. Exits with 1 if something differs, so that scripts can ask.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brokkr diff web\n  brokkr diff web 41 43\n  brokkr diff web -f ./deploy"
)]
pub struct DiffVersions {
    /// By name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// The version to compare from
    #[arg(value_name = "FROM", conflicts_with = "files")]
    pub from: Option<SequenceId>,
    /// The version to compare to
    #[arg(value_name = "TO", conflicts_with = "files")]
    pub to: Option<SequenceId>,
    /// Compare the newest version with a file, a directory, or - for stdin; can be repeated
    #[arg(short, long = "filename", value_name = "PATH")]
    pub files: Vec<PathBuf>,
}

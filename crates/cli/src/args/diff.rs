//! `brokkr diff`

use brokkr_api::{Name, SequenceId};

use super::Content;

/// What differs between two versions of a stack, or between its newest version and what you have
///
/// Without sequence ids, the newest version is compared with the one before it; with one, that one with the newest.
/// Values of Secrets are never shown. Exits with 1 if something differs, so that scripts can ask.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brokkr diff web\n  brokkr diff web 41 43\n  brokkr diff web -f ./deploy\n  brokkr diff web -k overlays/prod"
)]
pub struct DiffVersions {
    /// By name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// The version to compare from
    #[arg(value_name = "FROM", conflicts_with_all = ["files", "kustomize", "helm"])]
    pub from: Option<SequenceId>,
    /// The version to compare to
    #[arg(value_name = "TO", conflicts_with_all = ["files", "kustomize", "helm"])]
    pub to: Option<SequenceId>,
    #[command(flatten)]
    pub content: Content,
}

//! `brokkr apply`

use brokkr_api::Name;

use super::{Content, Targeting, Waiting};

/// Submit manifests as the next version of a stack
///
/// Everything in the files becomes the stack: what an earlier version contained and this one does not is removed.
/// Several files are joined in the order given, a directory's *.yaml, *.yml and *.json sorted by name. What comes from
/// --kustomize and --helm is rendered here, and stored as it was rendered.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  brokkr apply -f ./deploy --stack web --to env=dev --wait\n  \
                  brokkr apply -k overlays/prod --stack web\n  \
                  brokkr apply --helm ./chart --values prod.yaml -n shop --stack shop")]
pub struct Apply {
    /// The stack, which is created if there is none of that name
    #[arg(long, value_name = "STACK", value_parser = super::stack)]
    pub stack: Name,
    #[command(flatten)]
    pub targeting: Targeting,
    /// Set a label of the stack; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::label)]
    pub label: Vec<(String, String)>,
    #[command(flatten)]
    pub waiting: Waiting,
    #[command(flatten)]
    pub content: Content,
}

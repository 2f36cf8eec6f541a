//! Where manifests come from: files, a kustomization, a chart.

use std::path::PathBuf;

/// What becomes a version of a stack.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Content")]
pub struct Content {
    /// A file, a directory, or - for stdin; can be repeated
    #[arg(short, long = "filename", value_name = "PATH")]
    pub files: Vec<PathBuf>,
    /// Search directories inside directories, too
    #[arg(short = 'R', long, requires = "files")]
    pub recursive: bool,
    /// What the kustomization in this directory becomes, by your own kustomize or kubectl
    #[arg(short, long, value_name = "DIR", conflicts_with = "files")]
    pub kustomize: Option<PathBuf>,
    /// What this chart becomes, by your own helm: a directory, a file, repository/name or oci://…. Hooks are left out
    #[arg(long, value_name = "CHART", conflicts_with_all = ["files", "kustomize"])]
    pub helm: Option<String>,
    /// A file of values for the chart; can be repeated
    #[arg(long, value_name = "FILE", requires = "helm")]
    pub values: Vec<PathBuf>,
    /// A value for the chart; can be repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "helm")]
    pub set: Vec<String>,
    /// The namespace that the chart is rendered for
    #[arg(short, long, value_name = "NAMESPACE", requires = "helm")]
    pub namespace: Option<String>,
    /// The version of the chart
    #[arg(long, value_name = "VERSION", requires = "helm")]
    pub chart_version: Option<String>,
    /// The name of the release that the chart is rendered as; that of the stack if not given
    #[arg(long, value_name = "NAME", requires = "helm")]
    pub release: Option<String>,
}

impl Content {
    pub fn is_given(&self) -> bool {
        !self.files.is_empty() || self.kustomize.is_some() || self.helm.is_some()
    }

    /// As it is called in a comparison.
    pub fn name(&self) -> String {
        let files = self.files.iter().chain(&self.kustomize).map(|path| path.display().to_string());
        files.chain(self.helm.clone()).collect::<Vec<_>>().join(", ")
    }
}

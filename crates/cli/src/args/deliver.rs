//! `brokkr apply`, `diff`, `rollback` and `wait`: versions on their way to agents.

use std::path::PathBuf;
use std::time::Duration;

use brokkr_api::{Name, Selector, SequenceId};
use clap::ValueEnum;

use super::RolloutArgs;

/// Apply manifests to a stack as its next version
///
/// The manifests replace the stack's content: objects that are no longer in them are deleted from the clusters. Files are
/// combined in the given order; the *.yaml, *.yml and *.json files of a directory are sorted by name. --kustomize and --helm
/// render locally, and the broker stores the rendered manifests. Without --to and --to-agent, the stack keeps
/// its targets.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  brokkr apply web -f ./deploy --to env=dev --wait\n  \
                  brokkr apply web -k overlays/prod -m 'raise the memory limit'\n  \
                  brokkr apply shop --helm ./chart --values prod.yaml -n shop")]
pub struct Apply {
    /// Name of the stack; it is created if it does not exist
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    #[command(flatten)]
    pub targeting: Targeting,
    /// Set a label of the stack; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::label)]
    pub label: Vec<(String, String)>,
    /// Record why the version was submitted; shown by `brokkr stack history`
    #[arg(short, long, value_name = "TEXT")]
    pub message: Option<String>,
    /// Record this Git commit with the version [default: from the CI environment, or the Git work tree of the manifests]
    #[arg(long, value_name = "HEX")]
    pub commit: Option<String>,
    #[command(flatten)]
    pub waiting: WaitOptions,
    #[command(flatten)]
    pub rollout: RolloutArgs,
    #[command(flatten)]
    pub content: Content,
}

/// The agents that a stack targets.
#[derive(Debug, clap::Args)]
pub struct Targeting {
    /// Target agents by label selector, such as 'env=prod,region in (eu,us)'; can be repeated
    ///
    /// --to and --to-agent replace the stack's targets.
    #[arg(long, value_name = "SELECTOR")]
    pub to: Vec<Selector>,
    /// Target one agent; can be repeated
    #[arg(long, value_name = "AGENT", value_parser = super::agent)]
    pub to_agent: Vec<Name>,
    /// Confirm the number of agents that lose the stack because its selectors changed
    ///
    /// Without it, such a change is refused, and the error message shows the number.
    #[arg(long, value_name = "NUMBER", value_parser = super::number::<u64>)]
    pub expect: Option<u64>,
}

/// The source of manifests: files, a kustomization, or a chart.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Manifests")]
pub struct Content {
    /// Read manifests from a file, a directory, or - for stdin; can be repeated
    #[arg(short, long = "filename", value_name = "PATH")]
    pub files: Vec<PathBuf>,
    /// Include subdirectories
    #[arg(short = 'R', long, requires = "files")]
    pub recursive: bool,
    /// Render the kustomization in this directory with the installed kustomize or kubectl
    #[arg(short, long, value_name = "DIR", conflicts_with = "files")]
    pub kustomize: Option<PathBuf>,
    /// Render this chart with the installed helm: a directory, an archive, repository/name or oci://…
    #[arg(long, value_name = "CHART", conflicts_with_all = ["files", "kustomize"])]
    pub helm: Option<String>,
    /// Pass a values file to helm; can be repeated
    #[arg(long, value_name = "FILE", requires = "helm")]
    pub values: Vec<PathBuf>,
    /// Pass a value to helm; can be repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "helm")]
    pub set: Vec<String>,
    /// Render the chart for this namespace
    #[arg(short, long, value_name = "NAMESPACE", requires = "helm")]
    pub namespace: Option<String>,
    /// Render this version of the chart
    #[arg(long, value_name = "VERSION", requires = "helm")]
    pub chart_version: Option<String>,
    /// Render the chart under this release name [default: the name of the stack]
    #[arg(long, value_name = "NAME", requires = "helm")]
    pub release: Option<String>,
}

impl Content {
    pub fn is_given(&self) -> bool {
        !self.files.is_empty() || self.kustomize.is_some() || self.helm.is_some()
    }

    /// Returns the name that a comparison shows.
    pub fn name(&self) -> String {
        let files = self.files.iter().chain(&self.kustomize).map(|path| path.display().to_string());
        files.chain(self.helm.clone()).collect::<Vec<_>>().join(", ")
    }
}

/// Options of commands that submit a version.
#[derive(Clone, Debug, clap::Args)]
pub struct WaitOptions {
    /// Wait until this version is healthy on the agents of its first wave, or with --wait=rollout on all agents
    #[arg(long, value_name = "UNTIL", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "canary")]
    pub wait: Option<WaitUntil>,
    /// Stop waiting after this time; with --wait=rollout after a day
    #[arg(long, value_name = "DURATION", default_value = "5m", default_value_if("wait", "rollout", "1day"), value_parser = super::duration, requires = "wait")]
    pub timeout: Duration,
    // The same options as of `brokkr wait`, but here they need `--wait`.
    /// Succeed once this percentage of the targeted agents is healthy
    #[arg(long, value_name = "PERCENT", default_value = "100%", value_parser = percentage, requires = "wait")]
    pub min_healthy: u8,
    /// Do not wait for agents that missed ten polls (silent) or never connected
    #[arg(long, requires = "wait")]
    pub ignore_silent: bool,
    /// Stop waiting as soon as one agent has failed
    #[arg(long, requires = "wait")]
    pub fail_fast: bool,
}

impl WaitOptions {
    /// Returns the options of a wait that is not part of another command.
    pub fn with(timeout: Duration, terms: &WaitTerms) -> Self {
        let WaitTerms { min_healthy, ignore_silent, fail_fast } = *terms;
        Self { wait: None, timeout, min_healthy, ignore_silent, fail_fast }
    }

    pub fn terms(&self) -> WaitTerms {
        let Self { min_healthy, ignore_silent, fail_fast, .. } = *self;
        WaitTerms { min_healthy, ignore_silent, fail_fast }
    }
}

/// How far a version has to be rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WaitUntil {
    /// The first wave is healthy
    Canary,
    /// The rollout is complete
    Rollout,
}

/// Options that decide when a wait ends
#[derive(Clone, Debug, clap::Args)]
pub struct WaitTerms {
    /// Succeed once this percentage of the targeted agents has reached the state of --for
    #[arg(long, value_name = "PERCENT", default_value = "100%", value_parser = percentage)]
    pub min_healthy: u8,
    /// Do not wait for agents that missed ten polls (silent) or never connected
    #[arg(long)]
    pub ignore_silent: bool,
    /// Stop waiting as soon as one agent has failed
    #[arg(long)]
    pub fail_fast: bool,
}

impl WaitTerms {
    /// Waits for every agent, as a deletion does.
    pub fn every_agent() -> Self {
        Self { min_healthy: 100, ignore_silent: false, fail_fast: false }
    }
}

fn percentage(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
    number.filter(|number| (1..=100).contains(number)).ok_or_else(|| "must be from 1% to 100%".to_owned())
}

/// Compare two versions of a stack, or its newest version with local manifests
///
/// Without sequence ids, compares the newest version with the previous one; with one sequence id, compares that version with
/// the newest. Values of Secrets are never shown. The exit status is 1 if there is a difference.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brokkr diff web\n  brokkr diff web 41 43\n  brokkr diff web -f ./deploy\n  brokkr diff web -k overlays/prod"
)]
pub struct Diff {
    /// Name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// Sequence id of the version to compare from
    #[arg(value_name = "FROM", conflicts_with_all = ["files", "kustomize", "helm"])]
    pub from: Option<SequenceId>,
    /// Sequence id of the version to compare to
    #[arg(value_name = "TO", conflicts_with_all = ["files", "kustomize", "helm"])]
    pub to: Option<SequenceId>,
    #[command(flatten)]
    pub content: Content,
}

/// Roll back a stack to an earlier version on all its agents
///
/// The content of the earlier version is submitted as a new version. The content that it replaces is barred: the broker
/// refuses it on this stack until `brokkr stack unbar`, so that a pipeline cannot submit it again.
///
/// On a terminal, the command shows both versions and the number of agents, and asks for confirmation. --wait always waits for all
/// agents.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  brokkr rollback web --reason 'crash loop since 1.8.2' --wait\n  \
                  brokkr rollback web 41 --yes")]
pub struct Rollback {
    /// Name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// Sequence id of the version to restore [default: the last one with different content that is not barred]
    #[arg(value_name = "SEQUENCE")]
    pub to: Option<SequenceId>,
    /// Record a reason; it is shown in the history, and when the barred content is submitted again
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
    /// Do not bar the replaced content
    #[arg(long)]
    pub no_bar: bool,
    /// End the suspensions of the stack; otherwise agents on which it is suspended keep what they have until they end
    #[arg(long)]
    pub force: bool,
    /// Skip the confirmation
    #[arg(short, long)]
    pub yes: bool,
    #[command(flatten)]
    pub waiting: WaitOptions,
}

/// Wait until a version reaches every agent, or a deleted stack is removed
///
/// Waits for one sequence id; reports about earlier versions do not count.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr wait web --for healthy --sequence 42 --timeout 10m")]
pub struct Wait {
    /// Name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// State to wait for
    #[arg(long = "for", value_enum, default_value_t = WaitGoal::Healthy, value_name = "STATE")]
    pub goal: WaitGoal,
    /// Sequence id of the version, as printed by apply [default: the newest]
    #[arg(long, value_name = "SEQUENCE")]
    pub sequence: Option<SequenceId>,
    /// Stop waiting after this time
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = super::duration)]
    pub timeout: Duration,
    #[command(flatten)]
    pub terms: WaitTerms,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WaitGoal {
    /// All objects are written
    Applied,
    /// All objects are written and healthy
    Healthy,
    /// All agents have removed the stack
    Deleted,
}

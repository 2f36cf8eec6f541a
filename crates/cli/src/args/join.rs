//! `brokkr agent join`

use std::path::PathBuf;
use std::time::Duration;

use brokkr_api::Name;
use brokkr_install::rights::Rights;
use url::Url;

/// Install an agent into a cluster, and wait until it works
///
/// The cluster is the one that kubectl talks to. Where none can be reached, or with --print, one block is printed that
/// does the same wherever kubectl reaches the cluster. The agent gets a token that works once, and trusts only the
/// certificate authority that you trust the broker by.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  brokkr agent join shop-1 -l env=prod -l region=eu\n  \
                  brokkr agent join shop-1 --print > shop-1.sh")]
pub struct Join {
    /// The name that the agent will have
    pub name: Name,
    /// A label that the agent will have; can be repeated
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = super::label)]
    pub label: Vec<(String, String)>,
    /// Print what to run in the cluster instead of running it
    #[arg(long)]
    pub print: bool,
    /// Let in again an agent that exists: it keeps its id, labels and targets and gets a new key
    #[arg(long, conflicts_with = "label")]
    pub rejoin: bool,
    /// Which cluster, of those that kubectl knows
    #[arg(long, value_name = "CONTEXT")]
    pub kube_context: Option<String>,
    /// The file in which kubectl finds the cluster
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Where the agent lives in the cluster
    #[arg(long, default_value = brokkr_install::NAMESPACE)]
    pub namespace: String,
    #[command(flatten)]
    pub rights: Rights,
    /// The agent's image, where the cluster's nodes find it
    #[arg(long, default_value = brokkr_install::workload::IMAGE, env = "BROKKR_AGENT_IMAGE", hide_env_values = true)]
    pub image: String,
    /// The broker's address as the cluster sees it, if it is another one than yours
    #[arg(long, value_name = "URL")]
    pub broker_url: Option<Url>,
    /// The proxy that the agent has to use on its way to the broker
    #[arg(long, value_name = "URL")]
    pub proxy: Option<Url>,
    /// How long the token can be used, a week at most
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = super::duration)]
    pub ttl: Duration,
    /// How long to wait for the agent
    #[arg(long, value_name = "DURATION", default_value = "3m", value_parser = super::duration)]
    pub timeout: Duration,
}

//! Flags and environment of the agent, with their docs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use brokkr_install::NAMESPACE;
use brokkr_install::rights::Rights;
use clap::{Args, Parser, Subcommand};
use url::Url;

#[derive(Debug, Parser)]
#[command(
    name = "brokkr-agent",
    version,
    about = "Brokkr's reconciler: pulls its target state and applies it"
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Reconcile this cluster until stopped.
    Run(RunArguments),
    /// Put the record kind, the agent's account, its rights and its fence into a cluster. Run again, it changes the
    /// rights: what is not asked for any more is taken away.
    Install(InstallArguments),
}

#[derive(Debug, Args)]
pub struct RunArguments {
    /// Where the broker is.
    #[arg(long, env = "BROKKR_BROKER_URL")]
    pub broker_url: Url,
    /// The authorities (PEM) that the broker's certificate must be from. Without it, those that the system trusts.
    #[arg(long, env = "BROKKR_CA_FILE")]
    pub ca_file: Option<PathBuf>,
    /// Needed once, to join. Kept in a file so that it never shows in a process list.
    #[arg(long, env = "BROKKR_JOIN_TOKEN_FILE")]
    pub join_token_file: Option<PathBuf>,
    /// Left out inside a cluster: the mounted service account is used.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Where the agent keeps its identity and memory.
    #[arg(long, env = "BROKKR_NAMESPACE", default_value = NAMESPACE)]
    pub namespace: String,
    /// How long one poll waits; a change is answered at once.
    #[arg(long, env = "BROKKR_POLLING_INTERVAL", default_value = "30s", value_parser = humantime::parse_duration)]
    pub polling_interval: Duration,
    /// Watch these namespaces only, where the agent has no rights in the whole cluster: those that were installed with
    /// `--profile namespaces`.
    #[arg(long, env = "BROKKR_NAMESPACES", value_delimiter = ',')]
    pub namespaces: Vec<String>,
    /// Requests to the API server at the same time, at most.
    #[arg(long, env = "BROKKR_IN_FLIGHT", default_value_t = 32)]
    pub in_flight: usize,
    /// How often everything is looked at again, though nothing was heard. Jittered.
    #[arg(long, env = "BROKKR_SWEEP_INTERVAL", default_value = "6h", value_parser = humantime::parse_duration)]
    pub sweep_interval: Duration,
    /// How old the agent's key may become. It makes a new one after two thirds of that; an hour at least.
    #[arg(long, env = "BROKKR_KEY_LIFE", default_value = "90d", value_parser = key_life)]
    pub key_life: Duration,
    /// Where health checks and metrics are asked for, such as `0.0.0.0:8781`: /livez, /readyz, /metrics. Off if left out.
    #[arg(long, env = "BROKKR_ADMIN_LISTEN")]
    pub admin_listen: Option<SocketAddr>,
    /// Log lines as JSON.
    #[arg(long, env = "BROKKR_LOG_JSON")]
    pub log_json: bool,
}

/// The key before the last one is good for an hour: keys that live shorter would end before they are known everywhere.
fn key_life(text: &str) -> Result<Duration, String> {
    let life = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if life < Duration::from_secs(3600) { Err("an hour at least".to_owned()) } else { Ok(life) }
}

#[derive(Debug, Args)]
pub struct InstallArguments {
    /// A kubeconfig that may create kinds and rights.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Where the agent lives in the cluster.
    #[arg(long, env = "BROKKR_NAMESPACE", default_value = NAMESPACE)]
    pub namespace: String,
    #[command(flatten)]
    pub rights: Rights,
    /// Print the manifests instead of applying them.
    #[arg(long)]
    pub print: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_reference_page_of_the_agent_is_current() {
        let introduction = brokkr_reference::made_from("crates/agent/src/args.rs")
            + "# brokkr-agent\n\nThe reconciler, one for each cluster. What `install` puts into a cluster is explained in \
               [deploy](../../deploy/README.md).\n";
        brokkr_reference::check("agent.md", &brokkr_reference::program(Arguments::command(), &introduction));
    }
}

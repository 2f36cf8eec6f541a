//! Flags and environment variables of the agent, with their documentation.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use brokkr_install::NAMESPACE;
use brokkr_install::rights::Rights;
use clap::{Args, Parser, Subcommand};
use url::Url;

use crate::automatic::AutomaticObject;
use crate::version::VERSION;

#[derive(Debug, Parser)]
#[command(
    name = "brokkr-agent",
    version = VERSION,
    about = "Reconcile a cluster with the target state of a Brokkr broker"
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Reconcile this cluster until stopped.
    Run(RunArguments),
    /// Install the Stack CRD, the agent's ServiceAccount, its permissions and its admission policy into a cluster. Running
    /// it again updates the permissions and removes those that are no longer requested.
    Install(InstallArguments),
    /// Forget the highest position that this agent has seen, so that it accepts the responses of its broker again. Needed
    /// only after the agent was connected to a wrong or compromised broker. Restart the agent afterwards.
    ForgetPosition(ForgetPositionArguments),
}

#[derive(Debug, Args)]
pub struct RunArguments {
    /// URL of the broker.
    #[arg(long, env = "BROKKR_BROKER_URL")]
    pub broker_url: Url,
    /// File with the certificate authorities (PEM) to trust for the broker's certificate. Default: those of the system.
    #[arg(long, env = "BROKKR_CA_FILE")]
    pub ca_file: Option<PathBuf>,
    /// File with the join token. Needed only for the first start.
    #[arg(long, env = "BROKKR_JOIN_TOKEN_FILE")]
    pub join_token_file: Option<PathBuf>,
    /// Kubeconfig of the cluster. Default: the service account of the Pod.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace in which the agent stores its identity and state.
    #[arg(long, env = "BROKKR_NAMESPACE", default_value = NAMESPACE)]
    pub namespace: String,
    /// How long one long poll stays open if nothing changes. The broker answers at once if something does.
    #[arg(long, env = "BROKKR_POLLING_INTERVAL", default_value = "30s", value_parser = humantime::parse_duration)]
    pub polling_interval: Duration,
    /// Watch only these namespaces. Needed for an agent that was installed with `--profile namespaces`.
    #[arg(long, env = "BROKKR_NAMESPACES", value_delimiter = ',')]
    pub namespaces: Vec<String>,
    /// Maximum number of concurrent requests to the API server.
    #[arg(long, env = "BROKKR_IN_FLIGHT", default_value_t = 32)]
    pub in_flight: usize,
    /// Interval between full checks of all objects, in case an event was missed. Jitter is added.
    #[arg(long, env = "BROKKR_SWEEP_INTERVAL", default_value = "6h", value_parser = humantime::parse_duration)]
    pub sweep_interval: Duration,
    /// Objects that controllers of this cluster put into every namespace, such as `ConfigMap/trust-bundle` or
    /// `Secret/pull-secret-*`. They do not keep a namespace that Brokkr created from being deleted with its stack. Those of
    /// Kubernetes, OpenShift and Istio are known.
    #[arg(long, env = "BROKKR_AUTOMATIC_OBJECTS", value_delimiter = ',', value_name = "KIND/NAME")]
    pub automatic_objects: Vec<AutomaticObject>,
    /// How long all workloads of a stack must be ready, without interruption, before the stack counts as healthy. 0s: at once.
    #[arg(long, env = "BROKKR_STABLE_AFTER", default_value = "10s", value_parser = humantime::parse_duration)]
    pub stable_after: Duration,
    /// Maximum intended age of the agent's key, at least one hour. The agent replaces the key after about two
    /// thirds of this time. The key does not expire: if it cannot be replaced, it stays valid.
    #[arg(long, env = "BROKKR_KEY_LIFE", default_value = "90d", value_parser = key_life)]
    pub key_life: Duration,
    /// How long a process that a newer one of this cluster has superseded waits to be ended, before it starts again and takes over.
    #[arg(long, env = "BROKKR_RETURN_AFTER", default_value = "10m", value_parser = humantime::parse_duration)]
    pub return_after: Duration,
    /// How long an upgrade of this agent may take before the former version restores its image.
    #[arg(long, env = "BROKKR_UPGRADE_TIMEOUT", default_value = "10m", value_parser = humantime::parse_duration)]
    pub upgrade_timeout: Duration,
    /// Serve /livez, /readyz and /metrics on this address, such as `0.0.0.0:8781`. Off by default.
    #[arg(long, env = "BROKKR_ADMIN_LISTEN")]
    pub admin_listen: Option<SocketAddr>,
    /// Log in JSON.
    #[arg(long, env = "BROKKR_LOG_JSON")]
    pub log_json: bool,
}

/// Parses the maximum age of a key: at least an hour, because the broker accepts a replaced key for that
/// long.
fn key_life(text: &str) -> Result<Duration, String> {
    let life = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if life < Duration::from_secs(3600) { Err("must be at least one hour".to_owned()) } else { Ok(life) }
}

#[derive(Debug, Args)]
pub struct InstallArguments {
    /// Kubeconfig of an account that may create CustomResourceDefinitions and RBAC objects.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the agent.
    #[arg(long, env = "BROKKR_NAMESPACE", default_value = NAMESPACE)]
    pub namespace: String,
    #[command(flatten)]
    pub rights: Rights,
    /// Print the manifests instead of applying them.
    #[arg(long)]
    pub print: bool,
}

#[derive(Debug, Args)]
pub struct ForgetPositionArguments {
    /// Kubeconfig of the cluster. Default: the service account of the Pod.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the agent.
    #[arg(long, env = "BROKKR_NAMESPACE", default_value = NAMESPACE)]
    pub namespace: String,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_reference_page_of_the_agent_is_current() {
        let introduction = brokkr_reference::made_from("crates/agent/src/args.rs")
            + "# brokkr-agent\n\nThe reconciler, one for each cluster. The objects that `install` creates are explained in \
               [deploy](../../deploy/README.md).\n";
        brokkr_reference::check("agent.md", &brokkr_reference::program(Arguments::command(), &introduction));
    }
}

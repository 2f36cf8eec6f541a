//! What an agent needs in its cluster, as manifests: the files of `deploy/` with this agent's names in them. Pure.
//!
//! They are filled in as text, so that whoever is shown them reads the files' own comments; JSON is what is filled in, which
//! is YAML that needs no indentation.
//!
//! [`rights`] is what `brokkr-agent install` applies: namespace, record kind, account, rights and fence. [`workload`] is the
//! agent itself with its join token, which `brokkr agent join` adds. [`start`] is what an agent leaves in its namespace
//! while it cannot start, for whoever waits for it there.

pub mod rights;
pub mod start;
pub mod workload;

use anyhow::Context as _;
use serde_json::Value;

/// The namespace of Brokkr's own things in a cluster, as the files of `deploy/` name it.
pub const NAMESPACE: &str = "brokkr-system";
/// The account that the agent runs under, and the name of its Deployment.
pub const ACCOUNT: &str = "brokkr-agent";
/// The fence's ConfigMap, in the agent's own namespace.
pub const FENCE: &str = "brokkr-agent-fence";
/// Where the agent's key and ids are, in its own namespace. The agent makes it.
pub const IDENTITY: &str = "brokkr-agent-identity";

/// Whether the fence holds for an account of this name. The agent's own name is not for grants.
#[must_use]
pub fn may_be_acted_as(name: &str) -> bool {
    name != ACCOUNT
        && name.strip_prefix("brokkr-").is_some_and(|rest| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
            !rest.is_empty() && rest.chars().all(plain)
        })
}

/// Stands between objects, and before the first one of a text.
const BETWEEN: &str = "---\n";

fn read(text: &str) -> anyhow::Result<Vec<Value>> {
    serde_saphyr::from_multiple(text).context("read the manifests of this program")
}

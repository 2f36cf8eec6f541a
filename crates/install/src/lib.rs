//! Builds the manifests of an agent from the templates in `deploy/`, without I/O.
//!
//! The templates are filled in as text, so that the output keeps their comments. Values are inserted as JSON, which is
//! valid YAML at any indentation.
//!
//! - [`rights`]: namespace, record kind, service account, roles and fence. `brokkr-agent install` applies them.
//! - [`installed`]: what is installed, and with which flags, for a newer version of the agent.
//! - [`workload`]: the agent's Deployment and join token, which `brokkr agent join` applies in addition.
//! - [`start`]: the ConfigMap in which an agent that cannot start reports the reason.

pub mod installed;
pub mod rights;
pub mod start;
pub mod workload;

use anyhow::Context as _;
use serde_json::Value;

/// The default namespace of the agent, which is the one in the files of `deploy/`.
pub const NAMESPACE: &str = "brokkr-system";
/// The service account that the agent runs under, and the name of its Deployment.
pub const ACCOUNT: &str = "brokkr-agent";
/// The ConfigMap of the fence, in the agent's namespace.
pub const FENCE: &str = "brokkr-agent-fence";
/// The Secret with the agent's key and ids, in its namespace. The agent creates it.
pub const IDENTITY: &str = "brokkr-agent-identity";

/// Returns whether the agent may impersonate a service account of this name: the fence covers only names that
/// start with `brokkr-`. The agent's own account is excluded.
#[must_use]
pub fn may_be_impersonated(name: &str) -> bool {
    name != ACCOUNT
        && name.strip_prefix("brokkr-").is_some_and(|rest| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
            !rest.is_empty() && rest.chars().all(plain)
        })
}

/// Precedes each object.
const DOCUMENT_START: &str = "---\n";

fn read(text: &str) -> anyhow::Result<Vec<Value>> {
    serde_saphyr::from_multiple(text).context("read the built-in manifests")
}

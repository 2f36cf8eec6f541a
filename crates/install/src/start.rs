//! The start-up progress of an agent that cannot start: the failed step and the reason, written to its
//! namespace.
//!
//! It is a ConfigMap, because the user who installs an agent can read ConfigMaps in every cluster, even where Pod logs are
//! not accessible. It exists only while the agent cannot start.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::FENCE;

/// The name of the ConfigMap, in the agent's namespace.
pub const CONFIG_MAP: &str = "brokkr-agent-start";

/// The steps of start-up, in order.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display, strum::EnumString, strum::EnumIter,
)]
#[strum(serialize_all = "snake_case")]
pub enum Hop {
    /// The agent's service account has the permissions it needs in its cluster.
    Rights,
    /// The broker's host name resolves.
    Dns,
    /// The proxy lets the agent through.
    Proxy,
    /// The broker's address accepts connections.
    Connect,
    /// The broker's certificate is signed by a CA that the agent trusts.
    Tls,
    /// The certificate is valid at the agent's current time.
    Clock,
    /// The response comes from a broker.
    Answer,
    /// The broker accepts the join token, or the key of an agent that has joined before.
    Token,
    /// The fence is installed, and covers this agent.
    Fence,
}

/// The step at which start-up is stuck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub hop: Hop,
    /// The error, in one line.
    pub reason: String,
    pub at: Timestamp,
}

impl Progress {
    /// Returns the data of the ConfigMap.
    #[must_use]
    pub fn data(&self) -> BTreeMap<String, String> {
        [("hop", self.hop.to_string()), ("reason", self.reason.clone()), ("at", self.at.to_string())]
            .into_iter()
            .map(|(field, value)| (field.to_owned(), value))
            .collect()
    }

    /// Parses the data of the ConfigMap; none if no agent wrote it.
    #[must_use]
    pub fn from_data(data: &BTreeMap<String, String>) -> Option<Self> {
        Some(Self {
            hop: data.get("hop")?.parse().ok()?,
            reason: data.get("reason")?.clone(),
            at: data.get("at")?.parse().ok()?,
        })
    }
}

impl Hop {
    /// Returns whether waiting may help: the network and the broker can recover, but a refusal is permanent.
    #[must_use]
    pub fn may_recover(self) -> bool {
        !matches!(self, Self::Tls | Self::Token)
    }

    /// Returns the next step for the person who installed the agent into this namespace. `reinstall` says how
    /// to install it again.
    #[must_use]
    pub fn advice(self, namespace: &str, reinstall: &str) -> String {
        match self {
            Self::Rights => format!("{reinstall}: its ServiceAccount or roles differ from the installation"),
            Self::Dns => "set --broker-url to the URL of the broker as seen from the cluster".to_owned(),
            Self::Proxy => "check --proxy (http://USER:PASSWORD@HOST:PORT if the proxy requires a password), or omit it if the \
                            broker is reachable directly"
                .to_owned(),
            Self::Connect => {
                "check the firewall of the cluster; the agent must be able to connect to the broker".to_owned()
            }
            Self::Tls => "set --ca-file to the CA of the broker's certificate, or to the CA of a proxy that terminates TLS"
                .to_owned(),
            Self::Clock => {
                "set the clock of the cluster's nodes; if it is correct, renew the broker's certificate".to_owned()
            }
            Self::Answer => {
                "check the URL; something other than the broker responds there".to_owned()
            }
            Self::Token => format!("{reinstall}; it creates a new token"),
            Self::Fence => format!(
                "Brokkr needs Kubernetes 1.30 or newer; see `kubectl -n {namespace} get configmap {FENCE} -o yaml`"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator as _;

    use super::*;

    #[test]
    fn progress_is_the_same_after_it_was_written_and_read() {
        for hop in Hop::iter() {
            let progress = Progress { hop, reason: "because".to_owned(), at: Timestamp::UNIX_EPOCH };
            assert_eq!(Progress::from_data(&progress.data()), Some(progress));
            assert!(!hop.advice("elsewhere", "again").contains("brokkr-system"));
        }
        assert_eq!(Progress::from_data(&BTreeMap::new()), None);
    }
}

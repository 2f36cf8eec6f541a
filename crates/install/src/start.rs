//! What an agent that cannot start leaves in its namespace: how far it came, and why not further.
//!
//! It is a ConfigMap, since whoever installs an agent can read that in every cluster, also where Pods' logs are out of
//! reach. It is there only while the agent cannot start.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::FENCE;

/// Where it is left, in the agent's own namespace.
pub const CONFIG_MAP: &str = "brokkr-agent-start";

/// The hops of a start in their order.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display, strum::EnumString, strum::EnumIter,
)]
#[strum(serialize_all = "snake_case")]
pub enum Hop {
    /// The agent's account may do what it needs in its own cluster.
    Rights,
    /// The broker's name has an address.
    Dns,
    /// The proxy lets the agent through.
    Proxy,
    /// Something listens at the broker's address.
    Connect,
    /// Its certificate is from an authority that the agent trusts.
    Tls,
    /// That certificate is valid by the clock of the agent.
    Clock,
    /// What answers is a broker.
    Answer,
    /// The broker takes the join token, or the key that the agent has had.
    Token,
    /// The fence stands, and is this agent's.
    Fence,
}

/// Where a start stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub hop: Hop,
    /// Why it goes no further, in one line.
    pub reason: String,
    pub at: Timestamp,
}

impl Progress {
    /// As the fields of the ConfigMap.
    #[must_use]
    pub fn data(&self) -> BTreeMap<String, String> {
        [("hop", self.hop.to_string()), ("reason", self.reason.clone()), ("at", self.at.to_string())]
            .into_iter()
            .map(|(field, value)| (field.to_owned(), value))
            .collect()
    }

    /// Returns none if no agent wrote the data.
    #[must_use]
    pub fn of(data: &BTreeMap<String, String>) -> Option<Self> {
        Some(Self {
            hop: data.get("hop")?.parse().ok()?,
            reason: data.get("reason")?.clone(),
            at: data.get("at")?.parse().ok()?,
        })
    }
}

impl Hop {
    /// Returns whether waiting may help: the network and the broker can recover, but a refusal stays.
    #[must_use]
    pub fn may_pass(self) -> bool {
        !matches!(self, Self::Tls | Self::Token)
    }

    /// Returns the next step for the person who installed the agent into this namespace. `again` is how to install it again.
    #[must_use]
    pub fn next(self, namespace: &str, again: &str) -> String {
        match self {
            Self::Rights => format!("{again}: its ServiceAccount or roles differ from the installation"),
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
            Self::Token => format!("{again}; it creates a new token"),
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
    fn what_an_agent_writes_is_what_is_read() {
        for hop in Hop::iter() {
            let progress = Progress { hop, reason: "because".to_owned(), at: Timestamp::UNIX_EPOCH };
            assert_eq!(Progress::of(&progress.data()), Some(progress));
            assert!(!hop.next("elsewhere", "again").contains("brokkr-system"));
        }
        assert_eq!(Progress::of(&BTreeMap::new()), None);
    }
}

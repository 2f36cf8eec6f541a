//! Registers the agent's id, once, with its fence: the admission policies that limit what the agent may write
//! (`deploy/fence.yaml`, `deploy/fence-agent.yaml`). Also checks that the fence is active.
//!
//! The fence has to know which agent an account belongs to, and an agent has no id before it joins. So the agent writes
//! its id into the fence's ConfigMap; the fence allows exactly one such write. Whether the fence is active is tested with
//! dry runs, so that nothing is written to a cluster without a fence.

use anyhow::{Context as _, bail, ensure};
use brokkr_api::AgentId;
use brokkr_install::{ACCOUNT, FENCE};
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::ownership::AGENT_LABEL;

const AGENT_ID: &str = "agent-id";

/// A write that tests the fence, as a dry run in the agent's namespace.
#[derive(Clone, Copy, Debug)]
pub enum Probe<'a> {
    /// A ConfigMap with the label of this agent, or without one: `brokkr-fence` and `brokkr-fence-agent`.
    Label(Option<&'a str>),
    /// An object of a stack in the agent's namespace: `brokkr-fence-home`.
    Home(&'a str),
    /// A token of the agent's account, which not even the agent itself may create: `brokkr-fence`.
    Token,
}

impl Probe<'_> {
    /// Returns the plural and the object.
    fn object(self) -> (&'static str, Value) {
        let map = |name: &str, label: Option<&str>| {
            let labels = label.map(|label| json!({AGENT_LABEL: label}));
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}})
        };
        match self {
            Self::Label(label) => ("configmaps", map("brokkr-agent-fence-probe", label)),
            Self::Home(label) => ("configmaps", map("home-probe", Some(label))),
            Self::Token => {
                let account = json!({"kubernetes.io/service-account.name": ACCOUNT});
                let metadata = json!({"name": "brokkr-agent-token-probe", "annotations": account});
                let kind = "kubernetes.io/service-account-token";
                ("secrets", json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind}))
            }
        }
    }
}

/// Registers this agent, and fails unless the fence is active and knows it.
pub async fn ensure_active(client: &Client, namespace: &str, agent: AgentId) -> anyhow::Result<()> {
    register_agent(client, namespace, agent).await?;
    let id = agent.to_string();
    for forbidden in [Probe::Label(None), Probe::Home(&id), Probe::Token] {
        ensure!(
            probe(client, namespace, None, forbidden).await?.is_refused(),
            "Brokkr's admission policies are not active in this cluster, so the agent writes nothing; run `brokkr-agent \
             install` again"
        );
    }
    if let Verdict::Refused(message) = probe(client, namespace, None, Probe::Label(Some(&id))).await? {
        bail!("Brokkr's admission policy does not accept this agent yet: {message}");
    }
    Ok(())
}

async fn register_agent(client: &Client, namespace: &str, agent: AgentId) -> anyhow::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = maps.get_opt(FENCE).await.context("read the ConfigMap of the admission policy")?;
    let map = map.with_context(|| {
        format!("there is no ConfigMap {namespace}/{FENCE}; run `brokkr-agent install` again")
    })?;
    match map.data.unwrap_or_default().get(AGENT_ID).map(String::as_str).unwrap_or_default() {
        "" => {
            let patch = json!({"data": {AGENT_ID: agent.to_string()}});
            maps.patch(FENCE, &PatchParams::default(), &Patch::Merge(patch))
                .await
                .context("register this agent's id with the admission policy")?;
            Ok(())
        }
        known if known == agent.to_string() => Ok(()),
        known => bail!(
            "the admission policy in namespace {namespace} is for agent {known}, but this is agent {agent}. If the agent \
             joined again on purpose, run as an administrator: kubectl -n {namespace} patch configmap {FENCE} --type json \
             -p '[{{\"op\": \"remove\", \"path\": \"/data/{AGENT_ID}\"}}]'"
        ),
    }
}

/// Whether the API server would accept a write.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    /// With the message of the fence.
    Refused(String),
}

impl Verdict {
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}

/// Tests with a dry run, as this client or as another user, whether a write would be accepted.
pub async fn probe(
    client: &Client,
    namespace: &str,
    user: Option<&str>,
    probe: Probe<'_>,
) -> anyhow::Result<Verdict> {
    let (plural, object) = probe.object();
    let mut request = Request::post(format!("/api/v1/namespaces/{namespace}/{plural}?dryRun=All"))
        .header(http::header::CONTENT_TYPE, "application/json");
    if let Some(user) = user {
        request = request.header("Impersonate-User", user);
    }
    let request = request.body(object.to_string().into_bytes())?;
    match client.request::<Value>(request).await {
        Ok(_) => Ok(Verdict::Passed),
        Err(kube::Error::Api(status)) if status.code == 422 => match refusal_message(&status.message) {
            Some(words) => Ok(Verdict::Refused(words.to_owned())),
            None => Err(kube::Error::Api(status)).context("test the admission policy"),
        },
        Err(error) => Err(error).context("test the admission policy"),
    }
}

/// Returns the message of the fence, if a refusal comes from it.
#[must_use]
pub fn refusal_message(message: &str) -> Option<&str> {
    let words = message.split_once("ValidatingAdmissionPolicy 'brokkr-fence")?.1;
    Some(words.split_once("denied request: ").map_or(words, |(_, words)| words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_of_the_fence_are_recognised() {
        let ours = "configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'brokkr-fence-agent' with binding \
                    'brokkr-fence-agent.brokkr-system' denied request: this object belongs to agent 7";
        assert_eq!(refusal_message(ours), Some("this object belongs to agent 7"));
        let theirs = "configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'images' with binding 'images' denied \
                      request: no";
        assert_eq!(refusal_message(theirs), None);
    }
}

//! The agent's Deployment, and the Secret with its join token.

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use url::Url;

use crate::rights::{Profile, Rights};
use crate::{DOCUMENT_START, NAMESPACE, read};

/// The image of this version, without a registry.
pub const IMAGE: &str = concat!("brokkr-agent:", env!("CARGO_PKG_VERSION"));
/// Selects the agent's Pods.
pub const SELECTOR: &str = "app.kubernetes.io/name=brokkr-agent";
/// Where the Secret is mounted.
const MOUNT_PATH: &str = "/etc/brokkr/join";
/// The Secret in `deploy/workload.yaml`.
const SECRET: &str = "brokkr-agent-join";
const PROXY: &str = "proxy";
/// Text in the template that is replaced, or that the inserted text follows.
const NO_SECRET: &str = "stringData: {}\n";
const NO_IMAGE: &str = "        image: brokkr-agent\n";
const TEMPLATE: &str = "  template:\n    metadata:\n";
const LAST_VARIABLE: &str = "          valueFrom: {fieldRef: {fieldPath: metadata.namespace}}\n";

/// How an agent connects to its broker and joins.
#[derive(Debug)]
pub struct Joining<'a> {
    pub image: &'a str,
    /// The broker's address as the cluster sees it.
    pub broker: &'a Url,
    pub token: &'a SecretString,
    /// The id of the token: a new one restarts the agent.
    pub token_id: &'a str,
    /// The CA certificates (PEM) that the agent trusts; none for those of its image.
    pub ca_certificates: Option<&'a str>,
    /// The proxy through which the agent connects to the broker.
    pub proxy: Option<&'a Url>,
}

/// Returns the objects that are applied after the [rights](crate::rights::manifests).
pub fn manifests(joining: &Joining<'_>, rights: &Rights, namespace: &str) -> anyhow::Result<Vec<Value>> {
    read(&text(joining, rights, namespace))
}

/// Returns the same objects as YAML with the comments of `deploy/workload.yaml`.
#[must_use]
pub fn text(joining: &Joining<'_>, rights: &Rights, namespace: &str) -> String {
    let token = Some(("token", joining.token.expose_secret()));
    let ca_certificates = joining.ca_certificates.map(|ca_certificates| ("ca.crt", ca_certificates));
    let proxy = joining.proxy.map(|proxy| (PROXY, proxy.as_str()));
    let secret: Vec<String> =
        [token, ca_certificates, proxy].into_iter().flatten().map(|(key, text)| entry(key, text)).collect();
    let annotations = json!({"brokkr.io/join-token": joining.token_id});
    let variables: Vec<String> =
        environment(joining, rights).iter().map(|variable| format!("        - {variable}\n")).collect();
    let text = include_str!("../../../deploy/workload.yaml")
        .replace(NAMESPACE, namespace)
        .replace(NO_SECRET, &format!("stringData:\n{}", secret.concat()))
        .replace(TEMPLATE, &format!("{TEMPLATE}      annotations: {annotations}\n"))
        .replace(NO_IMAGE, &format!("        image: {}\n", json!(joining.image)))
        .replace(LAST_VARIABLE, &format!("{LAST_VARIABLE}{}", variables.concat()));
    format!("{DOCUMENT_START}{text}")
}

/// Formats one entry of the Secret. Line breaks are kept, because a terminal may truncate a long pasted line.
fn entry(key: &str, text: &str) -> String {
    if !text.contains('\n') || text.starts_with(char::is_whitespace) {
        return format!("  {key}: {}\n", json!(text));
    }
    let end = if text.ends_with('\n') { "" } else { "-" };
    let lines: Vec<String> = text.lines().map(|line| format!("    {line}\n")).collect();
    format!("  {key}: |{end}\n{}", lines.concat())
}

fn environment(joining: &Joining<'_>, rights: &Rights) -> Vec<Value> {
    let plain = |name: &str, value: String| json!({"name": name, "value": value});
    let mut variables = vec![plain("BROKKR_BROKER_URL", joining.broker.to_string())];
    if joining.ca_certificates.is_some() {
        variables.push(plain("BROKKR_CA_FILE", format!("{MOUNT_PATH}/ca.crt")));
    }
    if rights.profile == Profile::Namespaces {
        variables.push(plain("BROKKR_NAMESPACES", rights.target_namespace.join(",")));
    }
    if joining.proxy.is_some() {
        // It may contain a password, and more users can read Deployments than Secrets.
        let secret = json!({"secretKeyRef": {"name": SECRET, "key": PROXY}});
        variables.push(json!({"name": "HTTPS_PROXY", "valueFrom": secret}));
        // The agent reaches the API server directly.
        variables.push(plain("NO_PROXY", "kubernetes.default.svc,.svc,.cluster.local".to_owned()));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(profile: Profile) -> Rights {
        Rights {
            profile,
            target_namespace: vec!["a".into(), "b".into()],
            kinds: vec![],
            impersonate: vec![],
            allow_role: vec![],
            allow_upgrade: None,
        }
    }

    fn manifests_with(ca_certificates: Option<&str>, profile: Profile) -> Vec<Value> {
        let (broker, proxy) = (
            Url::parse("https://brokkr.example/").unwrap(),
            Url::parse("http://me:mine@proxy:3128").unwrap(),
        );
        let joining = Joining {
            image: "registry.example/brokkr-agent:1",
            broker: &broker,
            token: &SecretString::from("bkj_secret"),
            token_id: "7",
            ca_certificates,
            proxy: Some(&proxy),
        };
        manifests(&joining, &rights(profile), "elsewhere").unwrap()
    }

    fn variable(deployment: &Value, name: &str) -> Option<String> {
        let variables = &deployment["spec"]["template"]["spec"]["containers"][0]["env"];
        let found = variables.as_array()?.iter().find(|variable| variable["name"] == name)?;
        Some(found["value"].as_str()?.to_owned())
    }

    #[test]
    fn the_agent_gets_the_address_and_ca_of_its_broker() {
        let objects = manifests_with(Some("-----BEGIN"), Profile::Namespaces);
        let [secret, deployment] = objects.as_slice() else { panic!("{objects:?}") };
        let proxy = "http://me:mine@proxy:3128/";
        assert_eq!(
            secret["stringData"],
            json!({"token": "bkj_secret", "ca.crt": "-----BEGIN", "proxy": proxy})
        );
        assert_eq!(secret["metadata"]["namespace"], "elsewhere");
        let template = &deployment["spec"]["template"];
        assert_eq!(template["metadata"]["annotations"], json!({"brokkr.io/join-token": "7"}));
        assert_eq!(template["spec"]["containers"][0]["image"], "registry.example/brokkr-agent:1");
        let value_of = |name| variable(deployment, name);
        assert_eq!(value_of("BROKKR_BROKER_URL").as_deref(), Some("https://brokkr.example/"));
        assert_eq!(value_of("BROKKR_CA_FILE").as_deref(), Some("/etc/brokkr/join/ca.crt"));
        assert_eq!(value_of("BROKKR_NAMESPACES").as_deref(), Some("a,b"));
        for secret in ["bkj_secret", "mine"] {
            assert!(!deployment.to_string().contains(secret), "only the Secret contains it");
        }
    }

    #[test]
    fn ca_certificates_are_kept_byte_for_byte() {
        for text in
            ["-----BEGIN\nAAA\n-----END\n", "one\n\ntwo\n# three: {four}", " indented\nnot\n", "'\"\\"]
        {
            let objects = manifests_with(Some(text), Profile::Apps);
            assert_eq!(objects[0]["stringData"]["ca.crt"], text);
        }
    }

    #[test]
    fn unset_options_are_omitted() {
        let objects = manifests_with(None, Profile::Apps);
        assert_eq!(objects[0]["stringData"].get("ca.crt"), None);
        assert_eq!(variable(&objects[1], "BROKKR_CA_FILE"), None);
        assert_eq!(variable(&objects[1], "BROKKR_NAMESPACES"), None);
    }
}

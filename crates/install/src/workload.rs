//! The agent itself: its Deployment, and the Secret that it joins with.

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use url::Url;

use crate::rights::{Profile, Rights};
use crate::{BETWEEN, NAMESPACE, read};

/// The image of this version, wherever the cluster's nodes pull it from.
pub const IMAGE: &str = concat!("brokkr-agent:", env!("CARGO_PKG_VERSION"));
/// The labels that its Pods have.
pub const SELECTOR: &str = "app.kubernetes.io/name=brokkr-agent";
const FOLDER: &str = "/etc/brokkr/join";
/// What it joins with, as `deploy/workload.yaml` names it.
const SECRET: &str = "brokkr-agent-join";
const PROXY: &str = "proxy";
/// What is filled in, or stands before it, as the file has it.
const NO_SECRET: &str = "stringData: {}\n";
const NO_IMAGE: &str = "        image: brokkr-agent\n";
const TEMPLATE: &str = "  template:\n    metadata:\n";
const LAST_VARIABLE: &str = "          valueFrom: {fieldRef: {fieldPath: metadata.namespace}}\n";

/// How an agent finds its broker and gets in.
#[derive(Debug)]
pub struct Joining<'a> {
    pub image: &'a str,
    /// The broker's address as the cluster sees it.
    pub broker: &'a Url,
    pub token: &'a SecretString,
    /// Which token it is: another one starts the agent anew.
    pub token_id: &'a str,
    /// The only authorities (PEM) that the agent will trust; none for those of its image.
    pub authorities: Option<&'a str>,
    /// The proxy on the way to the broker.
    pub proxy: Option<&'a Url>,
}

/// What is applied after the [rights](crate::rights::manifests).
pub fn manifests(joining: &Joining<'_>, rights: &Rights, home: &str) -> anyhow::Result<Vec<Value>> {
    read(&text(joining, rights, home))
}

/// The same as `deploy/workload.yaml` says it, comments and all.
#[must_use]
pub fn text(joining: &Joining<'_>, rights: &Rights, home: &str) -> String {
    let token = Some(("token", joining.token.expose_secret()));
    let authorities = joining.authorities.map(|authorities| ("ca.crt", authorities));
    let proxy = joining.proxy.map(|proxy| (PROXY, proxy.as_str()));
    let secret: Vec<String> =
        [token, authorities, proxy].into_iter().flatten().map(|(key, text)| entry(key, text)).collect();
    let annotations = json!({"brokkr.io/join-token": joining.token_id});
    let variables: Vec<String> =
        environment(joining, rights).iter().map(|variable| format!("        - {variable}\n")).collect();
    let text = include_str!("../../../deploy/workload.yaml")
        .replace(NAMESPACE, home)
        .replace(NO_SECRET, &format!("stringData:\n{}", secret.concat()))
        .replace(TEMPLATE, &format!("{TEMPLATE}      annotations: {annotations}\n"))
        .replace(NO_IMAGE, &format!("        image: {}\n", json!(joining.image)))
        .replace(LAST_VARIABLE, &format!("{LAST_VARIABLE}{}", variables.concat()));
    format!("{BETWEEN}{text}")
}

/// One entry of the Secret. Lines stay lines: a terminal may cut what is pasted as one long one.
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
    if joining.authorities.is_some() {
        variables.push(plain("BROKKR_CA_FILE", format!("{FOLDER}/ca.crt")));
    }
    if rights.profile == Profile::Namespaces {
        variables.push(plain("BROKKR_NAMESPACES", rights.target_namespace.join(",")));
    }
    if joining.proxy.is_some() {
        // It may hold a password, and many may read Deployments.
        let secret = json!({"secretKeyRef": {"name": SECRET, "key": PROXY}});
        variables.push(json!({"name": "HTTPS_PROXY", "valueFrom": secret}));
        // The API server is next door.
        variables.push(plain("NO_PROXY", "kubernetes.default.svc,.svc,.cluster.local".to_owned()));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(profile: Profile) -> Rights {
        Rights { profile, target_namespace: vec!["a".into(), "b".into()], kinds: vec![], impersonate: vec![] }
    }

    fn made(authorities: Option<&str>, profile: Profile) -> Vec<Value> {
        let (broker, proxy) = (
            Url::parse("https://brokkr.example/").unwrap(),
            Url::parse("http://me:mine@proxy:3128").unwrap(),
        );
        let joining = Joining {
            image: "registry.example/brokkr-agent:1",
            broker: &broker,
            token: &SecretString::from("bkj_secret"),
            token_id: "7",
            authorities,
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
    fn the_agent_is_told_where_its_broker_is_and_whom_to_trust() {
        let objects = made(Some("-----BEGIN"), Profile::Namespaces);
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
        let told = |name| variable(deployment, name);
        assert_eq!(told("BROKKR_BROKER_URL").as_deref(), Some("https://brokkr.example/"));
        assert_eq!(told("BROKKR_CA_FILE").as_deref(), Some("/etc/brokkr/join/ca.crt"));
        assert_eq!(told("BROKKR_NAMESPACES").as_deref(), Some("a,b"));
        for secret in ["bkj_secret", "mine"] {
            assert!(!deployment.to_string().contains(secret), "it is in the Secret alone");
        }
    }

    #[test]
    fn authorities_are_kept_to_the_letter() {
        for text in
            ["-----BEGIN\nAAA\n-----END\n", "one\n\ntwo\n# three: {four}", " indented\nnot\n", "'\"\\"]
        {
            let objects = made(Some(text), Profile::Cluster);
            assert_eq!(objects[0]["stringData"]["ca.crt"], text);
        }
    }

    #[test]
    fn what_is_not_needed_is_not_said() {
        let objects = made(None, Profile::Cluster);
        assert_eq!(objects[0]["stringData"].get("ca.crt"), None);
        assert_eq!(variable(&objects[1], "BROKKR_CA_FILE"), None);
        assert_eq!(variable(&objects[1], "BROKKR_NAMESPACES"), None);
    }
}

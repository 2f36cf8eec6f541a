//! The agent itself: its Deployment, and the Secret that it joins with.

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use url::Url;

use crate::rights::{Profile, Rights};
use crate::{NAMESPACE, read};

/// The image of this version, wherever the cluster's nodes pull it from.
pub const IMAGE: &str = concat!("brokkr-agent:", env!("CARGO_PKG_VERSION"));
/// The labels that its Pods have.
pub const SELECTOR: &str = "app.kubernetes.io/name=brokkr-agent";
const FOLDER: &str = "/etc/brokkr/join";

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
    let mut objects = read(&include_str!("../../../deploy/workload.yaml").replace(NAMESPACE, home))?;
    for object in &mut objects {
        match object["kind"].as_str() {
            Some("Secret") => {
                object["stringData"]["token"] = json!(joining.token.expose_secret());
                if let Some(authorities) = joining.authorities {
                    object["stringData"]["ca.crt"] = json!(authorities);
                }
            }
            Some("Deployment") => {
                let template = &mut object["spec"]["template"];
                template["metadata"]["annotations"] = json!({"brokkr.io/join-token": joining.token_id});
                let container = &mut template["spec"]["containers"][0];
                container["image"] = json!(joining.image);
                if let Some(variables) = container["env"].as_array_mut() {
                    variables.extend(environment(joining, rights));
                }
            }
            _ => {}
        }
    }
    Ok(objects)
}

fn environment(joining: &Joining<'_>, rights: &Rights) -> Vec<Value> {
    let mut variables = vec![("BROKKR_BROKER_URL", joining.broker.to_string())];
    if joining.authorities.is_some() {
        variables.push(("BROKKR_CA_FILE", format!("{FOLDER}/ca.crt")));
    }
    if rights.profile == Profile::Namespaces {
        variables.push(("BROKKR_NAMESPACES", rights.target_namespace.join(",")));
    }
    if let Some(proxy) = joining.proxy {
        variables.push(("HTTPS_PROXY", proxy.to_string()));
        // The API server is next door.
        variables.push(("NO_PROXY", "kubernetes.default.svc,.svc,.cluster.local".to_owned()));
    }
    variables.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(profile: Profile) -> Rights {
        Rights { profile, target_namespace: vec!["a".into(), "b".into()], kinds: vec![], impersonate: vec![] }
    }

    fn made(authorities: Option<&str>, profile: Profile) -> Vec<Value> {
        let (broker, proxy) =
            (Url::parse("https://brokkr.example/").unwrap(), Url::parse("http://proxy:3128").unwrap());
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
        assert_eq!(secret["stringData"], json!({"token": "bkj_secret", "ca.crt": "-----BEGIN"}));
        assert_eq!(secret["metadata"]["namespace"], "elsewhere");
        let told = |name| variable(deployment, name);
        assert_eq!(told("BROKKR_BROKER_URL").as_deref(), Some("https://brokkr.example/"));
        assert_eq!(told("BROKKR_CA_FILE").as_deref(), Some("/etc/brokkr/join/ca.crt"));
        assert_eq!(told("BROKKR_NAMESPACES").as_deref(), Some("a,b"));
        assert_eq!(told("HTTPS_PROXY").as_deref(), Some("http://proxy:3128/"));
        assert!(!deployment.to_string().contains("bkj_secret"), "the token is in the Secret alone");
    }

    #[test]
    fn what_is_not_needed_is_not_said() {
        let objects = made(None, Profile::Cluster);
        assert_eq!(objects[0]["stringData"], json!({"token": "bkj_secret"}));
        assert_eq!(variable(&objects[1], "BROKKR_CA_FILE"), None);
        assert_eq!(variable(&objects[1], "BROKKR_NAMESPACES"), None);
    }
}

//! The objects that must exist before the agent starts: namespace, record CRD, ServiceAccount, permissions and admission
//! policy.

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use crate::{DOCUMENT_START, NAMESPACE, may_be_impersonated, read};

/// Label of the roles that depend on flags; the value is the namespace of the agent.
pub const RIGHTS_OF: &str = "brokkr.io/rights-of";

/// Flags for the permissions of an agent, shared by all commands that install one.
#[derive(Clone, Debug, clap::Args)]
pub struct Rights {
    /// Scope of the agent's own role
    #[arg(long, value_enum, default_value_t = Profile::Cluster)]
    pub profile: Profile,
    /// Allow stacks in these namespaces, which must exist (with `--profile namespaces`)
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',', required_if_eq("profile", "namespaces"))]
    pub target_namespace: Vec<String>,
    /// Allow stacks to contain this additional kind, such as `certificates.cert-manager.io` or `*.cert-manager.io`
    #[arg(long = "kind", value_name = "PLURAL.GROUP", value_delimiter = ',')]
    pub kinds: Vec<String>,
    /// Allow the agent to impersonate this ServiceAccount (`NAMESPACE/brokkr-NAME`), so that grants can
    /// name it
    #[arg(long, value_name = "ACCOUNT", value_delimiter = ',')]
    pub impersonate: Vec<String>,
}

/// The scope of the agent's own role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// The whole cluster
    Cluster,
    /// Only the listed namespaces
    Namespaces,
}

/// Placeholder in the files for a listed namespace, or for the namespace of an account.
const TARGET: &str = "target-namespace";
/// Placeholder in the files for an account that the agent may impersonate.
const IMPERSONATED: &str = "brokkr-account";
/// The parts of the files that are filled in.
const NO_ACCOUNTS: &str = "  accounts: \"\"\n";
const NO_RULES: &str = "rules: []\n";
const VERBS: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];

/// Returns everything that is installed, in order.
pub fn manifests(arguments: &Rights, namespace: &str) -> anyhow::Result<Vec<Value>> {
    read(&text(arguments, namespace)?)
}

/// Returns the same as text with the comments of `deploy/`, for people who read it before they apply it.
pub fn text(arguments: &Rights, namespace: &str) -> anyhow::Result<String> {
    let accounts = accounts(&arguments.impersonate)?;
    let users: Vec<String> = accounts
        .iter()
        .map(|(namespace, name)| format!("system:serviceaccount:{namespace}:{name}"))
        .collect();
    let with_namespace = |file: &str| file.replace(NAMESPACE, namespace);
    let mut files = vec![
        with_namespace(include_str!("../../../deploy/namespace.yaml")),
        with_namespace(include_str!("../../../deploy/record.yaml")),
        // Before the roles, so that the agent can never write without the fence.
        with_namespace(include_str!("../../../deploy/fence.yaml"))
            .replace(NO_ACCOUNTS, &accounts_line(&users)),
        with_namespace(include_str!("../../../deploy/account.yaml")),
    ];
    match arguments.profile {
        Profile::Cluster => files.push(with_namespace(include_str!("../../../deploy/role-cluster.yaml"))),
        Profile::Namespaces => {
            files.push(with_namespace(include_str!("../../../deploy/role-namespaces.yaml")));
            let target = with_namespace(include_str!("../../../deploy/target-namespace.yaml"));
            files
                .extend(arguments.target_namespace.iter().map(|namespace| target.replace(TARGET, namespace)));
        }
    }
    let role = with_namespace(include_str!("../../../deploy/impersonate.yaml"));
    let impersonate =
        |(namespace, name): &(String, String)| role.replace(TARGET, namespace).replace(IMPERSONATED, name);
    files.extend(accounts.iter().map(impersonate));
    files.extend(additional_kinds(arguments, &with_namespace(include_str!("../../../deploy/kinds.yaml")))?);
    Ok(["", &files.join(DOCUMENT_START)].join(DOCUMENT_START))
}

fn accounts_line(users: &[String]) -> String {
    format!("  accounts: {}\n", json!(users.join(" ")))
}

/// Parses `namespace/brokkr-name`. The admission policy restricts only accounts with such names, so no others are allowed.
fn accounts(arguments: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    arguments
        .iter()
        .map(|account| {
            let (namespace, name) = account
                .split_once('/')
                .with_context(|| format!("--impersonate {account}: use NAMESPACE/brokkr-NAME"))?;
            ensure!(
                may_be_impersonated(name),
                "--impersonate {account}: Brokkr's admission policy restricts only accounts named brokkr-…, so an agent may \
                 not impersonate others"
            );
            Ok((namespace.to_owned(), name.to_owned()))
        })
        .collect()
}

/// Fills in `file`, which has a role and two bindings; the profile decides which binding is used.
fn additional_kinds(arguments: &Rights, file: &str) -> anyhow::Result<Vec<String>> {
    let mut rules = vec!["rules:".to_owned()];
    for kind in &arguments.kinds {
        let (plural, group) =
            kind.split_once('.').with_context(|| format!("--kind {kind}: use PLURAL.GROUP"))?;
        let guarded = group == "admissionregistration.k8s.io" && !plural.ends_with("webhookconfigurations");
        ensure!(
            !guarded && group != "brokkr.io" && group != "authentication.k8s.io" && !plural.contains('/'),
            "--kind {kind}: the agent cannot get permissions on its own admission policy and records, on tokens, or on \
             subresources"
        );
        let rule = json!({"apiGroups": [group], "resources": [plural], "verbs": VERBS});
        rules.push(format!("- {rule}"));
    }
    let rules = rules.join("\n") + "\n";
    let mut parts = file.split(DOCUMENT_START);
    let (Some(role), Some(cluster_binding), Some(namespace_binding)) =
        (parts.next(), parts.next(), parts.next())
    else {
        bail!("deploy/kinds.yaml must contain a role and two bindings");
    };
    Ok(match arguments.profile {
        _ if arguments.kinds.is_empty() => Vec::new(),
        Profile::Cluster => vec![role.replace(NO_RULES, &rules), cluster_binding.to_owned()],
        Profile::Namespaces => {
            let bindings =
                arguments.target_namespace.iter().map(|target| namespace_binding.replace(TARGET, target));
            [role.replace(NO_RULES, &rules)].into_iter().chain(bindings).collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        rights: Rights,
    }

    fn install(arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
        in_namespace(NAMESPACE, arguments)
    }

    fn in_namespace(namespace: &str, arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
        manifests(&Line::try_parse_from(["install"].iter().chain(arguments))?.rights, namespace)
    }

    fn rules(objects: &[Value]) -> Vec<Value> {
        objects.iter().filter_map(|object| object["rules"].as_array()).flatten().cloned().collect()
    }

    fn has(rule: &Value, field: &str, value: &str) -> bool {
        rule[field].as_array().is_some_and(|values| values.iter().any(|found| found == value))
    }

    #[test]
    fn no_profile_grants_all_verbs_or_privilege_escalation() {
        let cluster = install(&["--kind", "*.example.com", "--impersonate", "shop/brokkr-shop"]).unwrap();
        let listed = install(&["--profile", "namespaces", "--target-namespace", "a,b"]).unwrap();
        for rule in rules(&cluster).into_iter().chain(rules(&listed)) {
            for verb in ["*", "escalate", "bind", "deletecollection", "approve", "sign"] {
                assert!(!has(&rule, "verbs", verb), "{rule}");
            }
            if has(&rule, "verbs", "impersonate") {
                assert_eq!(rule["resourceNames"], json!(["brokkr-shop"]));
            }
            // `*` includes subresources, so only `list` is allowed on all groups: no subresource can be listed.
            if has(&rule, "apiGroups", "*") {
                assert_eq!(rule["verbs"], json!(["list"]));
            }
            let resources = rule["resources"].as_array().unwrap();
            assert!(!resources.iter().any(|name| name.as_str().unwrap().contains('/')), "{rule}");
            assert!(!has(&rule, "apiGroups", "admissionregistration.k8s.io"), "{rule}");
        }
    }

    #[test]
    fn the_namespaces_profile_grants_cluster_wide_rights_only_on_records() {
        let objects =
            install(&["--profile", "namespaces", "--target-namespace", "a,b", "--kind", "w.example.com"]);
        let bindings: Vec<String> = objects
            .unwrap()
            .iter()
            .filter(|object| object["kind"].as_str().unwrap().ends_with("Binding"))
            .map(|object| {
                let metadata = &object["metadata"];
                let namespace = metadata["namespace"].as_str().unwrap_or("*");
                format!("{namespace} {}", metadata["name"].as_str().unwrap())
            })
            .collect();
        assert_eq!(
            bindings,
            [
                "* brokkr-fence",
                "* brokkr-fence-agent.brokkr-system",
                "brokkr-system brokkr-agent",
                "* brokkr-agent-records.brokkr-system",
                "a brokkr-agent.brokkr-system",
                "b brokkr-agent.brokkr-system",
                "a brokkr-agent-kinds.brokkr-system",
                "b brokkr-agent-kinds.brokkr-system",
            ]
        );
        assert!(install(&["--profile", "namespaces"]).is_err(), "no namespaces given");
    }

    #[test]
    fn the_namespace_replaces_brokkr_system_everywhere() {
        let objects = in_namespace("elsewhere", &["--impersonate", "shop/brokkr-shop"]).unwrap();
        assert!(!json!(objects).to_string().contains(NAMESPACE));
        let fence = objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
        assert_eq!(fence["data"]["accounts"], "system:serviceaccount:shop:brokkr-shop");
    }

    #[test]
    fn the_text_keeps_the_comments_of_the_templates() {
        let line = Line::try_parse_from(["install", "--kind", "w.example.com"]).unwrap();
        let text = text(&line.rights, NAMESPACE).unwrap();
        for words in
            ["# The fence: requests that no account of Brokkr may make", "# Additional kinds", "\"w\""]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn forbidden_accounts_and_kinds_are_refused() {
        for wrong in ["shop/deployer", "brokkr-shop", "shop/brokkr-agent"] {
            assert!(install(&["--impersonate", wrong]).is_err(), "{wrong}");
        }
        for wrong in [
            "stacks.brokkr.io",
            "validatingadmissionpolicies.admissionregistration.k8s.io",
            "*.admissionregistration.k8s.io",
            "widgets",
        ] {
            assert!(install(&["--kind", wrong]).is_err(), "{wrong}");
        }
        assert!(install(&["--kind", "validatingwebhookconfigurations.admissionregistration.k8s.io"]).is_ok());
    }
}

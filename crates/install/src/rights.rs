//! The objects that must exist before the agent starts: namespace, record CRD, ServiceAccount, permissions and admission
//! policy.

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use crate::{BETWEEN, NAMESPACE, may_be_acted_as, read};

/// Label of the roles that depend on flags; the value is the namespace of the agent.
pub const RIGHTS_OF: &str = "brokkr.io/rights-of";

/// Where an agent may write, as flags of every command that installs one.
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
    /// Allow the agent to impersonate this account, so that grants can name it: `namespace/brokkr-name`
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
const ACTED_AS: &str = "brokkr-account";
/// The parts of the files that are filled in.
const NO_ACCOUNTS: &str = "  accounts: \"\"\n";
const NO_RULES: &str = "rules: []\n";
const VERBS: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];

/// Returns everything that is installed, in order.
pub fn manifests(arguments: &Rights, home: &str) -> anyhow::Result<Vec<Value>> {
    read(&text(arguments, home)?)
}

/// Returns the same as text with the comments of `deploy/`, for people who read it before they apply it.
pub fn text(arguments: &Rights, home: &str) -> anyhow::Result<String> {
    let accounts = accounts(&arguments.impersonate)?;
    let users: Vec<String> = accounts
        .iter()
        .map(|(namespace, name)| format!("system:serviceaccount:{namespace}:{name}"))
        .collect();
    let at_home = |file: &str| file.replace(NAMESPACE, home);
    let mut files = vec![
        at_home(include_str!("../../../deploy/namespace.yaml")),
        at_home(include_str!("../../../deploy/record.yaml")),
        // Before the rights: there is no moment at which the agent could write without it.
        at_home(include_str!("../../../deploy/fence.yaml")).replace(NO_ACCOUNTS, &with_accounts(&users)),
        at_home(include_str!("../../../deploy/account.yaml")),
    ];
    match arguments.profile {
        Profile::Cluster => files.push(at_home(include_str!("../../../deploy/role-cluster.yaml"))),
        Profile::Namespaces => {
            files.push(at_home(include_str!("../../../deploy/role-namespaces.yaml")));
            let target = at_home(include_str!("../../../deploy/target-namespace.yaml"));
            files.extend(arguments.target_namespace.iter().map(|named| target.replace(TARGET, named)));
        }
    }
    let account = at_home(include_str!("../../../deploy/impersonate.yaml"));
    let acted_as =
        |(namespace, name): &(String, String)| account.replace(TARGET, namespace).replace(ACTED_AS, name);
    files.extend(accounts.iter().map(acted_as));
    files.extend(further_kinds(arguments, &at_home(include_str!("../../../deploy/kinds.yaml")))?);
    Ok(["", &files.join(BETWEEN)].join(BETWEEN))
}

fn with_accounts(users: &[String]) -> String {
    format!("  accounts: {}\n", json!(users.join(" ")))
}

/// Parses `namespace/brokkr-name`. The admission policy restricts only accounts with such names, so no others are allowed.
fn accounts(named: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    named
        .iter()
        .map(|account| {
            let (namespace, name) = account
                .split_once('/')
                .with_context(|| format!("--impersonate {account}: use NAMESPACE/brokkr-NAME"))?;
            ensure!(
                may_be_acted_as(name),
                "--impersonate {account}: Brokkr's admission policy restricts only accounts named brokkr-…, so an agent may \
                 not impersonate others"
            );
            Ok((namespace.to_owned(), name.to_owned()))
        })
        .collect()
}

/// Fills in `file`, which has a role and two bindings; the profile decides which binding is used.
fn further_kinds(arguments: &Rights, file: &str) -> anyhow::Result<Vec<String>> {
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
    let mut parts = file.split(BETWEEN);
    let (Some(role), Some(everywhere), Some(listed)) = (parts.next(), parts.next(), parts.next()) else {
        bail!("deploy/kinds.yaml has a role and two bindings");
    };
    Ok(match arguments.profile {
        _ if arguments.kinds.is_empty() => Vec::new(),
        Profile::Cluster => vec![role.replace(NO_RULES, &rules), everywhere.to_owned()],
        Profile::Namespaces => {
            let bound = arguments.target_namespace.iter().map(|target| listed.replace(TARGET, target));
            [role.replace(NO_RULES, &rules)].into_iter().chain(bound).collect()
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

    fn of(arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
        in_namespace(NAMESPACE, arguments)
    }

    fn in_namespace(home: &str, arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
        manifests(&Line::try_parse_from(["install"].iter().chain(arguments))?.rights, home)
    }

    fn rules(objects: &[Value]) -> Vec<Value> {
        objects.iter().filter_map(|object| object["rules"].as_array()).flatten().cloned().collect()
    }

    fn has(rule: &Value, field: &str, value: &str) -> bool {
        rule[field].as_array().is_some_and(|values| values.iter().any(|found| found == value))
    }

    #[test]
    fn no_profile_gives_every_verb_or_a_way_to_more_rights() {
        let cluster = of(&["--kind", "*.example.com", "--impersonate", "shop/brokkr-shop"]).unwrap();
        let listed = of(&["--profile", "namespaces", "--target-namespace", "a,b"]).unwrap();
        for rule in rules(&cluster).into_iter().chain(rules(&listed)) {
            for verb in ["*", "escalate", "bind", "deletecollection", "approve", "sign"] {
                assert!(!has(&rule, "verbs", verb), "{rule}");
            }
            if has(&rule, "verbs", "impersonate") {
                assert_eq!(rule["resourceNames"], json!(["brokkr-shop"]));
            }
            // `*` includes subresources: of all groups it may only be listed, for no subresource can be.
            if has(&rule, "apiGroups", "*") {
                assert_eq!(rule["verbs"], json!(["list"]));
            }
            let resources = rule["resources"].as_array().unwrap();
            assert!(!resources.iter().any(|name| name.as_str().unwrap().contains('/')), "{rule}");
            assert!(!has(&rule, "apiGroups", "admissionregistration.k8s.io"), "{rule}");
        }
    }

    #[test]
    fn listed_namespaces_give_no_right_in_the_whole_cluster_but_to_the_records() {
        let objects =
            of(&["--profile", "namespaces", "--target-namespace", "a,b", "--kind", "w.example.com"]);
        let bindings: Vec<String> = objects
            .unwrap()
            .iter()
            .filter(|object| object["kind"].as_str().unwrap().ends_with("Binding"))
            .map(|object| {
                let metadata = &object["metadata"];
                let place = metadata["namespace"].as_str().unwrap_or("*");
                format!("{place} {}", metadata["name"].as_str().unwrap())
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
        assert!(of(&["--profile", "namespaces"]).is_err(), "which ones?");
    }

    #[test]
    fn another_namespace_is_put_wherever_the_files_say_brokkr_system() {
        let objects = in_namespace("elsewhere", &["--impersonate", "shop/brokkr-shop"]).unwrap();
        assert!(!json!(objects).to_string().contains(NAMESPACE));
        let fence = objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
        assert_eq!(fence["data"]["accounts"], "system:serviceaccount:shop:brokkr-shop");
    }

    #[test]
    fn what_is_read_before_it_is_applied_says_what_it_is_for() {
        let line = Line::try_parse_from(["install", "--kind", "w.example.com"]).unwrap();
        let text = text(&line.rights, NAMESPACE).unwrap();
        for words in
            ["# The fence: requests that no account of Brokkr may make", "# Additional kinds", "\"w\""]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn what_an_administrator_must_not_give_is_refused() {
        for wrong in ["shop/deployer", "brokkr-shop", "shop/brokkr-agent"] {
            assert!(of(&["--impersonate", wrong]).is_err(), "{wrong}");
        }
        for wrong in [
            "stacks.brokkr.io",
            "validatingadmissionpolicies.admissionregistration.k8s.io",
            "*.admissionregistration.k8s.io",
            "widgets",
        ] {
            assert!(of(&["--kind", wrong]).is_err(), "{wrong}");
        }
        assert!(of(&["--kind", "validatingwebhookconfigurations.admissionregistration.k8s.io"]).is_ok());
    }
}

//! The permissions of each profile, as they are installed.

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
fn no_profile_grants_all_verbs_and_only_platform_may_escalate() {
    let apps = install(&["--kind", "*.example.com", "--impersonate", "shop/brokkr-shop"]).unwrap();
    let listed = install(&["--profile", "namespaces", "--target-namespace", "a,b"]).unwrap();
    let platform = install(&["--profile", "platform"]).unwrap();
    for (objects, escalates) in [(&apps, false), (&listed, false), (&platform, true)] {
        for rule in rules(objects) {
            for verb in ["*", "approve", "sign"] {
                assert!(!has(&rule, "verbs", verb), "{rule}");
            }
            for verb in ["escalate", "bind"] {
                assert!(!has(&rule, "verbs", verb) || escalates, "{rule}");
            }
            if has(&rule, "verbs", "impersonate") {
                assert_eq!(rule["resourceNames"], json!(["brokkr-shop"]));
            }
            // `*` includes subresources, so only `list` is allowed on all groups: no subresource can be listed.
            if has(&rule, "apiGroups", "*") {
                assert_eq!(rule["verbs"], json!(["list"]));
            }
            // Nothing that runs code or issues tokens, even though the fence would refuse its use.
            for name in
                ["pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "serviceaccounts/token"]
            {
                assert!(!has(&rule, "resources", name), "{rule}");
            }
            if has(&rule, "apiGroups", "admissionregistration.k8s.io") {
                let webhooks = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
                assert_eq!(rule["resources"], json!(webhooks), "the agent must not change its fence");
            }
        }
        let escalate = rules(objects).iter().any(|rule| has(rule, "verbs", "escalate"));
        assert_eq!(escalate, escalates);
    }
}

#[test]
fn exceptions_name_roles_and_never_the_most_powerful_ones() {
    let objects = install(&["--allow-role", "gatekeeper-manager-role,cert-manager/tokens"]).unwrap();
    let rule = rules(&objects).into_iter().find(|rule| has(rule, "verbs", "use")).unwrap();
    assert_eq!(rule["resourceNames"], json!(["gatekeeper-manager-role", "cert-manager/tokens"]));
    for wrong in ["cluster-admin", "brokkr-agent-platform", "a/brokkr-x", "a/", ""] {
        assert!(install(&["--allow-role", wrong]).is_err(), "{wrong}");
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
            "* brokkr-fence-home.brokkr-system",
            "brokkr-system brokkr-agent",
            "* brokkr-agent-records.brokkr-system",
            "default brokkr-agent-events.brokkr-system",
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
    for words in ["# The fence: requests that no account of Brokkr may make", "# Additional kinds", "\"w\""] {
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
        "validatingadmissionpolicies.*",
        "*.*",
        "*.",
        "widgets",
    ] {
        assert!(install(&["--kind", wrong]).is_err(), "{wrong}");
    }
    assert!(install(&["--kind", "validatingwebhookconfigurations.admissionregistration.k8s.io"]).is_ok());
}

#[test]
fn only_on_request_may_the_agent_change_its_own_deployment() {
    let of_upgrades = |arguments: &[&str]| {
        let objects = install(arguments).unwrap();
        let fence = objects.iter().find(|object| object["metadata"]["name"] == crate::FENCE).unwrap();
        let may = rules(&objects).into_iter().any(|rule| rule["resourceNames"] == json!([crate::ACCOUNT]));
        (fence["data"]["upgrade-repository"].as_str().unwrap().to_owned(), may)
    };
    assert_eq!(of_upgrades(&[]), (String::new(), false));
    for repository in ["registry.example/brokkr-agent", "registry.example:5000/a/brokkr-agent"] {
        assert_eq!(of_upgrades(&["--allow-upgrade", repository]), (repository.to_owned(), true));
    }
    for wrong in ["registry.example/brokkr-agent:1", "registry.example/brokkr-agent@sha256:00", "a b"] {
        assert!(install(&["--allow-upgrade", wrong]).is_err(), "{wrong}");
    }
}

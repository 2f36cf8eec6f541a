//! Rendered objects and rejected values of the charts.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use brokkr_install::rights::{self, Profile, Rights};
use brokkr_install::workload::{self, IMAGE, Joining};
use secrecy::SecretString;
use serde_json::{Value, json};

use super::{chart, helm, root};

const HOME: &str = "brokkr-home";
const JOIN: &str = "broker.url=https://brokkr.example/,join.token=bkj_secret";

async fn render(name: &str, values: &[&str]) -> Result<brokkr_testkit::Output> {
    let chart = chart(name);
    let mut arguments = vec!["template", "it", chart.to_str().context("a path as text")?, "-n", HOME];
    values.iter().for_each(|value| arguments.extend(["--set", value]));
    helm(&arguments).await
}

/// Objects by kind, namespace and name.
type Objects = BTreeMap<String, Value>;

fn by_name(objects: Vec<Value>) -> Objects {
    let named = |object: Value| {
        let metadata = &object["metadata"];
        (format!("{} {} {}", object["kind"], metadata["namespace"], metadata["name"]), object)
    };
    objects.into_iter().filter(|object| !object.is_null()).map(named).collect()
}

/// Returns the objects that `brokkr agent join` installs, without the namespace and the id of the token: Helm
/// creates the namespace, and a chart does not know the id.
fn joined(rights: &Rights, authorities: Option<&str>) -> Result<Objects> {
    let broker = "https://brokkr.example/".parse()?;
    let proxy = "http://proxy.example:3128/".parse()?;
    let joining = Joining {
        image: IMAGE,
        broker: &broker,
        token: &SecretString::from("bkj_secret"),
        token_id: "",
        ca_certificates: authorities,
        proxy: authorities.map(|_| &proxy),
    };
    let mut objects = rights::manifests(rights, HOME)?;
    objects.extend(workload::manifests(&joining, rights, HOME)?);
    objects.retain(|object| object["kind"] != "Namespace");
    Ok(by_name(objects))
}

#[tokio::test]
async fn the_agents_chart_installs_the_same_objects_as_agent_join() -> Result<()> {
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let rights = |profile, targets: &[&str], kinds: &[&str], impersonate: &[&str]| Rights {
        profile,
        target_namespace: words(targets),
        kinds: words(kinds),
        impersonate: words(impersonate),
        allow_role: Vec::new(),
        allow_upgrade: None,
    };
    let platform = Rights {
        allow_role: words(&["gatekeeper-manager-role", "shop/tokens"]),
        allow_upgrade: Some("registry.example/brokkr-agent".into()),
        ..rights(Profile::Platform, &[], &[], &[])
    };
    let authority = "-----BEGIN CERTIFICATE-----\n";
    let trusting = format!("broker.ca={authority},proxy.url=http://proxy.example:3128/");
    let no_proxy = r"proxy.noProxy=kubernetes.default.svc\,.svc\,.cluster.local";
    let cases = [
        ("", rights(Profile::Apps, &[], &[], &[]), None),
        (
            "profile=platform,allowRoles={gatekeeper-manager-role,shop/tokens},\
             upgrade.repository=registry.example/brokkr-agent",
            platform,
            None,
        ),
        (
            "kinds={*.example.com},impersonate={shop/brokkr-shop,bank/brokkr-bank}",
            rights(Profile::Apps, &[], &["*.example.com"], &["shop/brokkr-shop", "bank/brokkr-bank"]),
            Some(authority),
        ),
        (
            "profile=namespaces,targetNamespaces={shop,bank},kinds={widgets.example.com,a.b.c}",
            rights(Profile::Namespaces, &["shop", "bank"], &["widgets.example.com", "a.b.c"], &[]),
            Some(authority),
        ),
    ];
    for (values, rights, authorities) in cases {
        let trusting = authorities.map_or("", |_| trusting.as_str());
        let given = [JOIN, "networkPolicy.enabled=false", values, trusting, no_proxy];
        let rendered = render("brokkr-agent", &given).await?.ok()?;
        let mut objects: Vec<Value> = serde_saphyr::from_multiple(&rendered.stdout)?;
        // Expected differences: Helm keeps the definition, a hash of the token takes the place of its id, and the release is named.
        for object in &mut objects {
            match object["kind"].as_str() {
                Some("CustomResourceDefinition") => {
                    object["metadata"].as_object_mut().context("metadata")?.remove("annotations");
                }
                Some("ConfigMap") => {
                    object["data"].as_object_mut().context("data")?.remove("installation-release");
                }
                Some("Deployment") => {
                    object["spec"]["template"]["metadata"]["annotations"]["brokkr.io/join-token"] = json!("");
                }
                _ => {}
            }
        }
        let (chart, joined) = (by_name(objects), joined(&rights, authorities)?);
        let names = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&chart), names(&joined), "{values}");
        for (name, object) in &joined {
            assert_eq!(&chart[name], object, "{values}: {name}");
        }
    }
    Ok(())
}

/// Further tolerations do not keep the agent on a lost node, unless one names the taint.
#[tokio::test]
async fn tolerations_are_added_to_those_for_a_lost_node() -> Result<()> {
    let (not_ready, unreachable) = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable");
    let own = |key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0});
    let cases = [
        (vec!["operator=Exists"], json!([{"operator": "Exists"}, own(not_ready), own(unreachable)])),
        (
            vec!["key=node.kubernetes.io/unreachable", "operator=Exists", "tolerationSeconds=60"],
            json!([{"key": unreachable, "operator": "Exists", "tolerationSeconds": 60}, own(not_ready)]),
        ),
        (
            vec!["key=node.kubernetes.io/unreachable", "operator=Exists", "effect=NoSchedule"],
            json!([
                {"key": unreachable, "operator": "Exists", "effect": "NoSchedule"}, own(not_ready), own(unreachable),
            ]),
        ),
    ];
    for (fields, expected) in cases {
        let values: Vec<String> = fields.iter().map(|field| format!("tolerations[0].{field}")).collect();
        let values: Vec<&str> = [JOIN].into_iter().chain(values.iter().map(String::as_str)).collect();
        let rendered = render("brokkr-agent", &values).await?.ok()?;
        let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered.stdout)?;
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").context("rendered")?;
        assert_eq!(deployment["spec"]["template"]["spec"]["tolerations"], expected, "{values:?}");
    }
    Ok(())
}

/// A second agent installs only its own objects.
#[tokio::test]
async fn a_second_agent_of_a_cluster_installs_no_shared_objects() -> Result<()> {
    let all = render("brokkr-agent", &[JOIN]).await?.ok()?.stdout;
    let own = render("brokkr-agent", &[JOIN, "shared.create=false"]).await?.ok()?.stdout;
    let read = |text: &str| serde_saphyr::from_multiple(text).map(by_name);
    let (all, own): (Objects, Objects) = (read(&all)?, read(&own)?);
    let left_out: Vec<&str> =
        all.keys().filter(|name| !own.contains_key(*name)).map(String::as_str).collect();
    assert_eq!(
        left_out,
        [
            r#""ClusterRole" null "brokkr-agent-all-namespaces""#,
            r#""ClusterRole" null "brokkr-agent-apps""#,
            r#""ClusterRole" null "brokkr-agent-records""#,
            r#""CustomResourceDefinition" null "stacks.brokkr.io""#,
            r#""ValidatingAdmissionPolicy" null "brokkr-fence""#,
            r#""ValidatingAdmissionPolicy" null "brokkr-fence-agent""#,
            r#""ValidatingAdmissionPolicy" null "brokkr-fence-home""#,
            r#""ValidatingAdmissionPolicyBinding" null "brokkr-fence""#,
        ]
    );
    Ok(())
}

/// The alerts and dashboards are those that are tested on a real Prometheus, except for the links to runbooks.
#[tokio::test]
async fn the_brokers_chart_contains_the_alerts_and_dashboards_of_deploy() -> Result<()> {
    let all = ["evaluation.enabled=true", "prometheusRule.enabled=true", "dashboards.enabled=true"];
    let elsewhere = "prometheusRule.runbooks=https://git.example/";
    let text = render("brokkr", &[&all[..], &[elsewhere, "prometheusRule.labels.team=a"]].concat()).await?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text.ok()?.stdout)?;
    let of_kind = |kind: &str| objects.iter().find(|object| object["kind"] == kind).context("rendered");
    let monitoring = root().join("deploy/monitoring");

    let rules = fs::read_to_string(monitoring.join("rules.yaml"))?;
    let rules = rules.replace("runbook_url: docs/", "runbook_url: https://git.example/docs/");
    let expected: Vec<Value> = serde_saphyr::from_multiple(&rules)?;
    assert_eq!([of_kind("PrometheusRule")?["spec"].clone()], expected[..]);
    assert_eq!(of_kind("PrometheusRule")?["metadata"]["labels"], json!({"team": "a"}));

    let mut expected = serde_json::Map::new();
    for file in fs::read_dir(monitoring.join("dashboards"))? {
        let path = file?.path();
        let name = path.file_name().context("a name")?.to_string_lossy();
        expected.insert(format!("brokkr-{name}"), json!(fs::read_to_string(&path)?));
    }
    assert_eq!(of_kind("ConfigMap")?["data"], Value::Object(expected));
    assert_eq!(of_kind("ConfigMap")?["metadata"]["labels"], json!({"grafana_dashboard": "1"}));

    let without = render("brokkr", &["evaluation.enabled=true"]).await?.ok()?.stdout;
    assert!(!without.contains("PrometheusRule") && !without.contains("grafana"), "disabled by default");
    Ok(())
}

#[tokio::test]
async fn the_charts_pass_helm_lint() -> Result<()> {
    let full = "evaluation.enabled=true,prometheusRule.enabled=true,dashboards.enabled=true";
    for (name, values) in [("brokkr", "evaluation.enabled=true"), ("brokkr", full), ("brokkr-agent", JOIN)] {
        let chart = chart(name);
        helm(&["lint", "--strict", chart.to_str().context("a path as text")?, "--set", values])
            .await?
            .ok()?;
    }
    Ok(())
}

/// A typing error, an invalid, a forbidden or a missing value ends the installation with a message that names it.
#[tokio::test]
async fn invalid_values_are_rejected_and_named() -> Result<()> {
    let database = "database.existingSecret.name=d";
    let table = [
        ("brokkr", vec![], "database.existingSecret.name is required"),
        ("brokkr", vec![database], "tls.existingSecret is required"),
        ("brokkr", vec!["tls.existingSecret=t"], "database.existingSecret.name is required"),
        (
            "brokkr",
            vec![database, "tls.existingSecret=t", "tls.terminatedInFront=true"],
            "exclude each other",
        ),
        ("brokkr", vec!["evaluation.enabled=true", "ingress.enabled=true"], "ingress.host is required"),
        ("brokkr", vec!["evaluation.enabled=true", "replica=3"], "'replica'"),
        ("brokkr", vec!["evaluation.enabled=true", "replicas=three"], "/replicas"),
        ("brokkr", vec!["evaluation.enabled=true", "replicas=-1"], "/replicas"),
        ("brokkr", vec!["evaluation.enable=true"], "'enable'"),
        ("brokkr", vec!["evaluation.enabled=true", "database.url=postgres://a"], "'url'"),
        ("brokkr", vec!["evaluation.enabled=true", "service.type=ExternalName"], "/service/type"),
        ("brokkr", vec!["evaluation.enabled=true", "service.port=70000"], "/service/port"),
        ("brokkr", vec!["evaluation.enabled=true", "image.digest=latest"], "/image/digest"),
        ("brokkr", vec!["evaluation.enabled=true", "config.logFormat=xml"], "/config/logFormat"),
        (
            "brokkr",
            vec!["evaluation.enabled=true", "config.trustedProxies={proxy.example}"],
            "/trustedProxies",
        ),
        ("brokkr", vec!["evaluation.enabled=true", "prometheusRule.enable=true"], "'enable'"),
        (
            "brokkr",
            vec!["evaluation.enabled=true", "prometheusRule.runbooks=docs"],
            "/prometheusRule/runbooks",
        ),
        ("brokkr", vec!["evaluation.enabled=true", "dashboards.enabled=perhaps"], "/dashboards/enabled"),
        ("brokkr-agent", vec![], "broker.url is required"),
        ("brokkr-agent", vec!["broker.url=https://b.example"], "join.token or join.existingSecret.name"),
        ("brokkr-agent", vec![JOIN, "join.existingSecret.name=s"], "give one of them"),
        ("brokkr-agent", vec![JOIN, "broker.url=b.example"], "/broker/url"),
        ("brokkr-agent", vec![JOIN, "broker.ca=ca.crt"], "/broker/ca"),
        ("brokkr-agent", vec![JOIN, "profile=namespace"], "/profile"),
        ("brokkr-agent", vec![JOIN, "profile=namespaces"], "/targetNamespaces"),
        ("brokkr-agent", vec![JOIN, "targetNamespaces={shop}"], "/targetNamespaces"),
        ("brokkr-agent", vec![JOIN, "profile=namespaces", "targetNamespaces={Shop}"], "/targetNamespaces"),
        ("brokkr-agent", vec![JOIN, "kinds={stacks.brokkr.io}"], "/kinds"),
        ("brokkr-agent", vec![JOIN, "kinds={*.admissionregistration.k8s.io}"], "/kinds"),
        ("brokkr-agent", vec![JOIN, "kinds={tokenreviews.authentication.k8s.io}"], "/kinds"),
        ("brokkr-agent", vec![JOIN, "kinds={pods/exec.example.com}"], "/kinds"),
        ("brokkr-agent", vec![JOIN, "kinds={widgets}"], "/kinds"),
        ("brokkr-agent", vec![JOIN, "impersonate={shop/deployer}"], "/impersonate"),
        ("brokkr-agent", vec![JOIN, "impersonate={shop/brokkr-agent}"], "/impersonate"),
        ("brokkr-agent", vec![JOIN, "impersonate={brokkr-shop}"], "/impersonate"),
        ("brokkr-agent", vec![JOIN, "upgrade.repository=registry.example/agent:1"], "/upgrade/repository"),
        ("brokkr-agent", vec![JOIN, "resource.limits.cpu=1"], "'resource'"),
        ("brokkr-agent", vec![JOIN, "podMonitor.interval=often"], "/podMonitor/interval"),
    ];
    for (name, values, words) in table {
        let output = render(name, &values).await?;
        assert!(!output.success(), "{name} accepted {values:?}");
        assert!(output.stderr.contains(words), "{name} {values:?} was refused with:\n{}", output.stderr);
    }
    Ok(())
}

/// Each installation generates its own credentials, and none is in the files.
#[tokio::test]
async fn two_evaluation_installs_share_no_credential() -> Result<()> {
    let mut passwords = Vec::new();
    for _ in 0..2 {
        let text = render("brokkr", &["evaluation.enabled=true"]).await?.ok()?.stdout;
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text)?;
        let secrets = objects.iter().filter(|object| object["kind"] == "Secret");
        passwords.push(secrets.map(|secret| secret["data"].clone()).collect::<Vec<_>>());
    }
    assert_eq!(passwords[0].len(), 2, "of the database and of the certificate");
    for (one, other) in passwords[0].iter().zip(&passwords[1]) {
        for (key, value) in one.as_object().context("data")? {
            assert_ne!(value, &other[key], "{key} is the same in two installations");
        }
    }
    Ok(())
}

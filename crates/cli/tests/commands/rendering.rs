//! `apply -k` and `--helm`: the user's programs render, and their errors are shown.

use std::os::unix::fs::PermissionsExt as _;

use crate::fake_broker::{FakeBroker, Ran};
use crate::sample::{object, stack};

const MANIFEST: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: shop}\n";

/// Creates a program with this script in the `bin` directory.
fn program(broker: &FakeBroker, name: &str, script: &str) {
    let folder = broker.home.path().join("bin");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(name);
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn broker() -> FakeBroker {
    FakeBroker::start().on("PUT /api/v1/stacks/web", 200, stack(&["env=dev"])).on(
        "POST /api/v1/stacks/web/deployment-objects",
        201,
        object(42),
    )
}

fn apply(broker: &FakeBroker, arguments: &[&str]) -> Ran {
    let path = format!("{}:/bin", broker.home.path().join("bin").display());
    let environment =
        [("BROKKR_SERVER", broker.url.as_str()), ("BROKKR_TOKEN", "brk_secret"), ("PATH", path.as_str())];
    broker.run(&[&["apply", "web"], arguments].concat(), &environment, "")
}

/// Prints its arguments as a comment, and a manifest.
const PRINT: &str = "echo \"# $0 $* $BROKKR_TOKEN\" | sed 's|/.*/bin/||'; echo 'apiVersion: v1'; echo 'kind: ConfigMap'; echo 'metadata: {name: web, namespace: shop}'";

#[test]
fn a_kustomization_is_built_by_kustomize_or_else_by_kubectl() {
    let broker = broker();
    program(&broker, "kubectl", PRINT);
    apply(&broker, &["-k", "overlays/prod"]).exits(0).prints("submitted as version 42");
    program(&broker, "kustomize", PRINT);
    apply(&broker, &["-k", "overlays/prod"]).exits(0);
    let sent: Vec<String> = broker
        .asked()
        .into_iter()
        .filter(|asked| asked.line.starts_with("POST"))
        .map(|asked| String::from_utf8(asked.body).unwrap())
        .collect();
    assert_eq!(
        sent[0],
        format!("# kubectl kustomize overlays/prod \n{MANIFEST}"),
        "the token is not passed on"
    );
    assert_eq!(sent[1], format!("# kustomize build overlays/prod \n{MANIFEST}"));
}

#[test]
fn a_chart_is_rendered_by_helm_without_its_hooks() {
    let broker = broker();
    program(&broker, "helm", PRINT);
    apply(&broker, &["--helm", "./chart", "--values", "prod.yaml", "--set", "a=b", "-n", "shop"]).exits(0);
    let sent = String::from_utf8(broker.posted().pop().unwrap().body).unwrap();
    let call = "# helm template web ./chart --include-crds --values prod.yaml --set a=b --namespace shop";
    assert!(sent.starts_with(call), "{sent}");
}

#[test]
fn the_error_of_a_program_is_shown_and_nothing_is_sent() {
    let broker = broker();
    program(&broker, "helm", "echo 'Error: no such chart' >&2; exit 1");
    apply(&broker, &["--helm", "nowhere"])
        .exits(3)
        .says("helm failed; nothing was submitted")
        .says("Error: no such chart");
    program(&broker, "helm", "true");
    apply(&broker, &["--helm", "empty"]).exits(3).says("chart empty");
    assert!(broker.asked().is_empty());
    std::fs::remove_file(broker.home.path().join("bin/helm")).unwrap();
    apply(&broker, &["--helm", "./chart"]).exits(2).says("helm is not installed");
    apply(&broker, &[]).exits(2).says("no manifests given").says("-f PATH");
    apply(&broker, &["-f", "x", "-k", "y"]).exits(2);
}

#[test]
fn subdirectories_are_read_with_recursive() {
    let broker = broker();
    let inside = broker.home.path().join("deploy/inside");
    std::fs::create_dir_all(&inside).unwrap();
    std::fs::write(inside.join("web.yaml"), MANIFEST).unwrap();
    let deploy = broker.home.path().join("deploy");
    apply(&broker, &["-f", deploy.to_str().unwrap()]).exits(2).says("-R includes subdirectories");
    apply(&broker, &["-R", "-f", deploy.to_str().unwrap()]).exits(0);
}

//! `brokkr diff`: the exit status shows a difference, and Secrets are hidden.

use serde_json::json;

use crate::fake_broker::FakeBroker;
use crate::sample::{object, page};

const HISTORY: &str = "GET /api/v1/stacks/web/deployment-objects";
const DIFF: &str = "GET /api/v1/stacks/web/diff";
const OLD: &str =
    "apiVersion: v1\nkind: Secret\nmetadata: {name: web, namespace: shop}\nstringData: {password: hunter2}\n";

fn difference(changed: usize) -> serde_json::Value {
    let field = json!({"path": "spec.replicas", "before": 2, "after": 3});
    let resource = json!({"group": "apps", "kind": "Deployment", "namespace": "shop", "name": "web", "change": "changed",
        "fields": [field]});
    let resources = if changed > 0 { vec![resource] } else { Vec::new() };
    json!({"from": 41, "to": 42, "added": 0, "removed": 0, "changed": changed, "unchanged": 1, "resources": resources,
        "truncated": false})
}

#[test]
fn versions_are_compared_and_the_exit_status_shows_a_difference() {
    let broker =
        FakeBroker::start().on(HISTORY, 200, page(&[object(42), object(41)])).on(DIFF, 200, difference(1));
    let ran = broker.brokkr(&["diff", "web"]).exits(1).prints("~ Deployment.apps shop/web\n");
    ran.prints("spec.replicas: 2 → 3\n").prints("41 → 42: 0 removed, 1 changed, 0 added, 1 unchanged\n");
    assert!(broker.asked()[1].line.ends_with("?from=41&to=42"), "{:?}", broker.asked()[1]);
    broker.brokkr(&["diff", "web", "40"]).exits(1);
    assert!(broker.asked().last().unwrap().line.ends_with("?from=40&to=42"));

    let same = FakeBroker::start().on(DIFF, 200, difference(0));
    same.brokkr(&["diff", "web", "41", "42"]).exits(0).prints("41 → 42: no difference in 1 resource\n");
    let one = FakeBroker::start().on(HISTORY, 200, page(&[object(42)]));
    one.brokkr(&["diff", "web"]).exits(5).says("web has only one version");
}

#[test]
fn files_are_compared_with_the_newest_version_and_secrets_stay_hidden() {
    let mut newest = object(42);
    newest["checksum"] = brokkr_api::ids::Checksum::of(OLD.as_bytes()).to_string().into();
    let broker = FakeBroker::start()
        .on(HISTORY, 200, page(&[newest]))
        .on_yaml("GET /api/v1/deployment-objects/42", OLD);
    let run = |text: &str| {
        let environment = [("BROKKR_SERVER", broker.url.as_str()), ("BROKKR_TOKEN", "brk_x")];
        broker.run(&["diff", "web", "-f", "-"], &environment, text)
    };
    run(OLD).exits(0).prints("42 → -: no difference");
    let changed = run(&OLD.replace("hunter2", "hunter3")).exits(1).prints("~ Secret shop/web");
    assert!(!changed.stdout.contains("hunter"), "{changed:?}");
    run("kind: Pod\n").exits(3).says("(BRK2004)");
}

#[test]
fn without_permission_secrets_are_not_compared() {
    let hidden = OLD.replace("stringData: {password: hunter2}", "data: {password: '(hidden)'}");
    let broker = FakeBroker::start()
        .on(HISTORY, 200, page(&[object(42)]))
        .on_yaml("GET /api/v1/deployment-objects/42", &hidden);
    let environment = [("BROKKR_SERVER", broker.url.as_str()), ("BROKKR_TOKEN", "brk_x")];
    broker.run(&["diff", "web", "-f", "-"], &environment, OLD).says("they are not compared");
}

//! Parsing of valid and invalid manifests, and the error messages.

use std::time::{Duration, Instant};

use brokkr_manifest::{Budget, Manifest, ManifestErrors, Problem, parse, parse_live};
use serde_json::json;

fn read(text: &str) -> Result<Manifest, ManifestErrors> {
    parse(text.as_bytes(), &Budget::default())
}

fn config_map(name: &str, data: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: shop\ndata:\n{data}\n---\n"
    )
}

fn messages(text: &str) -> Vec<String> {
    read(text).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn scalars_are_read_as_kubectl_reads_them() {
    let text = "
apiVersion: example.com/v1
kind: Widget
metadata: {name: one}
spec:
  mode: 0644
  on: yes
  off: off
  thousand: 1_000
  hexadecimal: 0x1F
  version: 1.10
  whole: 3.0
  time: 12:30:45
  day: 2001-01-01
  quoted: '0644'
  nothing: ~
  80: port
  text: |
    two
    lines
";
    let manifest = read(text).unwrap();
    assert_eq!(
        manifest.objects[0].body["spec"],
        json!({
            "mode": 420, "on": true, "off": false, "thousand": 1000, "hexadecimal": 31, "version": 1.1, "whole": 3,
            "time": "12:30:45", "day": "2001-01-01", "quoted": "0644", "nothing": null, "80": "port",
            "text": "two\nlines\n",
        })
    );
}

#[test]
fn json_is_parsed_like_yaml() {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m", "namespace": "shop" },
        "data": { "emoji": "\u{1f600} / \\ \t\n", "long": "x".repeat(5000) },
    });
    let pretty = serde_json::to_string_pretty(&object).unwrap();
    let tabs = pretty.replace("  ", "\t");
    let escaped = object.to_string().replace('\u{1f600}', "\\ud83d\\ude00");
    for text in [object.to_string(), pretty, tabs, escaped] {
        assert_eq!(read(&text).unwrap().objects[0].body, object);
    }
}

#[test]
fn lists_are_flattened_and_empty_documents_skipped() {
    let text = "---\n---\n# only a comment\n---\napiVersion: v1\nkind: List\nitems:\n\
        - {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n\
        - apiVersion: v1\n  kind: ConfigMapList\n  metadata: {resourceVersion: '1'}\n  items:\n  \
          - {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n\
        ---\napiVersion: example.com/v1\nkind: AllowList\nmetadata: {name: c}\nitems: [x]\n---\n";
    let names: Vec<_> =
        read(text).unwrap().objects.iter().map(|object| object.identity.to_string()).collect();
    assert_eq!(names, ["ConfigMap a", "ConfigMap b", "AllowList c"]);
}

#[test]
fn aliases_and_merges_work_within_a_document() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\n  labels: &labels {app: web}\n\
        data: {<<: *labels, b: x}\n";
    assert_eq!(read(text).unwrap().objects[0].body["data"], json!({ "app": "web", "b": "x" }));
    let lost = format!("{text}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: n}}\ndata: *labels\n");
    assert_eq!(
        messages(&lost),
        ["line 11: this is not valid YAML: an alias refers to an anchor that this document does not define"]
    );
}

#[test]
fn a_hundred_consecutive_comment_lines_are_accepted() {
    let comments = "  # commented out\n".repeat(100);
    let text =
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n{comments}  name: m\ndata:\n{comments}  a: b\n");
    assert_eq!(read(&text).unwrap().objects.len(), 1);
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_accepted() {
    let text = format!("\u{feff}{}", config_map("m", "  a: b").replace('\n', "\r\n"));
    assert_eq!(read(&text).unwrap().objects[0].body["data"]["a"], "b");
}

#[test]
fn a_duplicate_key_is_an_error_that_names_key_and_line() {
    assert_eq!(
        messages(&config_map("m", "  a: secret1\n  a: secret2")),
        ["document 1 (line 8): the key `a` appears twice in the same mapping; remove one of them"]
    );
}

#[test]
fn all_problems_are_reported_at_once() {
    let text = [
        "kind: ConfigMap\nmetadata: {generateName: x-}\n",
        &config_map("good", "  a: b").replace("---\n", ""),
        &config_map("twice", "  a: 1\n  a: 2").replace("---\n", ""),
        "- just\n- a list\n",
        "apiVersion: /v1\nkind: Config Map\nmetadata: {name: a/b, namespace: Shop, labels: {version: 1.0}}\n",
        &config_map("good", "  a: c").replace("---\n", ""),
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {namespace: shop, annotations: {brokkr.io/wave: first}}\n",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, annotations: {brokkr.io/wave: first}}\n",
    ]
    .join("---\n");
    let errors = read(&text).unwrap_err();
    assert!(!errors.stopped());
    assert_eq!(
        errors.to_string(),
        "the manifest has 12 problems:
  - document 1 (line 1): ConfigMap: apiVersion is missing
  - document 1 (line 1): ConfigMap: metadata.generateName is not supported, because a stack must name its resources; set metadata.name
  - document 3 (line 19): the key `a` appears twice in the same mapping; remove one of them
  - document 4 (line 21): this is not a Kubernetes object: a mapping with apiVersion, kind and metadata is expected
  - document 5 (line 24): apiVersion must be a version such as `v1`, or a group and a version such as `apps/v1`
  - document 5 (line 24): kind must be a word of letters and digits, such as `Deployment`
  - document 5 (line 24): metadata.name must be at most 253 characters, without `/`, `%`, spaces or control characters
  - document 5 (line 24): metadata.namespace must be at most 63 lower-case letters, digits and `-`, and start and end with a letter or digit
  - document 5 (line 24): metadata.labels[version] must be text; put quotes around the value
  - document 6 (line 28): ConfigMap shop/good: the same resource is already in document 2 (line 4); keep one of them
  - document 7 (line 36): Deployment: metadata.name is missing
  - document 8 (line 40): Deployment web: metadata.annotations[brokkr.io/wave] must be a whole number, such as -1 or 10"
    );
}

#[test]
fn broken_syntax_names_its_line_and_quotes_no_value() {
    let text = config_map("m", "  a: b")
        + "apiVersion: v1\nkind: Secret\nstringData: {password: hunter2\nmetadata: ]\n";
    let errors = read(&text).unwrap_err();
    assert!(errors.stopped());
    let message = errors.to_string();
    assert!(message.starts_with("document 2 (line ") && message.contains("not valid YAML"), "{message}");
    assert!(!format!("{errors:?}{message}").contains("hunter2"));
}

#[test]
fn no_error_quotes_a_value() {
    for value in [
        "!!int hunter2",
        ".inf",
        "!hunter2 {a: b}",
        "!!binary hunter2!",
        "*hunter2",
        "\"\\q hunter2\"",
        "[hunter2",
    ] {
        let text =
            format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData:\n  a: {value}\n");
        if let Err(errors) = read(&text) {
            assert!(!format!("{errors} {errors:?}").contains("hunter2"), "{value}: {errors}");
        }
    }
}

#[test]
fn the_same_resource_in_two_versions_is_the_same_resource() {
    let text = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}\n---\n\
        {apiVersion: example.com/v1beta1, kind: Widget, metadata: {name: a}}\n";
    let errors = read(text).unwrap_err();
    assert!(matches!(errors.iter().next().unwrap().problem, Problem::Repeated { .. }));
}

#[test]
fn an_object_without_a_namespace_and_one_in_default_are_the_same_resource() {
    let text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n\
        {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}}\n";
    let errors = read(text).unwrap_err();
    assert!(matches!(errors.iter().next().unwrap().problem, Problem::Repeated { .. }));
}

#[test]
fn a_manifest_without_objects_is_an_error() {
    for text in ["", "---\n---\n", "# nothing\n", "apiVersion: v1\nkind: List\nitems: []\n", "~"] {
        let errors = read(text).unwrap_err();
        assert_eq!(errors.iter().next().unwrap().problem, Problem::Empty, "{text:?}");
    }
    let errors = parse(&[0xff, 0xfe], &Budget::default()).unwrap_err();
    assert_eq!(errors.iter().next().unwrap().problem, Problem::NotUtf8 { offset: 0 });
}

#[test]
fn alias_bombs_are_refused_fast() {
    let mut bomb =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\nl0: &l0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let alias = format!("*l{}", level - 1);
        bomb += &format!("l{level}: &l{level} [{}]\n", [alias.as_str(); 10].join(","));
    }
    let long = "y".repeat(100_000);
    let texts = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\nl: &l {long}\nm: [{}]\n",
        ["*l"; 10_000].join(",")
    );
    // Many small bombs after a broken document: the second pass, which parses the documents one by one after an error,
    // must not expand them either.
    let small = bomb.lines().take(8).collect::<Vec<_>>().join("\n");
    let many = format!("a: 1\na: 2\n---\n{}", format!("{small}\n---\n").repeat(5_000));
    for (name, text) in [("nested", bomb), ("texts", texts), ("many", many)] {
        let started = Instant::now();
        read(&text).unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(20), "{name}: {:?}", started.elapsed());
    }
}

#[test]
fn nesting_is_refused_only_beyond_the_limit() {
    let nested = |depth: usize| {
        let text = format!("{}1{}", "{a: ".repeat(depth), "}".repeat(depth));
        format!("apiVersion: example.com/v1\nkind: Widget\nmetadata: {{name: m}}\nspec: {text}\n")
    };
    assert!(read(&nested(95)).is_ok());
    let errors = read(&nested(5_000)).unwrap_err();
    assert!(matches!(
        errors.iter().next().unwrap().problem,
        Problem::OverBudget { .. } | Problem::Syntax { .. }
    ));
}

#[test]
fn every_limit_of_the_budget_holds() {
    let two = config_map("a", "  k: v") + &config_map("b", "  k: v");
    let problem =
        |budget: Budget| parse(two.as_bytes(), &budget).unwrap_err().iter().next().unwrap().problem.clone();
    let budget = Budget::default;
    assert_eq!(
        problem(Budget { total_bytes: 10, ..budget() }),
        Problem::TooLarge { bytes: two.len(), limit: 10 }
    );
    assert_eq!(problem(Budget { objects: 1, ..budget() }), Problem::TooManyObjects { limit: 1 });
    assert!(matches!(
        problem(Budget { object_bytes: 20, ..budget() }),
        Problem::ObjectTooLarge { limit: 20, .. }
    ));
    assert!(matches!(problem(Budget { nodes: 10, ..budget() }), Problem::OverBudget { .. }));
    assert!(matches!(problem(Budget { depth: 1, ..budget() }), Problem::OverBudget { .. }));
    let errors = parse("a: 1\n---\n".repeat(500).as_bytes(), &budget()).unwrap_err();
    assert_eq!((errors.len(), errors.stopped()), (budget().problems, true));
}

#[test]
fn ten_thousand_documents_are_read() {
    let text: String =
        (0..10_000).map(|number| config_map(&format!("m{number}"), "  a: b\n  c: d")).collect();
    assert_eq!(read(&text).unwrap().objects.len(), 10_000);
    let more = text + &config_map("one-more", "  a: b");
    assert_eq!(
        read(&more).unwrap_err().iter().next().unwrap().problem,
        Problem::TooManyObjects { limit: 10_000 }
    );
}

#[test]
fn live_objects_keep_their_status_and_are_not_refused() {
    let text = "
apiVersion: v1
kind: List
items:
- apiVersion: example.com/v1
  kind: Widget
  metadata: {name: one, namespace: shop, generation: 2}
  status: {phase: Ready}
- apiVersion: v1
  kind: ServiceAccount
  metadata: {name: default, namespace: kube-system}
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: one, namespace: shop}
";
    let objects = parse_live(text.as_bytes(), &Budget::default()).unwrap();
    let names: Vec<_> = objects.iter().map(|(identity, _)| identity.to_string()).collect();
    assert_eq!(names, ["Widget shop/one", "ServiceAccount kube-system/default", "Widget shop/one"]);
    assert_eq!(objects[0].1["status"], json!({ "phase": "Ready" }));
    assert_eq!(objects[0].1["metadata"]["generation"], 2);
    assert!(parse_live(b"# nothing\n", &Budget::default()).unwrap().is_empty());
}

#[test]
fn live_objects_that_cannot_be_read_are_located() {
    let errors = |text: &str| -> Vec<String> {
        let errors = parse_live(text.as_bytes(), &Budget::default()).unwrap_err();
        errors.iter().map(ToString::to_string).collect()
    };
    let found = errors("kind: Pod\n---\n[1]\n");
    assert!(found.iter().any(|error| error.starts_with("document 1 (line 1): Pod: apiVersion")), "{found:?}");
    assert!(found.iter().any(|error| error.starts_with("document 2")), "{found:?}");
    assert!(errors("a: [")[0].contains("not valid YAML"));
}

//! Output formats, the width of lines, and the output for CI systems.

use serde_json::{Value, json};

use crate::fake_broker::{FakeBroker, Ran};
use crate::sample::{STACK_ID, STATUS, agent, noted, object, page, row, stack};

fn broker() -> FakeBroker {
    FakeBroker::start().on("GET /api/v1/agents", 200, page(&[agent("eu-1"), agent("us-1")]))
}

#[test]
fn a_list_is_printed_in_every_format() {
    let broker = broker();
    let list = |format: &str| broker.brokkr(&["agent", "list", "-o", format]).exits(0);
    assert!(list("table").stdout.starts_with("NAME   STATUS   PRESENCE   SEEN"));
    assert!(list("wide").stdout.lines().next().unwrap().ends_with("LABELS    VERSION   KEY   ID"));
    assert_eq!(list("json").json()["items"][1]["name"], "us-1");
    assert!(list("yaml").stdout.starts_with("items:\n"), "{:?}", list("yaml"));
    list("name").prints_exactly("agent/eu-1\nagent/us-1\n");
    let bare = broker.brokkr(&["agent", "list", "--no-headers"]).exits(0);
    assert!(bare.stdout.starts_with("eu-1   ACTIVE"), "{bare:?}");
    broker.brokkr(&["agent", "list", "-o", "xml"]).exits(2).says("possible values");
}

#[test]
fn agents_are_filtered_by_labels_status_and_presence() {
    let broker = FakeBroker::start().on("GET /api/v1/agents", 200, page(&[]));
    let list = ["agent", "list", "-l", "env=prod", "--status", "inactive", "--presence", "silent"];
    broker.brokkr(&list).exits(0).prints_exactly("no agents match\n");
    let line = &broker.asked()[0].line;
    assert!(line.contains("?selector=env%3Dprod&status=INACTIVE&presence=silent&limit=500"), "{line}");
    broker.brokkr(&["agent", "list", "-l", ""]).exits(2).says("an empty selector would match every agent");
}

/// The first page of a longer list, with the total.
fn part(items: &[Value]) -> Value {
    json!({"items": items, "next": "x", "total": 8412})
}

#[test]
fn on_a_terminal_a_list_is_truncated_with_a_note() {
    let agents: Vec<Value> = (0..100).map(|number| agent(&format!("a{number}"))).collect();
    let summary = json!({"project": "default", "stack_id": STACK_ID, "stack_name": "web", "sequence_id": 42,
        "targeted": 8412, "holding": 8412, "pending": 3, "applied": 0, "healthy": 8400, "degraded": 0, "failed": 9,
        "blocked": 0, "removed": 0, "behind": 0, "sequences": []});
    let rows: Vec<Value> = (0..100).map(|number| row(&format!("a{number}"), 42, 42, "healthy")).collect();
    let versions: Vec<Value> = (0..100).map(object).collect();
    let stacks: Vec<Value> = (0..100).map(|_| stack(&[])).collect();
    let broker = FakeBroker::start()
        .on("GET /api/v1/agents", 200, part(&agents))
        .on("GET /api/v1/stacks", 200, part(&stacks))
        .on(&STATUS.replace("/status", "/status/summary"), 200, summary.clone())
        .on("GET /api/v1/stacks/web/status", 200, part(&rows))
        .on("GET /api/v1/stacks/web/status/summary", 200, summary)
        .on("GET /api/v1/stacks/web/deployment-objects", 200, part(&versions));
    let environment = [("BROKKR_SERVER", broker.url.as_str()), ("BROKKR_TOKEN", "brk_x"), ("COLUMNS", "120")];
    let shown = |arguments: &[&str]| {
        let ran = broker.run(arguments, &environment, "").exits(0);
        assert_eq!(ran.stdout.lines().count(), 101, "{ran:?}");
        ran
    };
    let hint = "showing 100 of 8,412; --limit 0 shows all\n";
    shown(&["agent", "list", "-l", "env=dev"]).says(hint);
    let lines: Vec<String> = broker.asked().into_iter().map(|asked| asked.line).collect();
    assert!(lines[0].ends_with("?selector=env%3Ddev&limit=100"), "{lines:?}");
    assert!(lines[1].ends_with("?selector=env%3Ddev&count=true&limit=1"), "{lines:?}");
    shown(&["status"]).says(hint);
    shown(&["status", "web"])
        .says("showing the first 100; --limit 0 shows all\n")
        .says("web targets 8,412 agents: 9 failed, 3 pending\n");
    shown(&["stack", "history", "web"]).says("showing the first 100; --limit 0 shows all\n");
    let quiet = shown(&["agent", "list", "--quiet"]);
    assert_eq!(quiet.stderr, "");
    broker.brokkr(&["status", "web", "--watch", "--limit", "5"]).exits(2);
}

#[test]
fn piped_output_is_complete_unless_a_limit_is_given() {
    let two_pages = || {
        FakeBroker::start().on("GET /api/v1/agents", 200, part(&[agent("eu-1")])).on(
            "GET /api/v1/agents",
            200,
            page(&[agent("us-1")]),
        )
    };
    let complete = |more: &[&str]| {
        let broker = two_pages();
        let ran = broker.brokkr(&[&["agent", "list"], more].concat()).exits(0);
        assert!(broker.asked()[0].line.ends_with("?limit=500"), "{:?}", broker.asked()[0]);
        assert_eq!((ran.stderr.as_str(), broker.asked().len()), ("", 2));
        ran
    };
    complete(&[]).prints("us-1");
    complete(&["-o", "name"]).prints_exactly("agent/eu-1\nagent/us-1\n");
    assert_eq!(complete(&["-o", "json"]).json()["next"], json!(null));
    complete(&["--limit", "0"]).prints("us-1");

    let broker = two_pages();
    let ran = broker.brokkr(&["agent", "list", "--limit", "1", "-o", "json"]).exits(0);
    assert_eq!((ran.json()["items"].as_array().unwrap().len(), &ran.json()["next"]), (1, &json!("x")));
    assert!(broker.asked()[0].line.ends_with("?limit=1") && ran.stderr.is_empty(), "{ran:?}");
}

#[test]
fn lines_are_cut_only_on_a_terminal() {
    let long = "word ".repeat(40);
    let broker = FakeBroker::start().on(
        "GET /api/v1/stacks/web/status",
        200,
        page(&[noted(row("a", 42, 42, "failed"), &long, "Deployment shop/web", "x")]),
    );
    let run = |columns: Option<&str>| -> Ran {
        let mut environment = vec![("BROKKR_SERVER", broker.url.as_str()), ("BROKKR_TOKEN", "brk_x")];
        environment.extend(columns.map(|columns| ("COLUMNS", columns)));
        broker.run(&["status", "web"], &environment, "").exits(0)
    };
    let row = |ran: &Ran| ran.stdout.lines().nth(1).unwrap().chars().count();
    assert!(row(&run(Some("80"))) <= 80 && row(&run(Some("80"))) > 70);
    assert!(row(&run(Some("160"))) <= 160 && row(&run(Some("160"))) > 150);
    assert!(row(&run(None)) > 200, "piped output is not cut");
    assert!(!run(None).stdout.contains('\u{1b}'), "no colours without a terminal");
}

#[test]
fn all_stacks_are_shown_with_their_counts() {
    let summary = json!({"project": "default", "stack_id": crate::sample::STACK_ID, "stack_name": "web", "sequence_id": 42,
        "targeted": 3, "holding": 3, "pending": 1, "applied": 0, "healthy": 1, "degraded": 0, "failed": 1, "blocked": 0,
        "removed": 0, "behind": 0, "sequences": []});
    let broker = FakeBroker::start().on("GET /api/v1/stacks", 200, page(&[stack(&["env=dev"])])).on(
        &STATUS.replace("/status", "/status/summary"),
        200,
        summary,
    );
    broker.brokkr(&["status"]).exits(0).prints("1/3       1 failed, 1 pending   env=dev");
    let ran = broker.brokkr(&["status", "-o", "json"]).exits(0);
    assert_eq!(
        (&ran.json()["items"][0]["name"], &ran.json()["items"][0]["summary"]["failed"]),
        (&"web".into(), &1.into())
    );
    broker.brokkr(&["status", "-o", "name"]).exits(0).prints_exactly("stack/web\n");
}

#[test]
fn a_ci_system_gets_groups_a_summary_and_outputs() {
    let broker = FakeBroker::start()
        .on("PUT /api/v1/stacks/web", 200, stack(&["env=dev"]))
        .on("POST /api/v1/stacks/web/deployment-objects", 201, object(42))
        .on(
            STATUS,
            200,
            page(&[noted(row("a", 42, 42, "failed"), "FieldImmutable", "Deployment shop/web", "50% done")]),
        );
    let file = |name: &str| broker.home.path().join(name).to_str().unwrap().to_owned();
    let (summary, output) = (file("summary"), file("output"));
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: shop}\n";
    let apply = ["apply", "web", "-f", "-", "--wait"];
    let logged_in = [("BROKKR_SERVER", broker.url.as_str()), ("BROKKR_TOKEN", "brk_x")];
    let github = [
        ("GITHUB_ACTIONS", "true"),
        ("GITHUB_STEP_SUMMARY", summary.as_str()),
        ("GITHUB_OUTPUT", output.as_str()),
    ];
    let ran = broker.run(&apply, &[logged_in.as_slice(), &github].concat(), manifest).exits(3);
    let ran = ran.says("::group::waiting for 42 of web\n").says("::endgroup::\n");
    ran.says("::error title=brokkr::version 42 failed on a%0A").says("50%25 done");
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "sequence_id=42\n");
    let summary = std::fs::read_to_string(&summary).unwrap();
    assert!(
        summary.starts_with("✖ **version 42 failed on a**\n") && summary.contains("submitted as version 42"),
        "{summary}"
    );
    let gitlab = [logged_in.as_slice(), &[("GITLAB_CI", "true")]].concat();
    let ran = broker.run(&apply, &gitlab, manifest).exits(3);
    ran.says("\u{1b}[0Ksection_start:")
        .says(":brokkr\r\u{1b}[0Kwaiting for 42 of web\n")
        .says("section_end:");
}

#[test]
fn the_named_project_is_sent_with_the_request() {
    let broker = broker();
    broker.brokkr(&["agent", "list", "--project", "shop"]).exits(0);
    assert_eq!(broker.asked()[0].headers["brokkr-project"], "shop");
    broker.brokkr(&["agent", "list"]).exits(0);
    assert!(!broker.asked()[1].headers.contains_key("brokkr-project"));
}

//! Completion with names from the broker, through a real bash; manual pages.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::fake_broker::FakeBroker;
use crate::sample::{agent, page, stack};

fn broker() -> FakeBroker {
    FakeBroker::start().on("GET /api/v1/stacks", 200, page(&[stack(&[])])).on(
        "GET /api/v1/agents",
        200,
        page(&[agent("eu-1"), agent("us-1")]),
    )
}

#[test]
fn names_come_from_the_broker_and_errors_are_silent() {
    let broker = broker();
    broker.brokkr(&["__complete", "--", "status", ""]).exits(0).prints_exactly("web\t\n");
    broker.brokkr(&["__complete", "--", "agent", "show", "e"]).exits(0).prints_exactly("eu-1\t\n");
    broker.brokkr(&["__complete", "--", "why", "agent/u"]).exits(0).prints_exactly("agent/us-1\t\n");
    broker.brokkr(&["__complete", "--", "--project", "shop", "stack", "history", ""]).exits(0);
    assert_eq!(broker.asked().last().unwrap().headers["brokkr-project"], "shop");
    broker
        .brokkr(&["__complete", "--", "rollb"])
        .exits(0)
        .prints("rollback\tRoll back a stack to an earlier version");
    let logged_out = broker
        .run(&["__complete", "--", "status", ""], &[("BROKKR_SERVER", "http://127.0.0.1:1")], "")
        .exits(0);
    assert_eq!((logged_out.stdout.as_str(), logged_out.stderr.as_str()), ("", ""));
}

#[test]
fn names_are_cached() {
    let broker = broker();
    let stacks = ["__complete", "--", "status", ""];
    let with = |more: &[(&str, &str)]| {
        let environment =
            [[("BROKKR_SERVER", broker.url.as_str()), ("BROKKR_TOKEN", "brk_x")].as_slice(), more].concat();
        broker.run(&stacks, &environment, "").exits(0).prints_exactly("web\t\n");
        broker.asked().len()
    };
    assert_eq!([with(&[]), with(&[])], [1, 1]);
    let folder = broker.home.path().join(".cache/brokkr/names");
    let files =
        || -> Vec<_> { std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect() };
    let [file] = files().try_into().unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!std::fs::read_to_string(&file).unwrap().contains("brk_"));

    assert_eq!(with(&[("BROKKR_TOKEN", "brk_y")]), 2, "another token may see other names");
    std::fs::write(&file, "{\"at\":\"2026-03-01T12:00:00Z\",\"names\":[\"old\"]}").unwrap();
    assert_eq!(with(&[]), 3, "an expired file is not used");
    std::fs::write(&file, "garbage").unwrap();
    assert_eq!([with(&[]), with(&[])], [4, 4]);
    let elsewhere = broker.home.path().join("elsewhere");
    let elsewhere = [("XDG_CACHE_HOME", elsewhere.to_str().unwrap())];
    assert_eq!([with(&elsewhere), with(&elsewhere)], [5, 5]);
    std::fs::write(broker.home.path().join("file"), "").unwrap();
    let nowhere = broker.home.path().join("file/below");
    let nowhere = [("XDG_CACHE_HOME", nowhere.to_str().unwrap())];
    assert_eq!([with(&nowhere), with(&nowhere)], [6, 7], "nothing can be cached there");
}

#[test]
fn bash_completes_words_after_an_equals_sign_too() {
    let broker = broker();
    let complete = |line: &str| {
        let script = r#"
            brokkr() { "$BROKKR_PROGRAM" "$@"; }
            source <(brokkr completion bash)
            COMP_POINT=${#COMP_LINE}
            _brokkr
            printf '%s\n' "${COMPREPLY[@]}"
        "#;
        let output = Command::new("bash")
            .args(["-c", script])
            .env("BROKKR_PROGRAM", env!("CARGO_BIN_EXE_brokkr"))
            .env("BROKKR_SERVER", &broker.url)
            .env("BROKKR_TOKEN", "brk_x")
            .env("HOME", broker.home.path())
            .env("COMP_LINE", line)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(complete("brokkr stat"), "status\n");
    assert_eq!(complete("brokkr stack history "), "web\n");
    assert_eq!(complete("brokkr events --agent=eu"), "eu-1\n", "bash replaces only the text after the sign");
    assert_eq!(complete("brokkr -o y"), "yaml\n");
    for shell in ["zsh", "fish"] {
        broker.brokkr(&["completion", shell]).exits(0).prints("__complete -- ");
    }
}

#[test]
fn every_command_gets_a_manual_page() {
    let broker = broker();
    let folder = broker.home.path().join("man1");
    broker.brokkr(&["man", folder.to_str().unwrap()]).exits(0).prints("pages written to");
    let page = std::fs::read_to_string(folder.join("brokkr-agent-label.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("labels of an agent"), "{page}");
}

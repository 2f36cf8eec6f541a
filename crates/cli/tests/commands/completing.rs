//! Completion with names from the broker, through a real bash; manual pages.

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
fn names_come_from_the_broker_and_its_absence_is_no_noise() {
    let broker = broker();
    broker.brokkr(&["__complete", "--", "status", ""]).exits(0).prints_exactly("web\t\n");
    broker.brokkr(&["__complete", "--", "agent", "show", "e"]).exits(0).prints_exactly("eu-1\t\n");
    broker.brokkr(&["__complete", "--", "why", "agent/u"]).exits(0).prints_exactly("agent/us-1\t\n");
    broker.brokkr(&["__complete", "--", "--project", "shop", "history", ""]).exits(0);
    assert_eq!(broker.asked().last().unwrap().headers["brokkr-project"], "shop");
    broker.brokkr(&["__complete", "--", "rollb"]).exits(0).prints("rollback\tGo back to an earlier version");
    let nobody = broker
        .run(&["__complete", "--", "status", ""], &[("BROKKR_SERVER", "http://127.0.0.1:1")], "")
        .exits(0);
    assert_eq!((nobody.stdout.as_str(), nobody.stderr.as_str()), ("", ""));
}

#[test]
fn bash_completes_words_behind_an_equals_sign_too() {
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
    assert_eq!(complete("brokkr history "), "web\n");
    assert_eq!(complete("brokkr events --agent=eu"), "eu-1\n", "bash replaces only what is behind the sign");
    assert_eq!(complete("brokkr -o y"), "yaml\n");
    for shell in ["zsh", "fish"] {
        broker
            .brokkr(&["completion", shell])
            .exits(0)
            .prints("brokkr __complete -- ".trim_start_matches("brokkr "));
    }
}

#[test]
fn every_command_gets_a_manual_page() {
    let broker = broker();
    let folder = broker.home.path().join("man1");
    broker.brokkr(&["man", folder.to_str().unwrap()]).exits(0).prints("pages written to");
    let page = std::fs::read_to_string(folder.join("brokkr-agent-label.1")).unwrap();
    assert!(page.starts_with(".TH BROKKR\\-AGENT\\-LABEL 1"), "{page}");
}

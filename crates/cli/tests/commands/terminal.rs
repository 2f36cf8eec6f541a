//! Behaviour on a terminal: a pseudo-terminal with typed input.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use nix::pty::{Winsize, openpty};

use crate::fake_broker::FakeBroker;
use crate::sample::{STACK_ID, STATUS, agent, noted, object, page, rollout, row, stack};
use crate::watching::broker_of_all;

/// Runs `brokkr` on a terminal and types `keys` once `prompt` is shown. Returns the exit status and the output.
fn on_terminal(
    broker: &FakeBroker,
    columns: u16,
    arguments: &[&str],
    more: &[(&str, &str)],
    prompt: &str,
    keys: &str,
) -> (i32, String) {
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).unwrap();
    let end = || Stdio::from(pty.slave.try_clone().unwrap());
    let mut child = Command::new(env!("CARGO_BIN_EXE_brokkr"))
        .args(arguments)
        .env_clear()
        .env("HOME", broker.home.path())
        .env("TERM", "xterm-256color")
        .env("BROKKR_SERVER", &broker.url)
        .env("BROKKR_TOKEN", "brk_x")
        .envs(more.iter().copied())
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap();
    drop(pty.slave);
    let mut terminal = File::from(pty.master);
    let (mut shown, mut typed, mut bytes) = (Vec::new(), prompt.is_empty(), [0; 4096]);
    // Reading fails once the other end of the terminal is closed.
    while let Ok(count) = terminal.read(&mut bytes) {
        if count == 0 {
            break;
        }
        shown.extend_from_slice(&bytes[..count]);
        if !typed && String::from_utf8_lossy(&shown).contains(prompt) {
            terminal.write_all(keys.as_bytes()).unwrap();
            typed = true;
        }
    }
    (child.wait().unwrap().code().unwrap(), String::from_utf8_lossy(&shown).replace("\r\n", "\n"))
}

fn broker() -> FakeBroker {
    FakeBroker::start()
        .on("GET /api/v1/stacks/web", 200, stack(&["env=dev"]))
        .on(STATUS, 200, page(&[row("eu-1", 42, 42, "healthy"), row("us-1", 42, 42, "healthy")]))
        .on(&format!("DELETE /api/v1/stacks/{STACK_ID}"), 200, object(50))
}

#[test]
fn a_deletion_shows_its_impact_and_requires_the_typed_name() {
    let broker = broker();
    let delete = |keys: &str| {
        on_terminal(&broker, 100, &["stack", "delete", "web"], &[], "Type web to continue: ", keys)
    };
    let (exit, shown) = delete("wbe\n");
    assert!(
        exit == 3 && shown.contains("is on 2 agents: eu-1, us-1. Its resources there will be deleted."),
        "{exit} {shown}"
    );
    assert!(shown.contains("not confirmed; nothing was changed"), "{shown}");
    let (exit, _) = delete("\u{4}");
    assert_eq!(exit, 3, "the end of input does not confirm");
    assert!(broker.asked().iter().all(|asked| !asked.line.starts_with("DELETE")));
    let (exit, shown) = delete("web\n");
    assert!(exit == 0 && shown.contains("stack web: deletion submitted as version 50"), "{exit} {shown}");
}

#[test]
fn a_typed_token_is_not_shown() {
    let broker = broker().on("GET /api/v1/whoami", 200, crate::sample::whoami());
    let login = ["login", &broker.url];
    let (exit, shown) = on_terminal(&broker, 100, &login, &[("BROKKR_TOKEN", "")], "Token: ", "brk_typed\n");
    assert!(exit == 0 && shown.contains("logged in to") && !shown.contains("brk_typed"), "{exit} {shown}");
    assert_eq!(broker.asked()[0].headers["authorization"], "Bearer brk_typed");
}

#[test]
fn colours_and_width_follow_the_terminal_unless_overridden() {
    let failed = noted(row("eu-1", 42, 42, "failed"), &"word ".repeat(40), "Deployment shop/web", "x");
    let broker = FakeBroker::start().on("GET /api/v1/stacks/web/status", 200, page(&[failed]));
    let status =
        |columns, more: &[(&str, &str)]| on_terminal(&broker, columns, &["status", "web"], more, "", "").1;
    let shown = status(80, &[]);
    assert!(shown.contains("\u{1b}[31mfailed"), "{shown:?}");
    let plain = status(80, &[("NO_COLOR", "1")]);
    assert!(!plain.contains("\u{1b}[31m"), "{plain:?}");
    let row = |text: &str| text.lines().nth(1).unwrap().chars().count();
    assert!((70..=80).contains(&row(&plain)), "{plain}");
    assert!((150..=160).contains(&row(&status(160, &[("NO_COLOR", "1")]))));
}

#[test]
fn no_question_is_asked_if_flags_answer_it() {
    let broker = broker().on("GET /api/v1/agents/eu-1", 200, agent("eu-1"));
    let (exit, shown) =
        on_terminal(&broker, 100, &["stack", "delete", "web", "--yes", "--expect", "2"], &[], "", "");
    assert!(exit == 0 && !shown.contains("Type"), "{exit} {shown}");
    let (exit, shown) =
        on_terminal(&broker, 100, &["agent", "revoke", "eu-1"], &[], "Type eu-1 to continue: ", "no\n");
    assert!(exit == 3 && shown.contains("will be refused"), "{exit} {shown}");
}

#[test]
fn a_rollback_shows_its_impact_and_asks() {
    let mut bad = object(42);
    bad["checksum"] = "bad0000000000000000000000000000000000000000000000000000000000000".into();
    bad["message"] = "new memory limit".into();
    let summary = serde_json::json!({"project": "default", "stack_id": STACK_ID, "stack_name": "web", "sequence_id": 42,
        "targeted": 7, "holding": 7, "pending": 0, "applied": 0, "healthy": 7, "degraded": 0, "failed": 0, "blocked": 0,
        "removed": 0, "behind": 0, "sequences": []});
    let mut superseded = object(41);
    superseded["checksum"] = "0e00000000000000000000000000000000000000000000000000000000000000".into();
    let rollouts = [rollout(42, "stopped", 1), rollout(41, "superseded", 2)];
    let broker = FakeBroker::start()
        .on("GET /api/v1/stacks/web/deployment-objects", 200, page(&[bad, superseded, object(40)]))
        .on("GET /api/v1/stacks/web/barred-contents", 200, page(&[]))
        .on("GET /api/v1/rollouts", 200, page(&rollouts))
        .on("GET /api/v1/stacks/web/status/summary", 200, summary)
        .on("POST /api/v1/stacks/web/roll-back", 201, object(43));
    let roll_back = |more: &[&str], prompt: &str, keys: &str| {
        on_terminal(&broker, 120, &[&["rollback", "web"], more].concat(), &[], prompt, keys)
    };
    let (exit, shown) = roll_back(&[], "Roll back? [y/N] ", "n\n");
    assert!(exit == 3 && shown.contains("on 7 agents"), "{exit} {shown}");
    assert!(shown.contains("from 42 (1 resource, sha256 bad000000000) (new memory limit)"), "{shown}");
    assert!(shown.contains("to   40 (1 resource"), "the version that every agent had: {shown}");
    assert!(broker.asked().iter().all(|asked| asked.line.starts_with("GET")), "nothing was rolled back");
    let (exit, shown) = roll_back(&[], "Roll back? [y/N] ", "y\n");
    assert!(exit == 0 && shown.contains("rolled back to 40"), "{exit} {shown}");
    let posted = broker.asked().into_iter().find(|asked| asked.line.starts_with("POST")).unwrap();
    assert_eq!(posted.body, br#"{"to":40,"keep_open":false,"reason":""}"#, "the version that was shown");
    let (exit, shown) = roll_back(&["--yes"], "", "");
    assert!(exit == 0 && !shown.contains("[y/N]"), "{exit} {shown}");
}

/// On a terminal, a status line is redrawn below the lines of progress. In a pipe, stderr has only the lines,
/// and stdout only the result.
#[test]
fn a_wait_is_redrawn_on_a_terminal_and_prints_lines_in_a_pipe() {
    let broker = || {
        FakeBroker::start()
            .on("PUT /api/v1/stacks/web", 200, stack(&["env=dev"]))
            .on("POST /api/v1/stacks/web/deployment-objects", 201, object(42))
            .on(STATUS, 200, page(&[row("eu-1", 42, 41, "healthy"), row("us-1", 42, 41, "healthy")]))
            .on(STATUS, 200, page(&[row("eu-1", 42, 42, "healthy"), row("us-1", 42, 42, "applied")]))
            .on(STATUS, 200, page(&[row("eu-1", 42, 42, "healthy"), row("us-1", 42, 42, "healthy")]))
    };
    let (on_screen, in_pipe) = (broker(), broker());
    let manifest = on_screen.home.path().join("web.yaml");
    std::fs::write(&manifest, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: shop}\n")
        .unwrap();
    let apply = ["apply", "web", "-f", manifest.to_str().unwrap(), "--wait"];

    let (exit, shown) = on_terminal(&on_screen, 100, &apply, &[], "", "");
    assert_eq!(exit, 0, "{shown}");
    assert!(
        shown.contains("1 of 2 agents healthy at version 42 · 1 applied"),
        "the status line shows the progress: {shown:?}"
    );
    assert!(shown.contains("\u{1b}[2K") || shown.contains("\u{1b}[1A"), "and is redrawn: {shown:?}");

    let ran = in_pipe.brokkr(&apply).exits(0);
    assert_eq!(ran.stdout, "stack web: submitted as version 42 (1 resource, sha256 9f2c00000000)\n");
    assert!(!ran.stderr.contains('\u{1b}'), "{:?}", ran.stderr);
    for line in ["  us-1  applied, 1/1 ready\n", "  us-1  healthy, 1/1 ready\n", "web is healthy on 2 agents"]
    {
        assert!(ran.stderr.contains(line), "{line:?} is not in {:?}", ran.stderr);
        assert!(shown.contains(line.trim_end()), "{line:?} is not in {shown:?}");
    }
}

#[test]
fn a_watch_of_all_stacks_is_one_table_that_is_redrawn_in_place() {
    let watch =
        |more: &[(&str, &str)]| on_terminal(&broker_of_all(), 100, &["status", "--watch"], more, "", "");
    let (exit, shown) = watch(&[("NO_COLOR", "1")]);
    assert_eq!(exit, 4, "{shown}");
    let (before, after) = shown.split_once("\u{1b}[2A\u{1b}[J").expect("moves two lines up and clears them");
    assert!(before.contains("1 pending") && !before.contains("1 failed"), "{shown:?}");
    assert!(after.starts_with("STACK") && after.contains("1 failed"), "{shown:?}");
    assert!(!shown.contains("\u{1b}[31m"), "{shown:?}");
    let (_, dumb) = watch(&[("TERM", "dumb")]);
    assert!(
        dumb.matches("STACK").count() == 1 && !dumb.contains("\u{1b}[2A"),
        "rows below each other: {dumb:?}"
    );
}

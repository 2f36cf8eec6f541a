//! `brokkr stack delete`: confirmation, waiting, and blocked deletions.

use crate::fake_broker::FakeBroker;
use crate::sample::{STACK_ID, STATUS, noted, object, page, row, stack};

fn broker() -> FakeBroker {
    FakeBroker::start().on("GET /api/v1/stacks/web", 200, stack(&["env=dev"])).on(
        &format!("DELETE /api/v1/stacks/{STACK_ID}"),
        200,
        object(50),
    )
}

#[test]
fn nothing_is_deleted_in_a_script_without_yes() {
    let broker = broker();
    broker.brokkr(&["stack", "delete", "web"]).exits(2).says("next: use --yes in scripts");
    assert!(broker.asked().iter().all(|asked| !asked.line.starts_with("DELETE")));
}

#[test]
fn the_wait_ends_when_every_agent_has_removed_it() {
    let broker = broker()
        .on(STATUS, 200, page(&[row("a", 42, 42, "healthy"), row("b", 42, 42, "healthy")]))
        .on(STATUS, 200, page(&[row("a", 50, 42, "removing"), row("b", 50, 50, "removed")]))
        .on(STATUS, 200, page(&[row("a", 50, 50, "removed"), row("b", 50, 50, "removed")]));
    let ran = broker.brokkr(&["stack", "delete", "web", "--yes", "--wait"]).exits(0);
    ran.prints("deletion submitted as version 50")
        .says("  a  removing\n")
        .says("web is removed from 2 agents");
}

#[test]
fn a_blocked_deletion_shows_the_reason() {
    let blocked = noted(
        row("a", 50, 50, "blocked"),
        "Finalizers",
        "ConfigMap shop/web",
        "waits for the finalizer example.com/keep",
    );
    let broker = broker().on(STATUS, 200, page(&[blocked]));
    let ran = broker.brokkr(&["stack", "delete", "web", "--yes", "--wait", "--timeout", "1s"]).exits(124);
    ran.says("web was not removed everywhere within 1s")
        .says("ConfigMap shop/web: waits for the finalizer example.com/keep");
}

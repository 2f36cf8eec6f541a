//! `brokkr delete stack`: asked for, waited for, and what blocks is named.

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
    broker.brokkr(&["delete", "stack", "web"]).exits(2).says("next: add --yes in scripts");
    assert!(broker.asked().iter().all(|asked| !asked.line.starts_with("DELETE")));
}

#[test]
fn the_wait_ends_when_every_agent_has_seen_it_gone() {
    let broker = broker()
        .on(STATUS, 200, page(&[row("a", 42, 42, "healthy"), row("b", 42, 42, "healthy")]))
        .on(STATUS, 200, page(&[row("a", 50, 42, "removing"), row("b", 50, 50, "removed")]))
        .on(STATUS, 200, page(&[row("a", 50, 50, "removed"), row("b", 50, 50, "removed")]));
    let ran = broker.brokkr(&["delete", "stack", "web", "--yes", "--wait"]).exits(0);
    ran.prints("deletion submitted as 50").says("  a  removing\n").says("web is gone from 2 agents");
}

#[test]
fn what_blocks_is_named() {
    let blocked = noted(
        row("a", 50, 50, "blocked"),
        "Finalizers",
        "ConfigMap shop/web",
        "waits for the finalizer example.com/keep",
    );
    let broker = broker().on(STATUS, 200, page(&[blocked]));
    let ran = broker.brokkr(&["delete", "stack", "web", "--yes", "--wait", "--timeout", "1s"]).exits(124);
    ran.says("web is not gone everywhere within 1s")
        .says("ConfigMap shop/web: waits for the finalizer example.com/keep");
}

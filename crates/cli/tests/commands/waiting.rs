//! `brokkr wait`: waits for one version.

use crate::fake_broker::FakeBroker;
use crate::sample::{STATUS, page, row, stack};

fn broker(sequence: Option<i64>, deleted: bool) -> FakeBroker {
    let mut web = stack(&["env=dev"]);
    web["sequence_id"] = sequence.into();
    if deleted {
        web["deleted_at"] = crate::sample::TIME.into();
    }
    FakeBroker::start().on("GET /api/v1/stacks/web", 200, web)
}

#[test]
fn it_waits_for_the_version_that_is_newest_at_the_start() {
    let broker = broker(Some(42), false)
        .on(STATUS, 200, page(&[row("a", 42, 41, "healthy")]))
        .on(STATUS, 200, page(&[row("a", 42, 42, "applied")]))
        .on(STATUS, 200, page(&[row("a", 42, 42, "healthy")]));
    broker.brokkr(&["wait", "web"]).exits(0).says("web is healthy on 1 agent");
}

#[test]
fn applied_is_less_than_healthy() {
    let broker = broker(Some(42), false).on(STATUS, 200, page(&[row("a", 42, 42, "applied")]));
    broker
        .brokkr(&["wait", "web", "--for", "applied", "--sequence", "42"])
        .exits(0)
        .says("web is applied on 1 agent");
    broker.brokkr(&["wait", "web", "--timeout", "1s"]).exits(124);
    let ran = broker.brokkr(&["wait", "web", "--for", "applied", "-o", "name"]).exits(0);
    assert_eq!(ran.stdout, "agent/a\n");
}

#[test]
fn waiting_for_a_missing_version_fails() {
    broker(Some(42), false)
        .brokkr(&["wait", "web", "--sequence", "43"])
        .exits(5)
        .says("web has no version 43");
    broker(None, false).brokkr(&["wait", "web"]).exits(5).says("the stack web has no version yet");
    broker(Some(50), true).brokkr(&["wait", "web"]).exits(6).says("brokkr wait web --for deleted");
    broker(Some(42), false).brokkr(&["wait", "web", "--for", "deleted"]).exits(6).says("web is not deleted");
}

#[test]
fn it_can_wait_for_an_earlier_deletion() {
    let broker = broker(Some(50), true).on(STATUS, 200, page(&[row("a", 50, 42, "removing")])).on(
        STATUS,
        200,
        page(&[row("a", 50, 50, "removed")]),
    );
    broker.brokkr(&["wait", "web", "--for", "deleted"]).exits(0).says("web is removed from 1 agent");
}

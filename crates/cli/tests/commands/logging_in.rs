//! `brokkr login`, and how other commands use the stored login.

use brokkr_api::ErrorCode;

use crate::fake_broker::FakeBroker;
use crate::sample::{page, whoami};

const WHOAMI: &str = "GET /api/v1/whoami";

#[test]
fn a_login_is_checked_stored_and_used() {
    let broker = FakeBroker::start().on(WHOAMI, 200, whoami()).on("GET /api/v1/agents", 200, page(&[]));
    let ran = broker.run(&["login", &broker.url, "--context", "lab"], &[], "brk_from-stdin\n").exits(0);
    let ran = ran.prints("as ana (admin in project default); context lab");
    assert!(!format!("{ran:?}").contains("brk_"));
    broker.run(&["agent", "list"], &[], "").exits(0).prints("no agents yet");
    let asked = broker.asked();
    assert_eq!(asked.last().unwrap().headers["authorization"], "Bearer brk_from-stdin");
}

#[test]
fn the_token_of_a_context_is_sent_only_to_its_broker() {
    let broker = FakeBroker::start().on(WHOAMI, 200, whoami());
    broker.run(&["login", &broker.url], &[("BROKKR_TOKEN", "brk_x")], "").exits(0);
    let other = FakeBroker::start().on(WHOAMI, 200, whoami());
    broker.run(&["whoami", "--server", &other.url], &[], "").exits(4).says("no token for");
    broker
        .run(&["whoami", "--server", &other.url, "--context", &broker.url["http://".len()..]], &[], "")
        .exits(4);
    assert!(other.asked().is_empty());
}

#[test]
fn a_refused_login_is_not_stored() {
    let broker = FakeBroker::start().refuses(WHOAMI, ErrorCode::BRK1001, "the token has expired");
    let ran = broker.run(&["login", &broker.url], &[], "brk_old").exits(4);
    let ran =
        ran.says("not authenticated (BRK1001)\n  the token has expired\n  next: log in with `brokkr login`");
    assert!(ran.stdout.is_empty());
    broker.run(&["status"], &[], "").exits(4).says("not logged in to any broker");
}

#[test]
fn exit_statuses_distinguish_errors() {
    let broker =
        FakeBroker::start().refuses("GET /api/v1/agents/none", ErrorCode::BRK2001, "there is no such agent");
    broker
        .brokkr(&["agent", "show", "none"])
        .exits(5)
        .says("cannot read the agent none: not found (BRK2001)");
    broker.brokkr(&["agent", "show", "Not A Name"]).exits(2);
    broker.brokkr(&["frobnicate"]).exits(2);
    broker.run(&["login", "http://127.0.0.1:1"], &[("BROKKR_TOKEN", "brk_x")], "").exits(7).says("refused");
    broker.run(&["status", "--context", "nowhere"], &[], "").exits(2).says("there is no context nowhere");
    broker.brokkr(&["version"]).exits(0).prints("brokkr ");
}

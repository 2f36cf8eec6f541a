//! Suggestions of similar names, and guards of deletions.

use brokkr_api::ErrorCode;

use crate::fake_broker::FakeBroker;
use crate::sample::{STACK_ID, STATUS, agent, object, page, row, stack};

#[test]
fn similar_names_are_suggested() {
    let broker = FakeBroker::start().on("GET /api/v1/stacks", 200, page(&[stack(&[])])).on(
        "GET /api/v1/agents",
        200,
        page(&[agent("store-0412"), agent("eu-1")]),
    );
    broker.brokkr(&["stack", "history", "wbe"]).exits(5).says("did you mean web?");
    broker.brokkr(&["agent", "show", "store-0421"]).exits(5).says("did you mean store-0412?");
    let far = broker.brokkr(&["stack", "history", "database"]).exits(5);
    assert!(!far.stderr.contains("did you mean"), "{far:?}");
    broker.brokkr(&["stauts"]).exits(2).says("similar").says("'status'");
}

#[test]
fn only_the_missing_name_is_searched() {
    let broker = FakeBroker::start()
        .refuses("GET /api/v1/stacks/web/agents/eu-2/why", ErrorCode::BRK2001, "there is no such agent")
        .on("GET /api/v1/stacks", 200, page(&[stack(&[])]))
        .on("GET /api/v1/agents", 200, page(&[agent("eu-1")]));
    broker.brokkr(&["why", "web", "--agent", "eu-2"]).exits(5).says("did you mean eu-1?");
}

#[test]
fn a_mass_deletion_requires_the_number_of_agents() {
    let rows: Vec<_> = (0..11).map(|number| row(&format!("a-{number}"), 42, 42, "healthy")).collect();
    let delete = format!("DELETE /api/v1/stacks/{STACK_ID}");
    let broker = FakeBroker::start()
        .on("GET /api/v1/stacks/web", 200, stack(&["env=dev"]))
        .on(STATUS, 200, page(&rows))
        .on(&delete, 200, object(50));
    let ran =
        broker.brokkr(&["stack", "delete", "web", "--yes"]).exits(6).says("web is on more than 10 agents");
    ran.says("a-0, a-1, a-2, a-3, a-4 and 6 more").says("next: to delete it anyway, use --yes --expect 11");
    broker.brokkr(&["stack", "delete", "web", "--yes", "--expect", "10"]).exits(6).says("--expect 11");
    assert!(broker.asked().iter().all(|asked| asked.line != delete), "nothing was deleted");
    broker.brokkr(&["stack", "delete", "web", "--yes", "--expect", "11"]).exits(0);
    assert!(broker.asked().iter().any(|asked| asked.line == delete));
}

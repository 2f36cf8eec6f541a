//! Upgrades of agents: how they begin, how they end, and what is shown of an agent.

use serde_json::{Value, json};

use crate::fake_broker::FakeBroker;
use crate::sample::{TIME, agent, page};

const BEGIN: &str = "POST /api/v1/agent-upgrades";
const ONE: &str = "GET /api/v1/agent-upgrades/42";
const IMAGE: &str =
    "registry.example/brokkr-agent@sha256:9f2c000000000000000000000000000000000000000000000000000000000000";

/// An upgrade of three agents, one of which has the version.
fn upgrade(state: &str, wave: u32) -> Value {
    json!({"id": 42, "image": IMAGE, "version": "1.2.3", "state": state, "wave": wave, "waves": 2,
        "policy": {"waves": [{"size": "1"}, {"size": "100%"}]},
        "figures": {"members": 3, "released": 1, "healthy": 1, "bad": 0, "excused": 0, "owed": 0, "waiting": 0, "in_flight": 0},
        "allowed_bad": 0, "in_flight_limit": 1, "soaked_seconds": 0, "created_by": "ana", "created_at": TIME, "ended_at": null})
}

fn with_bad(state: &str) -> Value {
    let mut upgrade = upgrade(state, 2);
    upgrade["figures"]["bad"] = 1.into();
    upgrade["figures"]["healthy"] = 0.into();
    upgrade
}

/// Begins an upgrade that goes through these states.
fn begin(states: &[Value], more: &[&str]) -> crate::fake_broker::Ran {
    let mut broker = FakeBroker::start().on(BEGIN, 201, upgrade("running", 1));
    for state in states {
        broker = broker.on(ONE, 200, state.clone());
    }
    broker.brokkr(&[&["agent", "upgrade", "--to", IMAGE, "--version", "1.2.3"], more].concat())
}

#[test]
fn an_upgrade_begins_with_an_image_a_version_and_waves() {
    let broker = FakeBroker::start().on(BEGIN, 201, upgrade("running", 1));
    let args = [
        "agent",
        "upgrade",
        "--to",
        IMAGE,
        "--version",
        "1.2.3",
        "-l",
        "env=dev",
        "--waves",
        "1,100%",
        "--soak",
        "1m",
    ];
    broker
        .brokkr(&args)
        .exits(0)
        .prints_exactly("upgrade 42 of agents to 1.2.3 has begun\n")
        .says("next: brokkr agent upgrade show 42\n");
    let body: Value = serde_json::from_slice(&broker.asked()[0].body).unwrap();
    let policy = json!({"waves": [{"size": "1"}, {"size": "100%"}], "soak_seconds": 60});
    assert_eq!(body, json!({"image": IMAGE, "version": "1.2.3", "selector": "env=dev", "policy": policy}));
    broker.brokkr(&["agent", "upgrade", "--to", IMAGE]).exits(2).says("--version");
    broker.brokkr(&["agent", "upgrade"]).exits(2);
}

#[test]
fn the_end_of_an_upgrade_has_an_exit_code() {
    let ran = begin(&[upgrade("soaking", 1), upgrade("completed", 2)], &["--wait"]).exits(0);
    let states: Vec<&str> =
        ran.stdout.lines().skip(1).filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert_eq!(states, ["running", "soaking", "completed"], "one row for each change: {}", ran.stdout);
    let mut stopped = with_bad("stopped");
    stopped["stop_reason"] = json!({"kind": "too_many_bad", "bad": 1, "allowed": 0});
    begin(&[stopped], &["--wait"])
        .exits(3)
        .says("error: the upgrade 42 of agents to 1.2.3 is stopped: 1 agent is bad, 0 allowed\n")
        .says("it was offered to 1 of 3 agents (1 bad)")
        .says("next: brokkr agent upgrade show 42 --agents; `brokkr agent upgrade resume 42` accepts the bad agents");
    begin(&[upgrade("superseded", 1)], &["--wait"]).exits(6);
    begin(&[with_bad("completed")], &["--wait"]).exits(8).says("with 1 bad agent");
    begin(&[upgrade("running", 1)], &["--wait", "--timeout", "1s"]).exits(124).says("is still running");
}

#[test]
fn an_upgrade_is_shown_listed_and_commanded() {
    let statuses =
        [json!({"agent": "eu-1", "version": "1.2.2", "released": true, "step": "restored", "step_at": TIME,
        "reason": {"kind": "not_started", "message": "ErrImagePull"}})];
    let broker = FakeBroker::start()
        .on("GET /api/v1/agent-upgrades", 200, page(&[upgrade("running", 1)]))
        .on(ONE, 200, upgrade("running", 1))
        .on("GET /api/v1/agent-upgrades/42/agents", 200, page(&statuses))
        .on("POST /api/v1/agent-upgrades/42/stop", 200, upgrade("stopped", 1))
        .on("POST /api/v1/agent-upgrades/42/pause", 200, upgrade("paused", 1));
    broker.brokkr(&["agent", "upgrade", "list", "-o", "name"]).exits(0).prints_exactly("agent-upgrade/42\n");
    broker.brokkr(&["agent", "upgrade", "show", "42"]).exits(0).prints("to 1 of 3 agents");
    broker
        .brokkr(&["agent", "upgrade", "show", "42", "--agents"])
        .exits(0)
        .prints("restored")
        .prints("the new Pod did not start: ErrImagePull");
    broker.brokkr(&["agent", "upgrade", "pause", "42"]).exits(0).prints_exactly("upgrade 42: paused\n");
    broker.brokkr(&["agent", "upgrade", "stop", "42"]).exits(2).says("--reason");
    broker
        .brokkr(&["agent", "upgrade", "stop", "42", "--reason", "a bug"])
        .exits(0)
        .prints_exactly("upgrade 42: stopped\n");
}

#[test]
fn an_agent_is_shown_with_the_last_step_of_its_upgrade() {
    let mut shown = agent("eu-1");
    shown["upgrade"] = json!({"id": 42, "version": "1.2.3", "step": "refused", "at": TIME, "reason": {"kind": "not_allowed"}});
    let broker = FakeBroker::start().on("GET /api/v1/agents/eu-1", 200, shown);
    broker
        .brokkr(&["agent", "show", "eu-1"])
        .exits(0)
        .prints("42 to 1.2.3 refused")
        .prints("the owner of the cluster has not allowed upgrades (join with --allow-upgrade)");
}

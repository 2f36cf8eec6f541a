//! Versions that are rolled out in waves: how long commands wait, and how they end.

use serde_json::{Value, json};

use crate::fake_broker::FakeBroker;
use crate::sample::{STATUS, object, page, rollout, row, stack};

const ROLLOUT: &str = "GET /api/v1/rollouts/42";
const MANIFEST: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: shop}\n";

/// Applies a version of which the first agent is healthy, with these answers about its rollout.
fn apply(rollouts: &[Value], more: &[&str]) -> crate::fake_broker::Ran {
    let rows = [row("a", 42, 42, "healthy"), row("b", 41, 41, "healthy"), row("c", 41, 41, "healthy")];
    let mut broker = FakeBroker::start()
        .on("PUT /api/v1/stacks/web", 200, stack(&["env=dev"]))
        .on("POST /api/v1/stacks/web/deployment-objects", 201, object(42))
        .on(STATUS, 200, page(&rows));
    for rollout in rollouts {
        broker = broker.on(ROLLOUT, 200, rollout.clone());
    }
    let environment = [("BROKKR_SERVER", broker.url.as_str()), ("BROKKR_TOKEN", "brk_x")];
    broker.run(&[&["apply", "web", "-f", "-"], more].concat(), &environment, MANIFEST)
}

fn with_bad(mut rollout: Value, bad: u64) -> Value {
    rollout["figures"]["bad"] = bad.into();
    rollout["figures"]["healthy"] = (1 - bad.min(1)).into();
    rollout
}

#[test]
fn apply_waits_for_the_first_wave_or_for_the_whole_rollout() {
    let (running, soaking) = (rollout(42, "running", 1), rollout(42, "soaking", 1));
    let ran = apply(&[running.clone(), soaking.clone()], &["--wait"]).exits(0);
    ran.says("  b  not released yet\n")
        .says("web is healthy on 1 agent")
        .says("the rollout goes on: brokkr rollout watch web");
    apply(&[running.clone(), soaking.clone()], &["--wait=rollout", "--timeout", "2s"]).exits(124);
    let ran = apply(&[running, soaking, rollout(42, "completed", 5)], &["--wait=rollout"]).exits(0);
    assert!(!ran.stderr.contains("goes on"), "{}", ran.stderr);
}

#[test]
fn the_end_of_a_rollout_has_an_exit_code() {
    let mut stopped = with_bad(rollout(42, "stopped", 1), 1);
    stopped["stop_reason"] = json!({"kind": "too_many_bad", "bad": 1, "allowed": 0});
    for wait in ["--wait", "--wait=rollout"] {
        let ran = apply(&[stopped.clone()], &[wait]).exits(3);
        ran.says("error: the rollout of web 42 is stopped: 1 agent is bad, 0 allowed\n")
            .says("released to 1 of 3 agents (1 bad); the others keep 41")
            .says("`brokkr rollback web`");
        let ran = apply(&[rollout(42, "superseded", 1)], &[wait]).exits(6);
        ran.says("42 was replaced by a newer version");
        apply(&[with_bad(rollout(42, "completed", 5), 2)], &[wait]).exits(8).says("with 2 bad agents");
    }
}

#[test]
fn a_rollout_is_watched_until_it_ends() {
    let watch = |states: &[Value]| {
        let mut broker =
            FakeBroker::start().on("GET /api/v1/rollouts", 200, page(&[rollout(42, "running", 1)]));
        for state in states {
            broker = broker.on(ROLLOUT, 200, state.clone());
        }
        broker.brokkr(&["rollout", "watch", "web"])
    };
    let ran =
        watch(&[rollout(42, "soaking", 1), rollout(42, "soaking", 1), rollout(42, "completed", 5)]).exits(0);
    let states: Vec<&str> =
        ran.stdout.lines().skip(1).filter_map(|line| line.split_whitespace().nth(4)).collect();
    assert_eq!(states, ["running", "soaking", "completed"], "one row for each change: {}", ran.stdout);
    watch(&[with_bad(rollout(42, "stopped", 1), 1)]).exits(3);
    watch(&[rollout(42, "superseded", 1)]).exits(6);
    watch(&[with_bad(rollout(42, "completed", 5), 1)]).exits(8);
}

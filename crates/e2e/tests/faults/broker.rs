//! Rows 43 and 44: a broker that is unavailable for long, or something in its place that returns invalid responses.

use anyhow::Result;
use brokkr_testkit::proxy::{Action, CannedResponse, Matcher, ProxiedRequest};
use brokkr_testkit::{Attempt, eventually};
use serde_json::{Value, json};

use crate::world::{FaultWorld, WAIT_TIMEOUT, summary};
use brokkr_e2e::runs_in_full;

const MAPS: [(&str, &str); 3] = [("a", "1"), ("b", "1"), ("c", "1")];
/// More reports than the agent stores for one stack.
const TOO_MANY: usize = 70;

fn is_poll(request: &ProxiedRequest) -> bool {
    request.path.ends_with("/target-state")
}

/// The broker is unavailable while states change. Afterwards everything is reported in order and once; what exceeds the
/// agent's storage is reported as a gap.
#[tokio::test]
async fn row_43_after_a_long_outage_the_broker_gets_every_report_or_a_marked_gap() -> Result<()> {
    let world = FaultWorld::start().await?;
    let group = format!("{}.faults.example", world.tag);
    let yaml = format!(
        "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: gears.{group}\n\
         spec:\n  group: {group}\n  scope: Namespaced\n  names: {{plural: gears, singular: gear, kind: Gear}}\n  \
         versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        \
         type: object\n        x-kubernetes-preserve-unknown-fields: true\n\
         ---\napiVersion: {group}/v1\nkind: Gear\nmetadata:\n  name: first\n  namespace: {}\nspec:\n  teeth: 12\n{}",
        world.namespace,
        world.config_maps_yaml(&MAPS),
    );
    let set_ready = async |ready: bool| {
        let status = json!({"status": {"conditions": [
            {"type": "Ready", "status": if ready { "True" } else { "False" }, "reason": "Turned", "message": "by hand"},
        ]}});
        let kind = format!("gears.{group}");
        let patch = status.to_string();
        world
            .cluster
            .kubectl(["patch", &kind, "first", "-n", &world.namespace, "--type=merge", "-p", &patch])
            .await?
            .ok()
    };
    world.fleet.submit("web", "env=prod", &yaml).await?;
    world.wait_until_reported_healthy("web").await?;
    let before = world.events("web").await?.len();

    let outage = world.broker_proxy.when(Matcher::any(), Action::Cut);
    let rounds = if runs_in_full() { TOO_MANY / 2 } else { 2 };
    for _ in 0..rounds {
        set_ready(false).await?;
        world.wait_until_recorded("degraded").await?;
        set_ready(true).await?;
        world.wait_until_recorded("healthy").await?;
    }
    // L5: the desired state is still enforced.
    world.edit("a", "drifted").await?;
    world.wait_for_value("a", "1").await?;
    let record = world.record().await?;
    let kept = record["status"]["reports"].as_array().map_or(0, Vec::len);
    assert!(kept <= 50, "S22: bounded, not {kept}");
    assert!(outage.hits() > 0, "the agent tried to reach the broker");
    assert_eq!(world.events("web").await?.len(), before, "nothing reached the broker");

    world.broker_proxy.heal();
    let expected = before + if runs_in_full() { 40 } else { rounds * 2 };
    let events = eventually(WAIT_TIMEOUT, "all transitions to be reported", async || {
        match world.events("web").await {
            Ok(events) if events.len() >= expected => Attempt::Done(events),
            other => Attempt::NotYet(format!("{} of {expected}", other.map_or(0, |events| events.len()))),
        }
    })
    .await?;
    if runs_in_full() {
        assert!(events.iter().any(|event| event.to_string().contains("gap")), "the gap is marked");
    } else {
        let turns = transitions(&events, &["degraded", "healthy"]);
        let expected = ["degraded", "healthy"].repeat(rounds);
        assert!(turns.ends_with(&expected), "every transition, in its order: {turns:?}");
    }
    let mut reported: Vec<String> =
        events.iter().map(|event| format!("{} {}", event["transition"], event["at"])).collect();
    reported.sort();
    let all = reported.len();
    reported.dedup();
    assert_eq!(reported.len(), all, "S12: nothing twice");
    world.delete_stack().await?;
    world.wait_until_deleted().await?;
    world.assert_invariants().await
}

/// Returns those of the transitions that were reported, by their time.
fn transitions<'a>(events: &'a [Value], of: &[&str]) -> Vec<&'a str> {
    let mut found: Vec<(&str, &str)> = events
        .iter()
        .filter_map(|event| Some((event["at"].as_str()?, event["transition"].as_str()?)))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, transition)| transition).filter(|transition| of.contains(transition)).collect()
}

/// Each wrong response is sent several times, and none of them deletes or changes anything.
#[tokio::test]
async fn row_44_invalid_responses_instead_of_the_brokers_change_nothing() -> Result<()> {
    let world = FaultWorld::start().await?;
    world.deliver(&MAPS).await?;
    let mark = world.api_proxy.mark();
    let empty = |_: &ProxiedRequest, body: bytes::Bytes| {
        let mut envelope: Value = serde_json::from_slice(&body).unwrap_or_default();
        if envelope.is_object() {
            envelope["stacks"] = json!([]);
        }
        bytes::Bytes::from(envelope.to_string())
    };
    let nonsense: [(&str, Action); 8] = [
        ("HTML", Action::Respond(CannedResponse::html())),
        ("nothing", Action::Respond(CannedResponse::json(200, ""))),
        ("an empty object", Action::Respond(CannedResponse::json(200, "{}"))),
        ("no stacks", Action::Respond(CannedResponse::json(200, r#"{"stacks":[]}"#))),
        ("half of it as if complete", Action::Truncate),
        ("half of it", Action::CutResponse),
        ("its own list, emptied", Action::change_body(empty)),
        ("not found", Action::Respond(CannedResponse::json(404, "{}"))),
    ];
    for (what, action) in nonsense {
        let rule = world.broker_proxy.when(Matcher::new(is_poll), action);
        // A restarted agent sends no ETag, so the broker sends a complete response, which can be altered.
        world.agent.restart()?;
        rule.wait_for_hits(3, WAIT_TIMEOUT).await.map_err(|error| error.context(what))?;
        let writes: Vec<_> = world.writes_since(mark).iter().map(summary).collect();
        assert!(writes.is_empty(), "S8: {what} made the agent write: {writes:?}");
        rule.release();
    }
    world.broker_proxy.heal();
    world.deliver(&[("a", "2"), ("b", "1")]).await?;
    world.assert_invariants().await
}

impl FaultWorld {
    /// Returns the agent's record of the stack `web`.
    async fn record(&self) -> Result<Value> {
        let names = self.record_names().await?;
        let name = names.first().ok_or_else(|| anyhow::anyhow!("no record"))?;
        self.cluster.kubectl(["get", "stacks.brokkr.io", name, "-o", "json"]).await?.ok()?.json()
    }

    /// Waits until the last transition in the record is this one.
    async fn wait_until_recorded(&self, transition: &str) -> Result<()> {
        eventually(WAIT_TIMEOUT, &format!("the record to say {transition}"), async || {
            match self.record().await {
                Ok(record) if record["status"]["outcome"]["transition"] == transition => Attempt::Done(()),
                other => Attempt::NotYet(format!("{:?}", other.map(|record| record["status"].clone()))),
            }
        })
        .await
    }
}

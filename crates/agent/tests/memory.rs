//! The memory of one live object: ten thousand of them, and everything else, must fit into 64 MiB.

use std::collections::BTreeMap;
use std::sync::Arc;

use brokkr_agent::health_rules::HealthRules;
use brokkr_agent::model::{Entry, Observed as _, Origin};
use brokkr_agent::observe::{Change, Index, Part, tracked};
use brokkr_agent::resource::{Kind, Served};
use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, StackId};
use brokkr_manifest::Key;
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

const OBJECTS: u32 = 10_000;

/// Returns the resident memory of this process. Counting allocations would need unsafe code, and would not
/// include the overhead of the allocator.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).expect("a number") * 1024
}

fn deployment() -> Kind {
    Kind::from(Served {
        group: "apps".into(),
        version: "v1".into(),
        kind: "Deployment".into(),
        plural: "deployments".into(),
        namespaced: true,
    })
}

/// Returns a Deployment as the API server sends it, without the parts that the agent skips.
fn live(key: &Key, agent: AgentId, stack: StackId, number: u32) -> Vec<u8> {
    json!({
        "metadata": {
            "name": key.name, "namespace": key.namespace, "uid": Uuid::new_v4(), "generation": 1,
            "resourceVersion": (1_000_000 + number).to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"brokkr.io/agent": agent, "app": key.name},
            "annotations": {
                "brokkr.io/stack-id": stack, "brokkr.io/checksum": Checksum::of(b"").to_string(),
                "brokkr.io/sequence": "12", "brokkr.io/id": key.to_string(),
            },
            "managedFields": [{
                "manager": "brokkr", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
                "time": "2026-01-01T00:00:00Z",
                "fieldsV1": {"f:spec": {"f:replicas": {}, format!("f:only-here-{number}"): {}}},
            }],
        },
        "spec": {"replicas": 3, "template": {"spec": {"containers": [{"image": "registry.example/web:1"}]}}},
        "status": {
            "observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
            "availableReplicas": 3, "conditions": [{"type": "Available", "status": "True"}],
        },
    })
    .to_string()
    .into_bytes()
}

#[test]
fn a_live_object_and_its_inventory_entry_cost_a_few_hundred_bytes() {
    let kind = deployment();
    let (agent, stack) = (AgentId::generate(), StackId::generate());
    let part = Arc::new(Part { kind: kind.name(), namespace: None });
    let mut index = Index::default();
    let mut inventory: BTreeMap<Key, Entry> = BTreeMap::new();
    let rules = HealthRules::default();
    let fill =
        |index: &mut Index, inventory: Option<&mut BTreeMap<Key, Entry>>, numbers: std::ops::Range<u32>| {
            let mut inventory = inventory;
            for number in numbers {
                let key: Key = format!("apps/Deployment/team-{}/web-{number}", number % 100).parse().unwrap();
                let seen =
                    tracked::read(&live(&key, agent, stack, number), &kind.name(), Timestamp::now(), &rules)
                        .unwrap();
                if let Some(inventory) = inventory.as_mut() {
                    let entry = Entry {
                        wave: 0,
                        kind: deployment(),
                        origin: Origin::Created,
                        uid: Some(seen.uid.clone()),
                        digest: Some(Checksum::of(&number.to_be_bytes())),
                        fields: seen.fields,
                        completed: false,
                    };
                    inventory.insert(key.clone(), entry);
                }
                index.absorb(Change::Present(key, Box::new(seen)));
            }
        };
    // One-time allocations happen before the measurement.
    fill(&mut Index::default(), None, 0..500);

    index.absorb(Change::Listing(part.clone()));
    let before = resident();
    fill(&mut index, None, 0..OBJECTS);
    let indexed = resident();
    fill(&mut index, Some(&mut inventory), OBJECTS..2 * OBJECTS);
    let both = resident();
    index.absorb(Change::Listed(part));
    assert!(index.synced(&"apps/Deployment/team-0/any".parse().unwrap()));
    assert_eq!(index.orphans(|key| inventory.contains_key(key)).len(), OBJECTS as usize);

    let per_object = |from: usize, to: usize| to.saturating_sub(from) / OBJECTS as usize;
    let (alone, with_entry) = (per_object(before, indexed), per_object(indexed, both));
    // The key is the larger half of an entry: four strings, and spare capacity in a tree that is half full.
    println!("bytes per object: index {alone}, index and inventory entry {with_entry}");
    assert!((50..350).contains(&alone), "{alone} bytes in the index");
    assert!((100..1000).contains(&with_entry), "{with_entry} bytes in the index and the inventory");
}

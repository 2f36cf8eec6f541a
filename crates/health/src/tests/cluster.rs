//! Service, Ingress, PersistentVolumeClaim, Namespace, definitions, APIs.

use serde_json::json;

use super::super::HealthState::{Failed, Progressing, Ready, Terminating, Unknown};
use super::*;

#[test]
fn a_service_is_ready_without_an_address_of_a_load_balancer() {
    let balanced = || json!({ "type": "LoadBalancer", "clusterIP": "10.0.0.1" });
    let address = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } });
    expect(
        "Service",
        &[
            (Ready, "Applied", "applied", json!({ "type": "ClusterIP" }), json!({})),
            (Ready, "Applied", "applied", json!({ "type": "ExternalName" }), json!({})),
            (
                Progressing,
                "NoClusterAddress",
                "no cluster address yet",
                json!({ "type": "LoadBalancer" }),
                json!({}),
            ),
            (
                Ready,
                "WaitingForAddress",
                "works in the cluster; the load balancer has no address yet",
                balanced(),
                json!({ "loadBalancer": {} }),
            ),
            (Ready, "Ready", "the load balancer has an address", balanced(), address),
        ],
    );
}

#[test]
fn a_claim_that_waits_for_its_first_consumer_is_ready() {
    let none = || json!(null);
    let waiting = "not bound yet; may be waiting for its first consumer";
    expect(
        "PersistentVolumeClaim",
        &[
            (Ready, "Bound", "bound", none(), json!({ "phase": "Bound" })),
            (Ready, "WaitingForConsumer", waiting, none(), json!({ "phase": "Pending" })),
            (Failed, "Lost", "its volume no longer exists", none(), json!({ "phase": "Lost" })),
            (
                Unknown,
                "UnknownPhase",
                "in a phase that Brokkr does not know",
                none(),
                json!({ "phase": "Resting" }),
            ),
        ],
    );
    // Its consumer exists, or its class does not wait for one: the volume is being provisioned.
    for name in ["volume.kubernetes.io/selected-node", "volume.kubernetes.io/storage-provisioner"] {
        let annotations = BTreeMap::from([(name.to_owned(), "x".to_owned())]);
        let judge = |phase| {
            judge_annotated(&annotations, 0, "PersistentVolumeClaim", none(), json!({ "phase": phase }))
        };
        assert_eq!(judge("Pending"), Health::progressing("Provisioning", "its volume is being created"));
        assert_eq!(judge("Bound").state, Ready);
    }
}

#[test]
fn an_ingress_is_ready_without_an_address() {
    let address = json!({ "loadBalancer": { "ingress": [{ "hostname": "lb.example.com" }] } });
    let no_address = "applied; no controller has reported an address yet";
    expect(
        "networking.k8s.io/Ingress",
        &[
            (Ready, "WaitingForAddress", no_address, json!({}), json!({ "loadBalancer": {} })),
            (Ready, "WaitingForAddress", no_address, json!({}), json!(null)),
            (Ready, "Ready", "has an address", json!({}), address),
        ],
    );
}

#[test]
fn namespaces_and_definitions_are_ready_when_others_can_use_them() {
    let none = || json!(null);
    let conditions = |conditions: &[Value]| json!({ "conditions": conditions });
    expect(
        "Namespace",
        &[
            (Ready, "Active", "active", none(), json!({ "phase": "Active" })),
            (Terminating, "Terminating", "being deleted", none(), json!({ "phase": "Terminating" })),
            (Progressing, "NotActive", "not active yet", none(), none()),
        ],
    );
    expect(
        "apiextensions.k8s.io/CustomResourceDefinition",
        &[
            (Progressing, "Installing", "not established yet", none(), none()),
            (
                Progressing,
                "Installing",
                "not established yet",
                none(),
                conditions(&[condition("Established", "False", "Installing")]),
            ),
            (
                Ready,
                "Established",
                "established",
                none(),
                conditions(&[condition("NamesAccepted", "True", ""), condition("Established", "True", "")]),
            ),
            (
                Failed,
                "PluralConflict",
                "details",
                none(),
                conditions(&[condition("NamesAccepted", "False", "PluralConflict")]),
            ),
            (
                Failed,
                "NotAccepted",
                "details",
                none(),
                conditions(&[condition("Established", "False", "NotAccepted")]),
            ),
        ],
    );
    expect(
        "apiregistration.k8s.io/APIService",
        &[
            (Progressing, "NotAvailable", "not available yet", none(), none()),
            (
                Progressing,
                "MissingEndpoints",
                "details",
                none(),
                conditions(&[condition("Available", "False", "MissingEndpoints")]),
            ),
            (Ready, "Available", "available", none(), conditions(&[condition("Available", "True", "")])),
        ],
    );
}

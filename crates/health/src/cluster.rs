//! Service, Ingress, PersistentVolumeClaim, Namespace, CustomResourceDefinition and APIService.

use jiff::Timestamp;
use serde_json::Value;

use super::conditions::{find, find_true};
use super::verdict::{Health, HealthState, ObjectView, text};

/// A load balancer address is not required: many clusters never assign one, and the Service works in the cluster
/// without it.
pub(super) fn service(object: &ObjectView<'_>, _: Timestamp) -> Health {
    if text(object.spec, "type") != "LoadBalancer" {
        return Health::ready("Applied", "applied");
    }
    if text(object.spec, "clusterIP").is_empty() {
        return Health::progressing("NoClusterAddress", "no cluster address yet");
    }
    if has_address(object.status) {
        Health::ready("Ready", "the load balancer has an address")
    } else {
        Health::ready("WaitingForAddress", "works in the cluster; the load balancer has no address yet")
    }
}

/// An address is not required: some controllers set none, and the Ingress does not show which controller it has.
pub(super) fn ingress(object: &ObjectView<'_>, _: Timestamp) -> Health {
    if has_address(object.status) {
        Health::ready("Ready", "has an address")
    } else {
        Health::ready("WaitingForAddress", "applied; no controller has reported an address yet")
    }
}

fn has_address(status: &Value) -> bool {
    let addresses = status.pointer("/loadBalancer/ingress").and_then(Value::as_array);
    addresses.is_some_and(|addresses| !addresses.is_empty())
}

/// Annotations on a claim with a volume that is being provisioned, because its class does not wait or its first
/// consumer exists.
const PROVISIONING: [&str; 3] = [
    "volume.kubernetes.io/selected-node",
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
];

/// A claim that waits for its first consumer counts as ready; otherwise stacks with such a StorageClass would never
/// become healthy. The StorageClass is not read here, but such a claim has no provisioning annotations.
pub(super) fn claim(object: &ObjectView<'_>, _: Timestamp) -> Health {
    match text(object.status, "phase") {
        "Bound" => Health::ready("Bound", "bound"),
        "Lost" => Health::failed("Lost", "its volume no longer exists"),
        "" | "Pending" if PROVISIONING.iter().any(|name| object.annotations.contains_key(*name)) => {
            Health::progressing("Provisioning", "its volume is being created")
        }
        "" | "Pending" => {
            Health::ready("WaitingForConsumer", "not bound yet; may be waiting for its first consumer")
        }
        _ => Health::new(HealthState::Unknown, "UnknownPhase", "in a phase that Brokkr does not know"),
    }
}

pub(super) fn namespace(object: &ObjectView<'_>, _: Timestamp) -> Health {
    match text(object.status, "phase") {
        "Active" => Health::ready("Active", "active"),
        "Terminating" => Health::new(HealthState::Terminating, "Terminating", "being deleted"),
        _ => Health::progressing("NotActive", "not active yet"),
    }
}

pub(super) fn definition(object: &ObjectView<'_>, _: Timestamp) -> Health {
    if let Some(names) = find(object, "NamesAccepted").filter(|names| names.is_false()) {
        return names.failed("NamesNotAccepted", "its names are already in use");
    }
    match find(object, "Established") {
        Some(established) if established.is_true() => Health::ready("Established", "established"),
        Some(established) if established.is_false() && established.reason() != "Installing" => {
            established.failed("NotEstablished", "cannot be established")
        }
        _ => Health::progressing("Installing", "not established yet"),
    }
}

pub(super) fn api_service(object: &ObjectView<'_>, _: Timestamp) -> Health {
    if find_true(object, "Available").is_some() {
        return Health::ready("Available", "available");
    }
    match find(object, "Available") {
        Some(available) => available.progressing("NotAvailable", "not available"),
        None => Health::progressing("NotAvailable", "not available yet"),
    }
}

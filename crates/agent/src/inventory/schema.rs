//! What the API server and `kubectl` know about a record: its columns, its fields, and what they mean.
//!
//! Fields that are not listed here are kept all the same: an agent that is newer than the definition in
//! its cluster must not lose what it writes.

use serde_json::{Value, json};

use super::wire;

/// The definition of `stacks.brokkr.io`. Reads well with `kubectl get`, `describe` and `explain`.
#[must_use]
pub fn definition() -> Value {
    let column = |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", wire::PLURAL, wire::GROUP)},
        "spec": {
            "group": wire::GROUP, "scope": "Cluster",
            "names": {"plural": wire::PLURAL, "singular": "stack", "kind": wire::KIND, "listKind": "StackList"},
            "versions": [{
                "name": wire::VERSION, "served": true, "storage": true,
                "additionalPrinterColumns": [
                    column("Project", "string", ".spec.project"),
                    column("Stack", "string", ".spec.stack"),
                    column("Sequence", "integer", ".spec.sequence"),
                    column("Ready", "string", ".status.readiness"),
                    column("State", "string", ".status.state"),
                    column("Message", "string", ".status.message"),
                    column("Age", "date", ".metadata.creationTimestamp"),
                ],
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "What Brokkr's agent knows about one stack. Written by the agent alone; deleting it \
                                    deletes no resource, and it is made again.",
                    "required": ["spec"],
                    "properties": {"spec": spec(), "status": status()},
                }},
            }],
        },
    })
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn number(description: &str) -> Value {
    json!({"type": "integer", "format": "int64", "description": description})
}

/// An object with these fields, and any others.
fn open(description: &str, required: &[&str], properties: Value) -> Value {
    json!({
        "type": "object", "description": description, "required": required, "properties": properties,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

fn list(description: &str, items: Value) -> Value {
    json!({"type": "array", "description": description, "items": items})
}

fn spec() -> Value {
    let shard = open(
        "",
        &["name", "digest"],
        json!({
            "name": text("ConfigMap in the agent's namespace."),
            "digest": text("SHA-256 of what is in it."),
        }),
    );
    let inventory = open(
        "What the stack owns in this cluster.",
        &["entries"],
        json!({
            "entries": number("How many resources."),
            "packed": text("The entries, compressed, if they are few."),
            "shards": list("Where the entries are, if they are many.", shard),
        }),
    );
    open(
        "What was intended. Never goes back to an older sequence id.",
        &["agentId", "stackId", "stack", "project", "sequence", "session", "inventory"],
        json!({
            "agentId": text("The agent that keeps this record."),
            "project": text("Who owns the stack."),
            "stack": text("The stack's name."),
            "stackId": text("The stack's id."),
            "sequence": number("The highest sequence id that was ever intended."),
            "removal": text("Why the stack is being removed, if it is."),
            "checksum": text("SHA-256 of the deployment object that the resources are stamped with."),
            "stamp": number("The sequence id that the resources are stamped with."),
            "session": number("Which run of the agent wrote this."),
            "inventory": inventory,
        }),
    )
}

fn status() -> Value {
    let condition = open(
        "",
        &["type", "status"],
        json!({
            "type": text("What it is about: Accepted, Applied, Ready, …"),
            "status": text("True, False or Unknown."),
            "reason": text("One word for programs."),
            "message": text("One sentence for people."),
            "observedSequence": number("The sequence id that it is about."),
            "lastTransitionTime": {"type": "string", "format": "date-time", "description": "Since when."},
        }),
    );
    open(
        "How far it came.",
        &[],
        json!({
            "applied": number("The sequence id that was applied completely."),
            "ready": number("Resources that are ready."),
            "total": number("Resources of the deployment object."),
            "readiness": text("Ready of total."),
            "state": text("The last transition."),
            "message": text("What it said."),
            "hops": open("When each stage was reached.", &[], json!({})),
            "outcome": open("The last thing that was reported.", &[], json!({})),
            "conditions": list("What is said of the stack as a whole.", condition),
            "reports": list("What the broker has not acknowledged yet.", open("", &[], json!({}))),
        }),
    )
}

//! Refuses objects that no stack may contain, for any user (promise C6).
//!
//! The broker refuses them at submission, and the agent again before it applies. Otherwise a stack could own and later
//! prune a system namespace, or weaken Brokkr's own rights and fence.

use serde_json::Value;

use crate::error::Problem;
use crate::identity::Identity;

/// The domain of Brokkr's kinds, labels and annotations.
pub const DOMAIN: &str = "brokkr.io";

/// The default namespace of the agent. An agent in another one refuses objects there itself.
pub const OWN_NAMESPACE: &str = "brokkr-system";

/// Namespaces that exist in every cluster. Objects in them may be part of a stack, the namespaces themselves may not.
pub const SYSTEM_NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "default"];

/// Labels and annotations under [`DOMAIN`] that the agent sets. Users may set the others:
/// `brokkr.io/prune`, `brokkr.io/yield`, `brokkr.io/replace` and `brokkr.io/wave`.
pub const RESERVED_METADATA: [&str; 5] = ["agent", "stack-id", "checksum", "sequence", "id"];

/// Returns all reasons why this object cannot be part of a stack.
pub fn problems(identity: &Identity, body: &Value) -> Vec<Problem> {
    let mut problems: Vec<_> = object_refused(identity, body).into_iter().collect();
    for (field, kind) in [("labels", "label"), ("annotations", "annotation")] {
        let entries =
            body.get("metadata").and_then(|metadata| metadata.get(field)).and_then(Value::as_object);
        problems.extend(
            entries
                .into_iter()
                .flat_map(|entries| entries.keys())
                .filter(|name| is_reserved(name))
                .map(|name| Problem::ReservedMetadata { kind, name: name.clone() }),
        );
    }
    problems
}

fn object_refused(identity: &Identity, body: &Value) -> Option<Problem> {
    let own = |what| Some(Problem::BelongsToBrokkr { what });
    let Identity { group, kind, name, .. } = identity;

    if identity.namespace.as_deref() == Some(OWN_NAMESPACE) {
        return own("an object in Brokkr's own namespace");
    }
    if is_own_domain(group) {
        return own("an object of Brokkr's own kinds");
    }
    match (group.as_str(), kind.as_str()) {
        ("", "Namespace") if name == OWN_NAMESPACE => own("Brokkr's own namespace"),
        ("", "Namespace") if SYSTEM_NAMESPACES.contains(&name.as_str()) => {
            Some(Problem::SystemNamespace { name: name.clone() })
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition")
            if is_own_domain(name)
                || body.pointer("/spec/group").and_then(Value::as_str).is_some_and(is_own_domain) =>
        {
            own("the CustomResourceDefinition of Brokkr's own kinds")
        }
        // An APIService could redirect requests for Brokkr's kinds to another server.
        ("apiregistration.k8s.io", "APIService") if is_own_domain(name) => {
            own("the API of Brokkr's own kinds")
        }
        ("rbac.authorization.k8s.io", _) if has_own_prefix(name) => {
            own("a role or binding with a name that is reserved for Brokkr")
        }
        // With one of them, a stack could remove or weaken the fence, and no admission policy applies to them.
        ("admissionregistration.k8s.io", kind) if kind.contains("AdmissionPolicy") => {
            own("an admission policy")
        }
        ("admissionregistration.k8s.io", _) if has_own_prefix(name) => {
            own("an admission rule with a name that is reserved for Brokkr")
        }
        _ => None,
    }
}

fn is_own_domain(name: &str) -> bool {
    name.strip_suffix(DOMAIN).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

fn has_own_prefix(name: &str) -> bool {
    name == "brokkr" || name.starts_with("brokkr-") || name.starts_with("brokkr:")
}

fn is_reserved(name: &str) -> bool {
    name.strip_prefix(DOMAIN)
        .and_then(|rest| rest.strip_prefix('/'))
        .is_some_and(|name| RESERVED_METADATA.contains(&name))
}

//! The roles that a stack grants and binds.
//!
//! With the profile `platform`, Kubernetes lets the agent bind every role. The fence refuses roles by name, but it cannot
//! see who delivered one. So before the first write, the agent checks that each bound role was delivered by itself, or is
//! listed: in [`BINDABLE`], or by `--allow-role`.

use brokkr_api::AgentId;
use brokkr_api::reason::Reason;
use brokkr_api::report::ObjectNote;
use brokkr_manifest::Key;
use serde_json::Value;

use super::request::Cluster;
use super::rights::Rights;
use crate::model::Content;
use crate::ownership::AGENT_LABEL;
use crate::resource::object_ref;

const GROUP: &str = "rbac.authorization.k8s.io";
/// Roles of Kubernetes that every stack may bind. The fence allows `admin` and `edit` only within a namespace.
const BINDABLE: [&str; 5] = [
    "view",
    "edit",
    "admin",
    "system:auth-delegator",
    "kube-system/extension-apiserver-authentication-reader",
];
/// At most this many rules of a refused role are named.
const NAMED_RULES: usize = 5;

/// Returns notes about the bindings of a role that this agent did not deliver. What cannot be checked counts as not
/// delivered.
pub async fn undelivered(
    rights: &Rights,
    cluster: &Cluster,
    agent: AgentId,
    content: &Content,
) -> Vec<ObjectNote> {
    let mut notes = Vec::new();
    for desired in content.objects.values() {
        let Some(role) = bound_role(&desired.key, || desired.body.to_value()) else { continue };
        let name = role_name(&role);
        if content.objects.contains_key(&role)
            || BINDABLE.contains(&name.as_str())
            || rights.allow_role(cluster, &name).await
            || is_delivered(cluster, agent, &role).await
        {
            continue;
        }
        let reason = Reason::RoleNotDelivered { role: name };
        notes.push(ObjectNote { object: object_ref(&desired.key), message: reason.message(), reason });
    }
    notes
}

/// Returns the role that a binding names; none for other objects.
fn bound_role(key: &Key, body: impl FnOnce() -> Value) -> Option<Key> {
    if key.group != GROUP || !key.kind.ends_with("Binding") {
        return None;
    }
    let body = body();
    let field = |name: &str| body["roleRef"][name].as_str().map(ToOwned::to_owned);
    let kind = field("kind")?;
    let namespace = key.namespace.clone().filter(|_| kind == "Role");
    Some(Key { group: GROUP.to_owned(), kind, namespace, name: field("name")? })
}

/// Returns the name as the fence and `--allow-role` write it.
fn role_name(role: &Key) -> String {
    role.namespace
        .as_ref()
        .map_or_else(|| role.name.clone(), |namespace| format!("{namespace}/{}", role.name))
}

async fn is_delivered(cluster: &Cluster, agent: AgentId, role: &Key) -> bool {
    let of_namespace = role.namespace.as_ref().map(|name| format!("namespaces/{name}/")).unwrap_or_default();
    let plural = if role.namespace.is_some() { "roles" } else { "clusterroles" };
    let path = format!("/apis/{GROUP}/v1/{of_namespace}{plural}/{}", role.name);
    let label = |found: &Value| found["metadata"]["labels"][AGENT_LABEL].as_str().map(ToOwned::to_owned);
    let found = cluster.read(&path).await.ok().flatten();
    found.and_then(|found| label(&found)) == Some(agent.to_string())
}

/// Returns the reason if the API server refused a role because its rules exceed the account's own permissions. The message
/// has one rule in each line after the first: `{APIGroups:["apps"], Resources:["deployments"], Verbs:["get" "list"]}`
#[must_use]
pub fn grants_too_much(message: &str) -> Option<Reason> {
    let (before, rules) =
        message.split_once("is attempting to grant RBAC permissions not currently held:")?;
    let user = before.split_once("user \"").and_then(|(_, rest)| Some(rest.split_once('"')?.0.to_owned()));
    let account = user.filter(|user| !user.ends_with(":brokkr-agent"));
    let rules = rules.lines().filter_map(rule).take(NAMED_RULES).collect();
    Some(Reason::GrantsTooMuch { account, rules })
}

fn rule(line: &str) -> Option<String> {
    let list = |field: &str| -> Option<String> {
        let quoted = line.split_once(field)?.1.split_once(']')?.0;
        let words =
            quoted.split('"').skip(1).step_by(2).map(|word| if word.is_empty() { "core" } else { word });
        Some(words.collect::<Vec<_>>().join(", "))
    };
    let verbs = list(" Verbs:[")?;
    Some(match (list(" Resources:["), list("APIGroups:[")) {
        (Some(resources), Some(groups)) => format!("{verbs} on {resources} in {groups}"),
        _ => format!("{verbs} on {}", list("NonResourceURLs:[")?),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_that_may_not_be_granted_are_named() {
        let message = |user: &str| {
            format!(
                "roles.rbac.authorization.k8s.io \"a\" is forbidden: user \"{user}\" (groups=[\"system:serviceaccounts\"]) is \
                 attempting to grant RBAC permissions not currently held:\n{{APIGroups:[\"\"], Resources:[\"nodes\" \
                 \"pods/exec\"], Verbs:[\"get\" \"list\"]}}\n{{NonResourceURLs:[\"/metrics\"], Verbs:[\"get\"]}}"
            )
        };
        let rules = vec!["get, list on nodes, pods/exec in core".to_owned(), "get on /metrics".to_owned()];
        let own = grants_too_much(&message("system:serviceaccount:home:brokkr-agent"));
        assert_eq!(own, Some(Reason::GrantsTooMuch { account: None, rules: rules.clone() }));
        let shop = "system:serviceaccount:shop:brokkr-shop";
        let of_shop = grants_too_much(&message(shop));
        assert_eq!(of_shop, Some(Reason::GrantsTooMuch { account: Some(shop.to_owned()), rules }));
        assert_eq!(grants_too_much("configmaps \"a\" is forbidden: User \"jo\" cannot create it"), None);
    }

    #[test]
    fn a_binding_names_a_cluster_role_or_a_role_of_its_namespace() {
        let role = |key: &str, kind: &str| {
            let body = json!({"roleRef": {"kind": kind, "name": "web"}});
            bound_role(&key.parse().unwrap(), || body).map(|role| role_name(&role))
        };
        let binding = "rbac.authorization.k8s.io/RoleBinding/shop/a";
        assert_eq!(role(binding, "Role").as_deref(), Some("shop/web"));
        assert_eq!(role(binding, "ClusterRole").as_deref(), Some("web"));
        assert_eq!(
            role("rbac.authorization.k8s.io/ClusterRoleBinding//a", "ClusterRole").as_deref(),
            Some("web")
        );
        assert_eq!(role("rbac.authorization.k8s.io/Role/shop/a", "Role"), None);
        assert_eq!(role("example.com/RoleBinding/shop/a", "Role"), None);
    }
}

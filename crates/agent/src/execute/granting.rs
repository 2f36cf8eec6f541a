//! What a binding grants, and which rules of a role the API server refused. Without I/O.

use brokkr_api::reason::Reason;
use brokkr_manifest::Key;
use serde_json::Value;

pub const GROUP: &str = "rbac.authorization.k8s.io";

/// At most this many rules of a refused role are named.
const NAMED_RULES: usize = 5;

/// Returns the role that a binding names; none for other objects. Without a role in the manifest, the name is empty: such a
/// manifest could still change an existing binding.
#[must_use]
pub fn bound_role(key: &Key, body: &Value) -> Option<Key> {
    if key.group != GROUP || !key.kind.ends_with("Binding") {
        return None;
    }
    let field = |name: &str| body["roleRef"][name].as_str().unwrap_or_default().to_owned();
    let kind = field("kind");
    let namespace = key.namespace.clone().filter(|_| kind == "Role");
    Some(Key { group: GROUP.to_owned(), kind, namespace, name: field("name") })
}

/// Returns the name as the fence and `--allow-role` write it.
#[must_use]
pub fn role_name(role: &Key) -> String {
    role.namespace
        .as_ref()
        .map_or_else(|| role.name.clone(), |namespace| format!("{namespace}/{}", role.name))
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
            bound_role(&key.parse().unwrap(), &body).map(|role| role_name(&role))
        };
        let binding = "rbac.authorization.k8s.io/RoleBinding/shop/a";
        assert_eq!(role(binding, "Role").as_deref(), Some("shop/web"));
        assert_eq!(role(binding, "ClusterRole").as_deref(), Some("web"));
        assert_eq!(
            role("rbac.authorization.k8s.io/ClusterRoleBinding//a", "ClusterRole").as_deref(),
            Some("web")
        );
        assert_eq!(role("rbac.authorization.k8s.io/Role/shop/a", "Role"), None);
        let unnamed = bound_role(&binding.parse().unwrap(), &json!({"subjects": []}));
        assert_eq!(unnamed.map(|role| role.name).as_deref(), Some(""));
        assert_eq!(role("example.com/RoleBinding/shop/a", "Role"), None);
    }
}

//! What to do if the cluster refused a write: by RBAC, by the fence, or by the agent itself.

use brokkr_api::reason::Reason;
use brokkr_api::why::Cause;

use super::super::status::LastReport;
use super::cause::{self, reasons};

/// Returns what to do about a refusal in the cluster.
pub(super) fn forbidden(report: Option<&LastReport>) -> String {
    let refusal = |reason: &&Reason| cause::of(reason) == Some(Cause::Forbidden);
    match report.and_then(|report| reasons(report).find(refusal)) {
        Some(Reason::Fenced) => {
            "follow the message of the admission policy; if a role needs an exception, run brokkr-agent install again with \
             the same flags and --allow-role"
                .to_owned()
        }
        Some(Reason::AgentNamespace { .. }) => "move the object to another namespace".to_owned(),
        Some(Reason::RoleNotDelivered { role }) if is_plain_role(role) => format!(
            "deliver the role with this stack or another one, or allow it: run brokkr-agent install again with the same \
             flags and --allow-role {role}; the agent retries automatically"
        ),
        Some(Reason::RoleNotDelivered { .. }) => {
            "deliver the role with this stack or another one, or allow it with --allow-role".to_owned()
        }
        Some(Reason::GrantsTooMuch { account, .. }) => {
            lacking(account.as_deref(), "--profile platform (or --kind PLURAL.GROUP for a custom kind)")
        }
        Some(Reason::Forbidden { account, resource, .. }) => {
            let flag = match resource.as_deref().filter(|resource| is_plain(resource)) {
                Some(resource) if is_of_platform(resource) => "--profile platform".to_owned(),
                Some(resource) if resource.contains('.') => format!("--kind {resource}"),
                _ => String::new(),
            };
            lacking(account.as_deref(), &flag)
        }
        _ => lacking(None, ""),
    }
}

/// Returns how to give an account a missing permission. If a grant names an account to act as, that account needs it;
/// otherwise the agent's own role does, which `flag` extends.
fn lacking(account: Option<&str>, flag: &str) -> String {
    let account = account.and_then(|account| account.strip_prefix("system:serviceaccount:"));
    if let Some((namespace, name)) = account.and_then(|account| account.split_once(':')) {
        return format!(
            "grant the account {namespace}/{name} that permission in the cluster; the agent retries automatically"
        );
    }
    if flag.is_empty() {
        return "grant the agent's role that permission in the cluster; the agent retries automatically"
            .to_owned();
    }
    format!(
        "grant the permission: run brokkr-agent install again with the same flags and {flag}; the agent retries \
         automatically"
    )
}

/// Returns whether the profile `platform` contains this resource, and `apps` does not.
fn is_of_platform(resource: &str) -> bool {
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    match group {
        "" => plural == "persistentvolumes",
        "admissionregistration.k8s.io" => plural.ends_with("webhookconfigurations"),
        "apiextensions.k8s.io" => plural == "customresourcedefinitions",
        "apiregistration.k8s.io" => plural == "apiservices",
        "networking.k8s.io" => plural == "ingressclasses",
        "node.k8s.io" => plural == "runtimeclasses",
        "rbac.authorization.k8s.io" => plural.starts_with("clusterrole"),
        "scheduling.k8s.io" => plural == "priorityclasses",
        "storage.k8s.io" => matches!(plural, "csidrivers" | "storageclasses"),
        _ => false,
    }
}

/// Returns whether a role's name, such as `shop/web` or `system:web`, needs no quotes in a shell.
fn is_plain_role(role: &str) -> bool {
    role.split(['/', ':']).all(is_plain)
}

/// Returns whether a shell takes the word literally.
pub(super) fn is_plain(word: &str) -> bool {
    let inner = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '.');
    (1..=253).contains(&word.len()) && !word.starts_with('-') && word.chars().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resources_of_the_profile_platform_are_those_of_its_role() {
        let role = include_str!("../../../../../deploy/profile-platform.yaml");
        let (mut group, mut listed) = (String::new(), 0);
        for line in role.lines() {
            if let Some(found) = line.strip_prefix("- apiGroups: [") {
                group = found.trim_end_matches(']').trim_matches('"').to_owned();
            }
            let Some(resources) = line.strip_prefix("  resources: [") else { continue };
            for plural in resources.trim_end_matches(']').split(", ").filter(|plural| *plural != "roles") {
                let resource = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
                assert!(is_of_platform(&resource), "{resource}");
                listed += 1;
            }
        }
        assert!(listed >= 12, "{listed}");
        for other in
            ["configmaps", "deployments.apps", "roles.rbac.authorization.k8s.io", "widgets.example.com"]
        {
            assert!(!is_of_platform(other), "{other}");
        }
    }
}

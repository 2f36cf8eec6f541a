//! The roles that a stack binds.
//!
//! With the profile `platform`, Kubernetes lets the agent bind every role. The fence refuses roles by name, but it cannot
//! see who delivered one. So before the first write, the agent checks that each bound role was delivered by itself, or is
//! listed: in [`BINDABLE`], or by `--allow-role`. Without the permission `bind`, Kubernetes checks the role itself.

use brokkr_api::AgentId;
use brokkr_api::reason::Reason;
use brokkr_api::report::ObjectNote;

use super::granting::{GROUP, role_name};
use super::rights::Rights;
use super::write::Writes;
use crate::model::{BoundRole, Content, DesiredObject, Failure};
use crate::ownership::AGENT_LABEL;
use crate::resource::object_ref;

/// Roles of Kubernetes that every stack may bind.
const BINDABLE: [&str; 3] =
    ["view", "system:auth-delegator", "kube-system/extension-apiserver-authentication-reader"];

/// Returns notes about the bindings that the agent must not make. What cannot be checked is not made.
pub async fn refused(rights: &Rights, writes: &Writes, agent: AgentId, content: &Content) -> Vec<ObjectNote> {
    let mut notes = Vec::new();
    for desired in content.objects.values() {
        let Some(bound) = &desired.binds else { continue };
        if let Some(reason) = refusal(rights, writes, agent, desired, bound).await {
            notes.push(ObjectNote { object: object_ref(&desired.key), message: reason.message(), reason });
        }
    }
    notes
}

async fn refusal(
    rights: &Rights,
    writes: &Writes,
    agent: AgentId,
    desired: &DesiredObject,
    bound: &BoundRole,
) -> Option<Reason> {
    let role = &bound.role;
    if role.name.is_empty() || role.kind.is_empty() {
        return Some(Reason::Invalid { fields: vec!["roleRef".to_owned()] });
    }
    let name = role_name(role);
    let checked = async {
        if BINDABLE.contains(&name.as_str())
            || !rights.may_bind(writes, desired.key.namespace.as_deref()).await?
        {
            return Ok(true);
        }
        Ok(rights.allow_role(writes, &name).await? || is_ours(writes, agent, bound).await?)
    };
    match checked.await {
        Ok(true) => None,
        Ok(false) => Some(Reason::RoleNotDelivered { role: name }),
        Err(Failure { reason, .. }) => Some(reason),
    }
}

/// Returns whether this agent delivered the role, or is going to create it with this stack.
async fn is_ours(writes: &Writes, agent: AgentId, bound: &BoundRole) -> Result<bool, Failure> {
    let role = &bound.role;
    let of_namespace = role.namespace.as_ref().map(|name| format!("namespaces/{name}/")).unwrap_or_default();
    let plural = if role.namespace.is_some() { "roles" } else { "clusterroles" };
    let path = format!("/apis/{GROUP}/v1/{of_namespace}{plural}/{}", role.name);
    Ok(match writes.cluster().read(&path).await? {
        Some(found) => found["metadata"]["labels"][AGENT_LABEL] == agent.to_string(),
        None => bound.in_stack,
    })
}

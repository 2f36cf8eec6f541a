//! Puts the agent's own things into a cluster: its namespace, the record kind, its account and rights.
//!
//! The agent never runs as cluster admin. Its role lists verbs and never says `*` for them; it may
//! write resources of any kind, because stacks may contain any, and nothing beyond that. Who installs
//! needs more rights than the agent will have.

use anyhow::Context as _;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::args::InstallArguments;
use crate::inventory::{schema, wire};
use crate::run::kube_client;

/// The account that the agent runs under, in its namespace.
pub const ACCOUNT: &str = "brokkr-agent";
const INSTALLER: &str = "brokkr-install";

pub async fn install(arguments: InstallArguments) -> anyhow::Result<()> {
    let objects = manifests(&arguments.namespace);
    if arguments.print {
        for object in &objects {
            println!("---\n{}", serde_json::to_string_pretty(object)?);
        }
        return Ok(());
    }
    let client = kube_client(arguments.kubeconfig.as_deref()).await?;
    for object in objects {
        let object: DynamicObject = serde_json::from_value(object)?;
        let types = object.types.clone().unwrap_or_default();
        #[expect(
            clippy::disallowed_methods,
            reason = "these are our own manifests: their plurals are the regular ones"
        )]
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let parameters = PatchParams::apply(INSTALLER).force();
        api.patch(&object.name_any(), &parameters, &Patch::Apply(&object))
            .await
            .with_context(|| format!("apply {} {}", types.kind, object.name_any()))?;
        println!("{} {}", types.kind, object.name_any());
    }
    Ok(())
}

/// Everything that is installed, in order.
#[must_use]
pub fn manifests(namespace: &str) -> Vec<Value> {
    // Cluster-scoped names carry the namespace, so that two agents in one cluster do not share rights.
    let cluster_name = if namespace == crate::args::NAMESPACE {
        ACCOUNT.to_owned()
    } else {
        format!("{ACCOUNT}-{namespace}")
    };
    let subject = json!([{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}]);
    let rbac = "rbac.authorization.k8s.io/v1";
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        schema::definition(),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": namespace}}),
        json!({
            "apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": cluster_name},
            "rules": [
                {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
                {"apiGroups": [wire::GROUP], "resources": [wire::PLURAL], "verbs": ["update"]},
            ],
        }),
        json!({
            "apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": cluster_name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": cluster_name},
            "subjects": subject,
        }),
        json!({
            "apiVersion": rbac, "kind": "Role", "metadata": {"name": ACCOUNT, "namespace": namespace},
            "rules": [{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["update"]}],
        }),
        json!({
            "apiVersion": rbac, "kind": "RoleBinding", "metadata": {"name": ACCOUNT, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
            "subjects": subject,
        }),
    ]
}

//! Installs the agent's own objects into a cluster: namespace, record kind, account, rights and fence.
//!
//! The agent never runs as cluster admin; the installation needs more rights than the agent gets. Installing
//! again with other arguments changes the rights, and removes those that are no longer requested. The
//! installation is complete when the fence is active.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::pinned_kind;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::Value;

use brokkr_install::ACCOUNT;
use brokkr_install::rights::{self, RIGHTS_OF};

use crate::args::InstallArguments;
use crate::fence::{self, Probe, Verdict};
use crate::run::kube_client;

const INSTALLER: &str = "brokkr-install";
/// The maximum time that policies may take to become active.
const FENCE_TIMEOUT: Duration = Duration::from_secs(30);

pub async fn install(arguments: InstallArguments) -> anyhow::Result<()> {
    if arguments.print {
        return print(&rights::text(&arguments.rights, &arguments.namespace)?);
    }
    let objects = rights::manifests(&arguments.rights, &arguments.namespace)?;
    let client = kube_client(arguments.kubeconfig.as_deref()).await?;
    check_supported(&client).await?;
    println!("permissions: {}", arguments.rights.summary());
    for object in &objects {
        apply(&client, object).await?;
    }
    let kept: BTreeSet<ObjectName> = objects.iter().map(ObjectName::of).collect();
    delete_stale_rights::<ClusterRoleBinding>(&client, &arguments.namespace, &kept).await?;
    delete_stale_rights::<RoleBinding>(&client, &arguments.namespace, &kept).await?;
    delete_stale_rights::<ClusterRole>(&client, &arguments.namespace, &kept).await?;
    delete_stale_rights::<Role>(&client, &arguments.namespace, &kept).await?;
    wait_for_fence(&client, &arguments.namespace).await
}

/// Fails if the API server does not serve the kind of the fence, before anything is written.
async fn check_supported(client: &Client) -> anyhow::Result<()> {
    let policy = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy");
    match pinned_kind(client, &policy).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Discovery(_)) => {
            let version = client.apiserver_version().await.map(|info| info.git_version).unwrap_or_default();
            bail!(
                "this cluster runs Kubernetes {version}, which has no ValidatingAdmissionPolicy in version v1; Brokkr needs \
                 Kubernetes 1.30 or newer"
            )
        }
        Err(error) => Err(error).context("find out whether the cluster has ValidatingAdmissionPolicy"),
    }
}

/// Prints the text. A closed pipe is not an error, because the reader may need only the beginning.
fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context("print the manifests"),
    }
}

async fn apply(client: &Client, object: &Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(object.clone())?;
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
    Ok(())
}

/// Kind, namespace (empty for none) and name.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ObjectName(String, String, String);

impl ObjectName {
    fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        Self(text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
    }
}

/// Deletes roles and bindings of an earlier installation that this one does not contain.
async fn delete_stale_rights<K>(
    client: &Client,
    namespace: &str,
    kept: &BTreeSet<ObjectName>,
) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let kind = K::kind(&());
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<K>(&()));
    let mine = ListParams::default().labels(&format!("{RIGHTS_OF}={namespace}"));
    for found in all.list(&mine).await.with_context(|| format!("list {kind}s of this agent"))? {
        let (found_in, name) = (found.namespace().unwrap_or_default(), found.name_any());
        if kept.contains(&ObjectName(kind.to_string(), found_in.clone(), name.clone())) {
            continue;
        }
        let resource = ApiResource::erase::<K>(&());
        let api: Api<DynamicObject> = if found_in.is_empty() {
            Api::all_with(client.clone(), &resource)
        } else {
            Api::namespaced_with(client.clone(), &found_in, &resource)
        };
        api.delete(&name, &Default::default()).await.with_context(|| format!("delete {kind} {name}"))?;
        println!("{kind} {name} deleted");
    }
    Ok(())
}

/// Waits until the policies are in effect.
async fn wait_for_fence(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let agent = format!("system:serviceaccount:{namespace}:{ACCOUNT}");
    let started = Instant::now();
    loop {
        let mut verdicts = Vec::new();
        let another = "another-agent";
        for probe in [Probe::Label(None), Probe::Label(Some(another)), Probe::Home(another), Probe::Token] {
            verdicts.push(match fence::probe(client, namespace, Some(&agent), probe).await {
                Ok(Verdict::Refused(_)) => None,
                Ok(Verdict::Passed) => Some("a forbidden write was accepted".to_owned()),
                Err(error) if is_forbidden_impersonation(&error) => {
                    println!("you may not impersonate {agent}, so the admission policy was not tested; the agent tests it when it starts");
                    return Ok(());
                }
                Err(error) => Some(format!("{error:#}")),
            });
        }
        let Some(wrong) = verdicts.into_iter().flatten().next() else {
            println!("the admission policy is active");
            return Ok(());
        };
        if started.elapsed() > FENCE_TIMEOUT {
            bail!(
                "the admission policy is not active after {} s: {wrong}. Brokkr needs Kubernetes 1.30 or newer, with \
                 ValidatingAdmissionPolicy",
                FENCE_TIMEOUT.as_secs()
            );
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn is_forbidden_impersonation(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref::<kube::Error>(),
        Some(kube::Error::Api(status)) if status.code == 403 && status.message.contains("cannot impersonate")
    )
}

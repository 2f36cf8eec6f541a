//! The admission policy: requests that the API server refuses to every account of Brokkr.
//!
//! The requests are made with the agent's own account and code, as a compromised or faulty agent could make them.

mod escalation;
mod upgrade;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use brokkr_agent::execute::{Cluster as ApiServer, Writes};
use brokkr_agent::fence;
use brokkr_agent::grant;
use brokkr_agent::model::{StepResult, Uid};
use brokkr_agent::resource::{Kind, Served};
use brokkr_api::envelope::{Grant, TargetStack};
use brokkr_api::ids::{Checksum, StackId};
use brokkr_api::stacks::DriftPolicy;
use brokkr_api::{AgentId, SequenceId};
use brokkr_install::FENCE;
use brokkr_testkit::agent::{ACCOUNT, install};
use brokkr_testkit::{Attempt, Cluster, eventually, unique};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use brokkr_testkit::world::WAIT_TIMEOUT;

/// An installed agent that has joined and does nothing, and a namespace with objects of several owners.
struct Fixture {
    cluster: Arc<Cluster>,
    /// The agent's own namespace.
    home: String,
    space: String,
    agent: AgentId,
    client: Client,
    maps: Api<ConfigMap>,
    /// A client as administrator.
    admin: Api<ConfigMap>,
}

impl Fixture {
    async fn new() -> Result<Self> {
        let cluster = Cluster::shared().await?;
        let (home, space, agent) = (unique("brokkr-fixture"), unique("fixture"), AgentId::generate());
        // An account for a grant, with its own permissions in the namespace.
        cluster
            .apply(&format!(
                "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {space}}}\n\
                 ---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: brokkr-shop, namespace: {space}}}\n\
                 ---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: brokkr-other, namespace: {space}}}\n\
                 ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: shop, namespace: {space}}}\n\
                 rules: [{{apiGroups: [\"\"], resources: [configmaps], verbs: [create, patch, delete]}}]\n\
                 ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: shop, namespace: {space}}}\n\
                 roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: shop}}\n\
                 subjects: [{{kind: ServiceAccount, name: brokkr-shop, namespace: {space}}}]\n"
            ))
            .await?;
        install(&cluster, &home, &["--impersonate", &format!("{space}/brokkr-shop")]).await?;
        let client = cluster.client_for(&home, ACCOUNT).await?;
        eventually(WAIT_TIMEOUT, "the agent's admission policy to be active", async || {
            match fence::ensure_active(&client, &home, agent).await {
                Ok(()) => Attempt::Done(()),
                Err(error) => Attempt::NotYet(format!("{error:#}")),
            }
        })
        .await?;
        let maps = Api::namespaced(client.clone(), &space);
        let admin = Api::namespaced(cluster.admin().await?, &space);
        Ok(Self { cluster, home, space, agent, client, maps, admin })
    }

    fn map(&self, name: &str, marks: &Marks<'_>) -> Value {
        let mut metadata = json!({"name": name, "namespace": self.space});
        if let Some(label) = marks.label {
            metadata["labels"] = json!({"brokkr.io/agent": label});
        }
        if let Some((stack, sequence)) = marks.stack {
            metadata["annotations"] = json!({"brokkr.io/stack-id": stack, "brokkr.io/sequence": sequence});
        }
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": "1"}})
    }

    /// Creates an object as administrator.
    async fn put(&self, name: &str, marks: Marks<'_>) -> Result<()> {
        let parameters = PatchParams::apply("brokkr").force();
        self.admin.patch(name, &parameters, &Patch::Apply(self.map(name, &marks))).await?;
        Ok(())
    }

    /// Server-side apply with the agent's own account.
    async fn apply(&self, name: &str, marks: Marks<'_>) -> Result<(), kube::Error> {
        let parameters = PatchParams::apply("brokkr").force();
        self.maps.patch(name, &parameters, &Patch::Apply(self.map(name, &marks))).await.map(|_| ())
    }

    /// Writes as a grant's account, through the agent's own code.
    fn acting_as(&self, account: &str) -> Result<Writes> {
        let target = TargetStack {
            project: "shop".into(),
            stack_id: StackId::generate(),
            stack_name: "web".into(),
            sequence_id: SequenceId(1),
            checksum: Checksum::of(b""),
            parsed_digest: Checksum::of(b""),
            removal: None,
            withdrawn: false,
            wave_wait_seconds: None,
            rerun: Vec::new(),
            schedule: None,
            suspensions: Vec::new(),
            health_rules: None,
            drift: DriftPolicy::default(),
            grant: Some(Grant { account: Some(format!("{}/{account}", self.space)), ..Grant::default() }),
            approvals: Vec::new(),
            published_at: jiff::Timestamp::UNIX_EPOCH,
            targeted_at: jiff::Timestamp::UNIX_EPOCH,
            released_at: jiff::Timestamp::UNIX_EPOCH,
        };
        let acting = grant::acting(&target).map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?;
        let server = ApiServer::new(self.client.clone(), 4);
        server.allow_writes(true);
        Ok(server.acting_as(&acting))
    }

    async fn uid(&self, name: &str) -> Result<Uid> {
        Ok(self.admin.get(name).await?.metadata.uid.context("a uid")?.into())
    }
}

#[derive(Default)]
struct Marks<'a> {
    label: Option<&'a str>,
    /// Stack id and sequence.
    stack: Option<(&'a str, &'a str)>,
}

fn labelled(label: &str) -> Marks<'_> {
    Marks { label: Some(label), stack: None }
}

/// Requires that the admission policy refused the request, and returns its message.
fn refused(answer: Result<impl std::fmt::Debug, kube::Error>) -> String {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 422 => fence::refusal_message(&status.message)
            .unwrap_or_else(|| panic!("not the fence: {status:?}"))
            .to_owned(),
        other => panic!("the admission policy did not refuse it: {other:?}"),
    }
}

fn forbidden(answer: Result<impl std::fmt::Debug, kube::Error>) {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 403 => {}
        other => panic!("not forbidden: {other:?}"),
    }
}

#[tokio::test]
async fn c4_the_admission_policy_rejects_changes_and_deletions_of_another_agents_objects() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (mine, other) = (fixture.agent.to_string(), AgentId::generate().to_string());
    fixture.put("theirs", labelled(&other)).await?;

    // It can neither take over, change, release nor delete them, one by one or all at once.
    assert!(refused(fixture.apply("theirs", labelled(&mine)).await).contains(&other));
    let edit = Patch::Merge(json!({"data": {"value": "2"}}));
    refused(fixture.maps.patch("theirs", &PatchParams::default(), &edit).await);
    let release = Patch::Merge(json!({"metadata": {"labels": {"brokkr.io/agent": null}}}));
    refused(fixture.maps.patch("theirs", &PatchParams::default(), &release).await);
    refused(fixture.maps.delete("theirs", &DeleteParams::default()).await);
    refused(
        fixture.maps.delete_collection(&DeleteParams::default(), &ListParams::default()).await.map(|_| ()),
    );
    // Nor may it create one with another agent's label.
    assert!(refused(fixture.apply("new", labelled(&other)).await).contains(&mine));

    let map = fixture.admin.get("theirs").await?;
    assert_eq!(map.data.unwrap_or_default()["value"], "1", "untouched");
    assert!(fixture.admin.get_opt("new").await?.is_none());

    // It may create, change, release and delete its own; the policy does not apply to other users.
    fixture.apply("mine", labelled(&mine)).await?;
    fixture.maps.patch("mine", &PatchParams::default(), &edit).await?;
    fixture.maps.patch("mine", &PatchParams::default(), &release).await?;
    fixture.apply("mine", labelled(&mine)).await?;
    fixture.maps.delete("mine", &DeleteParams::default()).await?;
    fixture.admin.delete("theirs", &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test]
async fn c5_the_admission_policy_allows_adopting_unmanaged_objects_and_never_deleting_them() -> Result<()> {
    let fixture = Fixture::new().await?;
    let mine = fixture.agent.to_string();
    fixture.put("foreign", Marks::default()).await?;
    refused(fixture.maps.delete("foreign", &DeleteParams::default()).await);
    refused(fixture.apply("foreign", Marks::default()).await);
    refused(fixture.apply("new", Marks::default()).await);
    let uid = fixture.uid("foreign").await?;
    fixture.apply("foreign", labelled(&mine)).await?;
    assert_eq!(fixture.uid("foreign").await?, uid, "adopted, not recreated");
    Ok(())
}

#[tokio::test]
async fn a4_the_admission_policy_rejects_an_older_sequence_within_a_stack() -> Result<()> {
    let fixture = Fixture::new().await?;
    let mine = fixture.agent.to_string();
    let (one, two) = (StackId::generate().to_string(), StackId::generate().to_string());
    let marks = |stack, sequence| Marks { label: Some(&mine), stack: Some((stack, sequence)) };
    fixture.apply("web", marks(&one, "9")).await?;
    fixture.apply("web", marks(&one, "10")).await.context("compared as numbers, not as text")?;
    let message = refused(fixture.apply("web", marks(&one, "9")).await);
    assert!(message.contains("from 10 to 9"), "{message}");
    // Neither without a sequence, nor with one that is not a number.
    let gone = Patch::Merge(json!({"metadata": {"annotations": {"brokkr.io/sequence": null}}}));
    refused(fixture.maps.patch("web", &PatchParams::default(), &gone).await);
    refused(fixture.apply("web", marks(&one, "eleven")).await);
    fixture.apply("web", marks(&one, "10")).await?;
    // Another stack has its own sequence: the object was moved.
    fixture.apply("web", marks(&two, "3")).await?;
    // An invalid value can be repaired.
    let spoil = Patch::Merge(json!({"metadata": {"annotations": {"brokkr.io/sequence": "spoilt"}}}));
    fixture.admin.patch("web", &PatchParams::default(), &spoil).await?;
    fixture.apply("web", marks(&two, "3")).await?;
    Ok(())
}

/// The policy applies to the account of a grant, and the agent can impersonate no other.
#[tokio::test]
async fn c4_the_admission_policy_applies_to_impersonated_accounts() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (mine, other) = (fixture.agent.to_string(), AgentId::generate().to_string());
    fixture.put("theirs", labelled(&other)).await?;
    fixture.put("foreign", Marks::default()).await?;
    fixture.put("mine", labelled(&mine)).await?;
    let kind = Kind::from(Served {
        group: String::new(),
        version: "v1".into(),
        kind: "ConfigMap".into(),
        plural: "configmaps".into(),
        namespaced: true,
    });
    let key = |name: &str| format!("/ConfigMap/{}/{name}", fixture.space).parse::<brokkr_manifest::Key>();

    let shop = fixture.acting_as("brokkr-shop")?;
    for name in ["theirs", "foreign"] {
        let StepResult::Failed(failure) = shop.delete(&kind, &key(name)?, &fixture.uid(name).await?).await
        else {
            panic!("{name} was deleted");
        };
        // The message of a report.
        assert_eq!(failure.reason.code(), "Fenced");
        let message = failure.message.to_string();
        let refused = message.starts_with("refused by Brokkr's admission policy in the cluster: ");
        assert!(refused && message.contains("this object"), "{message}");
    }
    let answer = shop.delete(&kind, &key("mine")?, &fixture.uid("mine").await?).await;
    assert!(matches!(answer, StepResult::DeleteAccepted), "{answer:?}");

    fixture.put("mine", labelled(&mine)).await?;
    let other = fixture.acting_as("brokkr-other")?;
    let StepResult::Failed(failure) = other.delete(&kind, &key("mine")?, &fixture.uid("mine").await?).await
    else {
        panic!("acted as an account that was not installed");
    };
    assert_eq!(failure.reason.code(), "Forbidden");
    assert!(failure.message.to_string().contains("impersonate"), "{failure:?}");
    Ok(())
}

/// C6: the agent can change neither the policy nor its permissions.
#[tokio::test]
async fn c6_the_agent_can_change_neither_its_admission_policy_nor_its_permissions() -> Result<()> {
    let fixture = Fixture::new().await?;
    let mark = Patch::Merge(json!({"metadata": {"labels": {"brokkr.io/agent": fixture.agent.to_string()}}}));
    let (parameters, delete) = (PatchParams::default(), DeleteParams::default());
    let (client, home) = (fixture.client.clone(), &fixture.home);

    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    for policy in ["brokkr-fence", "brokkr-fence-agent", "brokkr-fence-home"] {
        forbidden(policies.patch(policy, &parameters, &mark).await);
        forbidden(policies.delete(policy, &delete).await);
    }
    forbidden(bindings.patch(&format!("brokkr-fence-agent.{home}"), &parameters, &mark).await);
    forbidden(bindings.delete("brokkr-fence", &delete).await);

    let roles: Api<ClusterRole> = Api::all(client.clone());
    let cluster_bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let own_bindings: Api<RoleBinding> = Api::namespaced(client.clone(), home);
    refused(roles.patch("brokkr-agent-platform", &parameters, &mark).await);
    refused(cluster_bindings.patch(&format!("brokkr-agent-platform.{home}"), &parameters, &mark).await);
    refused(own_bindings.patch("brokkr-agent", &parameters, &mark).await);

    // The owner in the policy is immutable.
    let own_maps: Api<ConfigMap> = Api::namespaced(client.clone(), home);
    for change in [
        json!({"data": {"agent-id": AgentId::generate().to_string()}}),
        json!({"data": {"agent-id": null}}),
        json!({"data": {"accounts": ""}}),
        json!({"metadata": {"labels": {"brokkr.io/agent": fixture.agent.to_string()}}}),
    ] {
        refused(own_maps.patch(FENCE, &parameters, &Patch::Merge(change)).await);
    }
    refused(own_maps.delete(FENCE, &delete).await);
    refused(own_maps.delete_collection(&delete, &ListParams::default()).await);
    let again = fence::ensure_active(&client, home, AgentId::generate()).await.expect_err("another agent");
    assert!(again.to_string().contains(&fixture.agent.to_string()), "{again:#}");

    // It can neither adopt nor delete its own namespace, nor other agents' objects.
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    refused(namespaces.patch(home, &parameters, &mark).await);
    refused(namespaces.delete(home, &delete).await);
    let other = unique("brokkr-fixture");
    install(&fixture.cluster, &other, &[] as &[&str]).await?;
    let other_maps: Api<ConfigMap> = Api::namespaced(client.clone(), &other);
    refused(other_maps.patch(FENCE, &parameters, &mark).await);
    Ok(())
}

/// Between installation and joining, every label is foreign; the agent can write what it needs to join.
#[tokio::test]
async fn before_it_has_joined_an_agent_can_write_only_its_own_objects() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let home = unique("brokkr-fixture");
    install(&cluster, &home, &[] as &[&str]).await?;
    let client = cluster.client_for(&home, ACCOUNT).await?;
    let (agent, space) = (AgentId::generate().to_string(), unique("fixture"));
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    let namespace = |label: Value| {
        serde_json::from_value(json!({"metadata": {"name": space, "labels": label}}))
            .map_err(anyhow::Error::from)
    };
    let labelled = namespace(json!({"brokkr.io/agent": agent}))?;
    let message = refused(namespaces.create(&PostParams::default(), &labelled).await);
    assert_eq!(message, "this agent is not known to its fence yet");
    refused(namespaces.create(&PostParams::default(), &namespace(json!({}))?).await);

    let maps: Api<ConfigMap> = Api::namespaced(client, &home);
    let memory = serde_json::from_value(json!({"metadata": {"name": "brokkr-agent-memory"}}))?;
    maps.create(&PostParams::default(), &memory).await?;
    Ok(())
}

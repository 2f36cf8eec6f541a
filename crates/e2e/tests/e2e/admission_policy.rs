//! The fence: what the API server refuses to every account of Brokkr's, whatever the agent asks for.
//!
//! Nobody reconciles here: the requests are made with the agent's own account and its own code, as a hijacked or mistaken
//! agent could make them.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use brokkr_agent::execute::{Cluster as ApiServer, Writes};
use brokkr_agent::fence;
use brokkr_agent::grant;
use brokkr_agent::plan::steps::Answer;
use brokkr_agent::plan::types::Uid;
use brokkr_agent::resource::{Kind, Served};
use brokkr_api::envelope::{Grant, TargetStack};
use brokkr_api::ids::{Checksum, StackId};
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

/// An installed agent that has joined and does nothing, and a namespace with things of several owners.
struct Fixture {
    cluster: Arc<Cluster>,
    /// The agent's own namespace.
    home: String,
    space: String,
    agent: AgentId,
    client: Client,
    maps: Api<ConfigMap>,
    /// The same, as an administrator.
    admin: Api<ConfigMap>,
}

impl Fixture {
    async fn new() -> Result<Self> {
        let cluster = Cluster::shared().await?;
        let (home, space, agent) = (unique("brokkr-fixture"), unique("fixture"), AgentId::generate());
        // An account that a grant could name, with rights of its own in the namespace.
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
        eventually(WAIT_TIMEOUT, "the agent to stand behind its fence", async || {
            match fence::stand(&client, &home, agent).await {
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

    /// What somebody with all rights put there.
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
            grant: Some(Grant { account: Some(format!("{}/{account}", self.space)), ..Grant::default() }),
            approvals: Vec::new(),
            published_at: jiff::Timestamp::UNIX_EPOCH,
            targeted_at: jiff::Timestamp::UNIX_EPOCH,
            released_at: jiff::Timestamp::UNIX_EPOCH,
        };
        let acting = grant::acting(&target).map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?;
        let server = ApiServer::new(self.client.clone(), 4);
        server.let_write(true);
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

/// The fence's words, with which it must have refused.
fn refused(answer: Result<impl std::fmt::Debug, kube::Error>) -> String {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 422 => {
            fence::said(&status.message).unwrap_or_else(|| panic!("not the fence: {status:?}")).to_owned()
        }
        other => panic!("the fence let it pass, or somebody else refused: {other:?}"),
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

    // Taken over, changed in place, released, deleted, one by one and all at once.
    assert!(refused(fixture.apply("theirs", labelled(&mine)).await).contains(&other));
    let edit = Patch::Merge(json!({"data": {"value": "2"}}));
    refused(fixture.maps.patch("theirs", &PatchParams::default(), &edit).await);
    let release = Patch::Merge(json!({"metadata": {"labels": {"brokkr.io/agent": null}}}));
    refused(fixture.maps.patch("theirs", &PatchParams::default(), &release).await);
    refused(fixture.maps.delete("theirs", &DeleteParams::default()).await);
    forbidden(fixture.maps.delete_collection(&DeleteParams::default(), &ListParams::default()).await);
    // Nor may it make one under another's name.
    assert!(refused(fixture.apply("new", labelled(&other)).await).contains(&mine));

    let map = fixture.admin.get("theirs").await?;
    assert_eq!(map.data.unwrap_or_default()["value"], "1", "untouched");
    assert!(fixture.admin.get_opt("new").await?.is_none());

    // Its own it makes, changes, releases and deletes; others are not held to any of this.
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
    assert_eq!(fixture.uid("foreign").await?, uid, "adopted, not made anew");
    Ok(())
}

#[tokio::test]
async fn a4_the_admission_policy_rejects_an_older_sequence_within_a_stack() -> Result<()> {
    let fixture = Fixture::new().await?;
    let mine = fixture.agent.to_string();
    let (one, two) = (StackId::generate().to_string(), StackId::generate().to_string());
    let marks = |stack, sequence| Marks { label: Some(&mine), stack: Some((stack, sequence)) };
    fixture.apply("web", marks(&one, "9")).await?;
    fixture.apply("web", marks(&one, "10")).await.context("as numbers, not as texts")?;
    let words = refused(fixture.apply("web", marks(&one, "9")).await);
    assert!(words.contains("from 10 to 9"), "{words}");
    // Neither by leaving it out, nor by writing what is no number.
    let gone = Patch::Merge(json!({"metadata": {"annotations": {"brokkr.io/sequence": null}}}));
    refused(fixture.maps.patch("web", &PatchParams::default(), &gone).await);
    refused(fixture.apply("web", marks(&one, "eleven")).await);
    fixture.apply("web", marks(&one, "10")).await?;
    // Another stack counts for itself: it was handed over.
    fixture.apply("web", marks(&two, "3")).await?;
    // What somebody spoilt can be put right.
    let spoil = Patch::Merge(json!({"metadata": {"annotations": {"brokkr.io/sequence": "spoilt"}}}));
    fixture.admin.patch("web", &PatchParams::default(), &spoil).await?;
    fixture.apply("web", marks(&two, "3")).await?;
    Ok(())
}

/// The account that a grant names is held to the same, and the agent can act as no other.
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
        let Answer::Failed(failure) = shop.delete(&kind, &key(name)?, &fixture.uid(name).await?).await else {
            panic!("{name} was deleted");
        };
        // What a report will say.
        assert_eq!(failure.reason, "Fenced");
        assert!(
            failure.message.starts_with("the fence in the cluster refused it: this object"),
            "{failure:?}"
        );
    }
    let answer = shop.delete(&kind, &key("mine")?, &fixture.uid("mine").await?).await;
    assert!(matches!(answer, Answer::DeleteAccepted), "{answer:?}");

    fixture.put("mine", labelled(&mine)).await?;
    let nobody = fixture.acting_as("brokkr-other")?;
    let Answer::Failed(failure) = nobody.delete(&kind, &key("mine")?, &fixture.uid("mine").await?).await
    else {
        panic!("acted as an account that was not installed");
    };
    assert_eq!(failure.reason, "Forbidden");
    assert!(failure.message.contains("impersonate"), "{failure:?}");
    Ok(())
}

/// C6: neither fence nor rights are the agent's to change.
#[tokio::test]
async fn c6_the_agent_can_change_neither_its_admission_policy_nor_its_permissions() -> Result<()> {
    let fixture = Fixture::new().await?;
    let mark = Patch::Merge(json!({"metadata": {"labels": {"brokkr.io/agent": fixture.agent.to_string()}}}));
    let (parameters, delete) = (PatchParams::default(), DeleteParams::default());
    let (client, home) = (fixture.client.clone(), &fixture.home);

    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    for policy in ["brokkr-fence", "brokkr-fence-agent"] {
        forbidden(policies.patch(policy, &parameters, &mark).await);
        forbidden(policies.delete(policy, &delete).await);
    }
    forbidden(bindings.patch(&format!("brokkr-fence-agent.{home}"), &parameters, &mark).await);
    forbidden(bindings.delete("brokkr-fence", &delete).await);

    let roles: Api<ClusterRole> = Api::all(client.clone());
    let cluster_bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let own_bindings: Api<RoleBinding> = Api::namespaced(client.clone(), home);
    refused(roles.patch("brokkr-agent-cluster", &parameters, &mark).await);
    refused(cluster_bindings.patch(&format!("brokkr-agent-cluster.{home}"), &parameters, &mark).await);
    refused(own_bindings.patch("brokkr-agent", &parameters, &mark).await);

    // Whose the fence is, is written once.
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
    let again = fence::stand(&client, home, AgentId::generate()).await.expect_err("another agent");
    assert!(again.to_string().contains(&fixture.agent.to_string()), "{again:#}");

    // Its namespace it can neither adopt nor delete; other agents' things neither.
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    refused(namespaces.patch(home, &parameters, &mark).await);
    refused(namespaces.delete(home, &delete).await);
    let other = unique("brokkr-fixture");
    install(&fixture.cluster, &other, &[] as &[&str]).await?;
    let other_maps: Api<ConfigMap> = Api::namespaced(client.clone(), &other);
    refused(other_maps.patch(FENCE, &parameters, &mark).await);
    Ok(())
}

/// Between installation and joining, every label is a foreign one; what the agent needs to join is open to it.
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
    let words = refused(namespaces.create(&PostParams::default(), &labelled).await);
    assert_eq!(words, "this agent is not known to its fence yet");
    refused(namespaces.create(&PostParams::default(), &namespace(json!({}))?).await);

    let maps: Api<ConfigMap> = Api::namespaced(client, &home);
    let memory = serde_json::from_value(json!({"metadata": {"name": "brokkr-agent-memory"}}))?;
    maps.create(&PostParams::default(), &memory).await?;
    Ok(())
}

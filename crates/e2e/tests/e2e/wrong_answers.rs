//! Wrong answers: whatever is between an agent and its broker may send anything, and none of it may delete, undo or change
//! anything in the cluster. The broker is scripted; agent and cluster are real.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use brokkr_api::ErrorCode;
use brokkr_api::agents::AgentStatus;
use brokkr_api::report::Transition;
use brokkr_testkit::audit::{Mark, Request};
use brokkr_testkit::scripted::{ContentLie, Lie, ScriptedBroker};
use brokkr_testkit::{Agent, Attempt, Cluster, eventually, unique};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::ApiResource;
use kube::core::dynamic::DynamicObject;
use kube::{Api, Client};
use serde_json::json;

use brokkr_testkit::world::{WAIT_TIMEOUT, config_map_yaml, namespace_yaml};

const STACK: &str = "web";
/// How often each wrong answer is sent.
const OFTEN: usize = 3;

/// One agent with a scripted broker, and a namespace.
struct Fixture {
    // Dropped in this order: the agent before its broker.
    agent: Agent,
    broker: ScriptedBroker,
    cluster: Arc<Cluster>,
    client: Client,
    space: String,
}

/// UID and version of all objects of the stack and its record, by kind and name.
type Versions = BTreeMap<String, (Option<String>, Option<String>)>;

impl Fixture {
    async fn open() -> Result<Self> {
        let cluster = Cluster::shared().await?;
        let broker = ScriptedBroker::start().await?;
        let agent = broker.launch("shop-1", &cluster).await?;
        let client = cluster.admin().await?;
        Ok(Self { agent, broker, cluster, client, space: unique("space") })
    }

    /// Returns the manifest of the namespace and these ConfigMaps.
    fn manifest(&self, maps: &[(&str, &str)]) -> String {
        let maps = maps.iter().map(|(name, value)| config_map_yaml(&self.space, name, value));
        namespace_yaml(&self.space) + &maps.collect::<String>()
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.space)
    }

    async fn value(&self, name: &str) -> Result<Option<String>> {
        Ok(self.maps().get_opt(name).await?.and_then(|map| map.data?.get("value").cloned()))
    }

    async fn namespace(&self) -> Result<Option<Namespace>> {
        Ok(Api::all(self.client.clone()).get_opt(&self.space).await?)
    }

    async fn edit(&self, name: &str, value: &str) -> Result<()> {
        let patch = json!({"data": {"value": value}});
        self.maps().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn versions(&self) -> Result<Versions> {
        let uid_and_version = |kind: &str, meta: kube::core::ObjectMeta| {
            (format!("{kind} {}", meta.name.unwrap_or_default()), (meta.uid, meta.resource_version))
        };
        // A controller creates it in every namespace, at any time.
        let ours = |map: &ConfigMap| map.metadata.name.as_deref() != Some("kube-root-ca.crt");
        let maps = self.maps().list(&ListParams::default()).await?.items.into_iter().filter(ours);
        let mut found: Versions = maps.map(|map| uid_and_version("ConfigMap", map.metadata)).collect();
        found.extend(self.namespace().await?.map(|space| uid_and_version("Namespace", space.metadata)));
        let agent = self.broker.agent_id().to_string();
        let resource = ApiResource {
            group: "brokkr.io".into(),
            version: "v1".into(),
            api_version: "brokkr.io/v1".into(),
            kind: "Stack".into(),
            plural: "stacks".into(),
        };
        let records: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let records = records.list(&ListParams::default()).await?.items.into_iter();
        let own = records.filter(|record| record.data["spec"]["agentId"] == agent.as_str());
        found.extend(own.map(|record| uid_and_version("Stack", record.metadata)));
        Ok(found)
    }

    fn mark(&self) -> Result<Mark> {
        self.cluster.audit().mark()
    }

    /// Returns the agent's writes since the mark, except those of its own state.
    fn writes(&self, since: Mark) -> Result<Vec<Request>> {
        let own = |request: &Request| {
            request.namespace == self.agent.namespace()
                && (request.name == "brokkr-agent-memory" || request.resource == "leases")
        };
        let requests = self.agent.requests(since)?.into_iter();
        Ok(requests.filter(|request| request.is_write() && !own(request)).collect())
    }

    /// Waits until the agent polls without writing.
    async fn wait_until_idle(&self) -> Result<Versions> {
        eventually(WAIT_TIMEOUT, "the agent to become idle", async || {
            let mark = self.mark()?;
            self.broker.polls(2).await?;
            let writes = self.writes(mark)?;
            anyhow::ensure!(writes.is_empty(), "still writing: {writes:?}");
            self.versions().await
        })
        .await
    }

    /// Sends a wrong answer several times, then the correct one, and compares the cluster.
    async fn assert_unaffected(&self, lie: Lie, before: &Versions) -> Result<()> {
        let mark = self.mark()?;
        self.broker.answer_with(lie);
        self.broker.wait_until_sent(lie, self.broker.count(lie) + OFTEN).await?;
        self.broker.answer_truthfully();
        self.broker.wait_until_in_sync().await?;
        self.compare(&format!("{lie:?}"), mark, before).await
    }

    async fn compare(&self, what: &str, since: Mark, before: &Versions) -> Result<()> {
        assert_eq!(&self.versions().await?, before, "{what} changed something in the cluster");
        let writes = self.writes(since)?;
        assert!(writes.is_empty(), "{what} made the agent write: {writes:#?}");
        assert!(self.agent.is_running(), "{what} ended the agent");
        Ok(())
    }

    async fn wait_for_value(&self, name: &str, wanted: &str) -> Result<()> {
        eventually(WAIT_TIMEOUT, &format!("ConfigMap {name} to have the value {wanted}"), async || match self
            .value(name)
            .await
        {
            Ok(Some(value)) if value == wanted => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        })
        .await
    }

    /// Deletes the stack for real: this shows that the agent would have deleted it if it had accepted
    /// a wrong answer.
    async fn delete_truthfully(&self) -> Result<()> {
        self.broker.delete(STACK)?;
        eventually(WAIT_TIMEOUT, "the ConfigMaps to be deleted", async || match self.versions().await {
            Ok(found) if !found.keys().any(|name| name.starts_with("ConfigMap ")) => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        })
        .await
    }
}

/// Every wrong answer, several times each.
#[tokio::test]
async fn e4_an_empty_cut_off_older_or_foreign_answer_deletes_nothing_and_undoes_nothing() -> Result<()> {
    let fixture = Fixture::open().await?;
    let broker = &fixture.broker;
    // The first version differs in every way: a value, one more object, one less.
    let first = broker.offer(STACK, &fixture.manifest(&[("one", "old"), ("two", "2"), ("dropped", "x")]))?;
    broker.wait_until_healthy(first).await?;
    let second = broker.offer(STACK, &fixture.manifest(&[("one", "1"), ("two", "2"), ("three", "3")]))?;
    broker.wait_until_healthy(second).await?;
    let before = fixture.wait_until_idle().await?;
    let names: Vec<_> = before.keys().map(String::as_str).collect();
    assert_eq!(names[..3], ["ConfigMap one", "ConfigMap three", "ConfigMap two"]);

    let lies = [
        Lie::EmptyEnvelope,
        Lie::EmptyBody,
        Lie::CutOff,
        Lie::Shortened,
        Lie::WrongTag,
        Lie::NoTag,
        Lie::NoPosition,
        Lie::OlderPosition,
        Lie::OlderPositionWithoutStacks,
        Lie::OlderEpoch,
        Lie::OlderSequence,
        Lie::OtherContent,
        Lie::OlderRemoval,
        Lie::OtherAgent,
        Lie::OtherInstallation,
        Lie::Html,
        Lie::Redirect,
        // An error mentions no stacks, and removes none.
        Lie::Refused(ErrorCode::BRK2001),
        Lie::Refused(ErrorCode::BRK1001),
        Lie::Refused(ErrorCode::BRK3002),
        Lie::Refused(ErrorCode::BRK1012),
        Lie::Refused(ErrorCode::BRK9001),
    ];
    for lie in lies {
        fixture.assert_unaffected(lie, &before).await?;
    }
    let log = fixture.agent.process().log();
    assert!(log.contains("it is truncated"), "the script cut nothing off");
    assert!(log.contains("sequence_id_reused"), "a known sequence id with another content is reported");

    // The agent still works: it accepts correct answers and repairs drift.
    let third = broker.offer(STACK, &fixture.manifest(&[("one", "new"), ("three", "3")]))?;
    broker.wait_until_healthy(third).await?;
    assert_eq!(fixture.value("one").await?.as_deref(), Some("new"));
    assert_eq!(fixture.value("two").await?, None);
    fixture.edit("one", "by hand").await?;
    fixture.wait_for_value("one", "new").await?;
    fixture.delete_truthfully().await
}

/// A restarted agent knows only what its cluster stores, and the first answer is a wrong one.
#[tokio::test]
async fn e4_a_wrong_answer_after_a_restart_deletes_nothing_and_undoes_nothing() -> Result<()> {
    let fixture = Fixture::open().await?;
    let broker = &fixture.broker;
    let first = broker.offer(STACK, &fixture.manifest(&[("one", "old"), ("dropped", "x")]))?;
    broker.wait_until_healthy(first).await?;
    let second = broker.offer(STACK, &fixture.manifest(&[("one", "1"), ("two", "2")]))?;
    broker.wait_until_healthy(second).await?;
    let before = fixture.wait_until_idle().await?;

    let lies = [
        Lie::EmptyEnvelope,
        Lie::OlderSequence,
        Lie::OtherContent,
        Lie::OlderRemoval,
        Lie::OlderEpoch,
        Lie::OtherAgent,
    ];
    for lie in lies {
        let mark = fixture.mark()?;
        fixture.agent.kill9();
        broker.answer_with(lie);
        fixture.agent.start()?;
        broker.wait_until_sent(lie, OFTEN).await?;
        fixture.compare(&format!("{lie:?} after a restart"), mark, &before).await?;
        broker.answer_truthfully();
        broker.wait_until_in_sync().await?;
        fixture.compare(&format!("the truth after {lie:?}"), mark, &before).await?;
    }

    let third = broker.offer(STACK, &fixture.manifest(&[("one", "new"), ("two", "2")]))?;
    broker.wait_until_healthy(third).await?;
    assert_eq!(fixture.value("one").await?.as_deref(), Some("new"));
    fixture.delete_truthfully().await
}

#[tokio::test]
async fn a7_an_inactive_agent_changes_nothing_in_its_cluster_until_it_is_active_again() -> Result<()> {
    let fixture = Fixture::open().await?;
    let broker = &fixture.broker;
    let first = broker.offer(STACK, &fixture.manifest(&[("one", "1"), ("two", "2")]))?;
    broker.wait_until_healthy(first).await?;
    fixture.wait_until_idle().await?;

    broker.set_status(AgentStatus::Inactive);
    broker.wait_until_in_sync().await?;
    let mark = fixture.mark()?;
    fixture.edit("one", "by hand").await?;
    fixture.maps().delete("two", &DeleteParams::default()).await?;
    let second = broker.offer(STACK, &fixture.manifest(&[("one", "1"), ("two", "2"), ("three", "3")]))?;
    let edited = fixture.versions().await?;
    broker.polls(OFTEN).await?;
    fixture.compare("being INACTIVE", mark, &edited).await?;

    // Not even if the answer contains desired state, and not after a restart.
    fixture.assert_unaffected(Lie::InactiveWithStacks, &edited).await?;
    fixture.agent.restart()?;
    broker.polls(OFTEN).await?;
    fixture.compare("being INACTIVE after a restart", mark, &edited).await?;
    assert_eq!(fixture.value("one").await?.as_deref(), Some("by hand"));
    assert_eq!(fixture.value("two").await?, None);

    broker.set_status(AgentStatus::Active);
    broker.wait_until_healthy(second).await?;
    for (name, value) in [("one", "1"), ("two", "2"), ("three", "3")] {
        assert_eq!(fixture.value(name).await?.as_deref(), Some(value), "{name} was not repaired");
    }

    // Drift that occurred meanwhile is repaired even without a new version.
    fixture.wait_until_idle().await?;
    broker.set_status(AgentStatus::Inactive);
    broker.wait_until_in_sync().await?;
    fixture.edit("one", "by hand").await?;
    broker.polls(OFTEN).await?;
    assert_eq!(fixture.value("one").await?.as_deref(), Some("by hand"));
    broker.set_status(AgentStatus::Active);
    fixture.wait_for_value("one", "1").await?;
    fixture.delete_truthfully().await
}

#[tokio::test]
async fn a3_content_that_does_not_match_its_checksum_is_never_applied() -> Result<()> {
    let fixture = Fixture::open().await?;
    let broker = &fixture.broker;

    // The first content of a stack: not even its namespace is created.
    let first = broker.offer(STACK, &fixture.manifest(&[("one", "1"), ("two", "2")]))?;
    broker.hand_out(first, ContentLie::Other(fixture.manifest(&[("one", "forged")])));
    broker.handed_out(first, OFTEN).await?;
    let report = broker.reported(first, Transition::Failed).await?;
    assert_eq!(report.reason.code(), "ChecksumMismatch", "{report:?}");
    assert!(fixture.namespace().await?.is_none());
    broker.hand_out_truthfully();
    broker.wait_until_healthy(first).await?;
    assert_eq!(fixture.value("one").await?.as_deref(), Some("1"));
    let before = fixture.wait_until_idle().await?;

    // Later ones: the objects stay as they are. The record, and Events about it, may report the error.
    let lies = [
        ContentLie::Other(fixture.manifest(&[("one", "forged")])),
        ContentLie::CutOff,
        ContentLie::Shortened,
        ContentLie::Html,
        ContentLie::Empty,
    ];
    let mut last = first;
    for (round, lie) in lies.into_iter().enumerate() {
        let (mark, what) = (fixture.mark()?, format!("{lie:?}"));
        last = broker.offer(STACK, &fixture.manifest(&[("one", "newer"), ("three", &round.to_string())]))?;
        broker.hand_out(last, lie);
        broker.handed_out(last, OFTEN).await?;
        let report = broker.reported(last, Transition::Failed).await?;
        assert!(["ChecksumMismatch", "FetchFailed"].contains(&report.reason.code()), "{report:?}");
        let only_objects = |found: Versions| -> Versions {
            found.into_iter().filter(|(name, _)| !name.starts_with("Stack ")).collect()
        };
        assert_eq!(only_objects(fixture.versions().await?), only_objects(before.clone()), "{what}");
        let writes = fixture.writes(mark)?;
        let others: Vec<_> =
            writes.iter().filter(|write| !["stacks", "events"].contains(&&*write.resource)).collect();
        assert!(others.is_empty(), "{what}: {others:#?}");
    }
    broker.hand_out_truthfully();
    broker.wait_until_healthy(last).await.context("the correct content was not accepted after wrong ones")?;
    assert_eq!(fixture.value("one").await?.as_deref(), Some("newer"));
    assert_eq!(fixture.value("two").await?, None);
    fixture.delete_truthfully().await
}

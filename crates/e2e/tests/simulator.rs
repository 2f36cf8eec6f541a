//! The simulator matches the real API server: the same requests with the same preconditions get the same responses from
//! kube-apiserver, through the agent's own `execute::Cluster` and `inventory::Records`.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use brokkr_agent::execute::{Cluster as Requests, Writes};
use brokkr_agent::inventory::{RecordError, Records, wire};
use brokkr_agent::model::{FailureClass, Record, SeenObject, StepResult, Uid};
use brokkr_agent::ownership::{AGENT_LABEL, CHECKSUM, ID, SEQUENCE, STACK_ID};
use brokkr_agent::{fence, grant};
use brokkr_api::{AgentId, SequenceId, StackId};
use brokkr_manifest::Key;
use brokkr_sim::broker::Broker;
use brokkr_sim::corpus::{CorpusRequest, Entry, Given, Verdict, corpus, fenced, play, stamp, verdict};
use brokkr_sim::objects::{Item, kind_of, namespace_key};
use brokkr_sim::records::Records as SimulatedRecords;
use brokkr_sim::server::Server;
use brokkr_testkit::agent::{ACCOUNT, install};
use brokkr_testkit::{Attempt, Cluster, eventually, unique};
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::json;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

struct Real {
    admin: kube::Client,
    requests: Requests,
    writes: Writes,
}

/// Returns whether the selected older version of Kubernetes answers otherwise than the simulated server.
fn is_known_to_differ(entry: &str) -> bool {
    /// Server-side apply creates an object although its definition is being deleted. It is deleted with the definition.
    const OF_1_30_AND_1_33: [&str; 1] = ["apply of a kind with a terminating definition"];
    let version = std::env::var("BROKKR_KUBERNETES").unwrap_or_default();
    matches!(version.as_str(), "1.30" | "1.33") && OF_1_30_AND_1_33.contains(&entry)
}

/// Returns writes as the agent makes them for the default project.
fn as_itself(requests: &Requests) -> Result<Writes> {
    let mut broker = Broker::default();
    broker.submit(stamp().stack, "any", &[], Timestamp::now());
    let acting = grant::acting(&broker.envelope()[0]).map_err(|refusal| anyhow!(refusal.sentence()))?;
    Ok(requests.acting_as(&acting))
}

impl Real {
    async fn of(cluster: &Cluster) -> Result<Self> {
        let admin = cluster.admin().await?;
        let requests = Requests::new(admin.clone(), 4);
        requests.allow_writes(true);
        let writes = as_itself(&requests)?;
        Ok(Self { admin, requests, writes })
    }

    /// Returns the API server as an agent sees it, with the fence that knows the agent of the corpus.
    async fn behind_the_fence(cluster: &Cluster) -> Result<Self> {
        let home = unique("sim-fence");
        install(cluster, &home, &[] as &[&str]).await?;
        let client = cluster.client_for(&home, ACCOUNT).await?;
        eventually(WAIT_TIMEOUT, "the fence to know the agent", async || {
            match fence::ensure_active(&client, &home, stamp().agent).await {
                Ok(()) => Attempt::Done(()),
                Err(error) => Attempt::NotYet(format!("{error:#}")),
            }
        })
        .await?;
        let requests = Requests::new(client, 4);
        requests.allow_writes(true);
        let writes = as_itself(&requests)?;
        Ok(Self { admin: cluster.admin().await?, requests, writes })
    }

    /// Plays these requests on both servers, which must agree, except where an older API server is known to differ.
    async fn compare(&self, entries: Vec<Entry>, simulated: &Server) -> Result<()> {
        let (mut differences, count) = (Vec::new(), entries.len());
        for entry in entries {
            let truth = self.play(&entry).await.with_context(|| entry.name)?;
            let simulated = play(&mut simulated.clone(), &entry);
            if (truth != simulated) != is_known_to_differ(entry.name) {
                differences
                    .push(format!("{}\n  real:      {truth:?}\n  simulated: {simulated:?}", entry.name));
            }
            self.clear(&entry).await?;
        }
        assert!(
            differences.is_empty(),
            "{} of {count} differ:\n{}",
            differences.len(),
            differences.join("\n")
        );
        println!("{count} requests, the same answers");
        Ok(())
    }

    fn api(&self, key: &Key) -> Api<DynamicObject> {
        let kind = kind_of(key);
        let name = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
        let resource = ApiResource::from_gvk_with_plural(&name, &kind.plural);
        match &key.namespace {
            Some(namespace) => Api::namespaced_with(self.admin.clone(), namespace, &resource),
            None => Api::all_with(self.admin.clone(), &resource),
        }
    }

    /// Creates the object as a user would, without ownership metadata.
    async fn create(&self, item: &Item) -> Result<()> {
        let object = serde_json::from_value(item.body())?;
        self.api(&item.key).create(&PostParams::default(), &object).await.context("create")?;
        Ok(())
    }

    async fn merge(&self, key: &Key, patch: serde_json::Value) -> Result<()> {
        self.api(key)
            .patch(&key.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context("patch")?;
        Ok(())
    }

    async fn seen(&self, key: &Key) -> Result<Option<SeenObject>> {
        match self.requests.read_object(&kind_of(key), key).await {
            StepResult::ObjectRead(seen) => Ok(seen),
            other => bail!("cannot read {key}: {other:?}"),
        }
    }

    async fn arrange(&self, given: &Given) -> Result<()> {
        match given {
            Given::Foreign(item) => self.create(item).await?,
            Given::Applied(item) => match self.writes.apply(&item.desired(), None, &stamp()).await {
                StepResult::Applied { .. } => {}
                other => bail!("apply {}: {other:?}", item.key),
            },
            Given::Served(item) => {
                self.create(item).await?;
                let (plural, group) = item.key.name.split_once('.').context("a definition's name")?;
                let path = format!("/apis/{group}/v1/{plural}");
                eventually(WAIT_TIMEOUT, "the kind to be served", async || {
                    let request = http::Request::get(&path).body(Vec::new()).expect("a request");
                    match self.admin.request_text(request).await {
                        Ok(_) => Attempt::Done(()),
                        Err(error) => Attempt::NotYet(error.to_string()),
                    }
                })
                .await?;
            }
            Given::Child(child, owner) => {
                self.create(&Item { key: child.clone(), ..Item::new("/ConfigMap/any/any", 1) }).await?;
                let uid = self.seen(owner).await?.context("the owner")?.uid;
                let kind = kind_of(owner);
                let reference = json!({
                    "apiVersion": kind.api_version(), "kind": kind.kind, "name": owner.name, "uid": uid,
                });
                self.merge(child, json!({"metadata": {"ownerReferences": [reference]}})).await?;
            }
            Given::Held(key) => {
                self.merge(key, json!({"metadata": {"finalizers": ["example.com/hold"]}})).await?;
            }
            Given::Unlabelled(key) => {
                self.merge(key, json!({"metadata": {"labels": {AGENT_LABEL: null}}})).await?;
            }
            Given::Sequence(key, sequence) => {
                self.merge(key, json!({"metadata": {"annotations": {SEQUENCE: sequence}}})).await?;
            }
            Given::OfAnotherAgent(item) => {
                self.create(item).await?;
                let annotations = json!({
                    STACK_ID: "another-stack", ID: item.key.to_string(), CHECKSUM: "theirs", SEQUENCE: "1",
                });
                let labels = json!({AGENT_LABEL: "another-agent"});
                self.merge(&item.key, json!({"metadata": {"labels": labels, "annotations": annotations}}))
                    .await?;
            }
            Given::Deleted(key) => {
                self.api(key).delete(&key.name, &DeleteParams::default()).await.context("delete")?;
                if kind_of(key).kind == "CustomResourceDefinition" {
                    self.wait_until_terminating(key).await?;
                }
            }
        }
        Ok(())
    }

    /// Waits until a controller has marked a definition as terminating and the API server has stopped serving its kind.
    async fn wait_until_terminating(&self, definition: &Key) -> Result<()> {
        let (plural, group) = definition.name.split_once('.').context("a definition's name")?;
        let path = format!("/apis/{group}/v1/namespaces/default/{plural}?dryRun=All");
        let one_more =
            json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": "probe"}});
        let one_more = serde_json::to_vec(&one_more)?;
        eventually(WAIT_TIMEOUT, "the kind to be terminating", async || {
            let request = http::Request::post(&path).header("content-type", "application/json");
            match self.admin.request_text(request.body(one_more.clone()).expect("a request")).await {
                Err(kube::Error::Api(status)) if status.message.contains("terminating") => Attempt::Done(()),
                other => Attempt::NotYet(format!("{other:?}")),
            }
        })
        .await
    }

    async fn play(&self, entry: &Entry) -> Result<Verdict> {
        let home = namespace_key(&entry.namespace);
        self.create(&Item { key: home.clone(), ..Item::new("/Namespace//any", 1) }).await?;
        for given in &entry.given {
            self.arrange(given).await.with_context(|| format!("{given:?}"))?;
        }
        let key = entry.request.key();
        let kind = kind_of(key);
        let before = self.seen(key).await?;
        let uid = entry.request.uid(before.as_ref());
        let named = uid.clone().unwrap_or_else(|| Uid::from(""));
        let answer = match &entry.request {
            CorpusRequest::Apply(item, _) => self.writes.apply(&item.desired(), uid.as_ref(), &stamp()).await,
            CorpusRequest::DryRun(item, _) => {
                self.writes.dry_run(&item.desired(), uid.as_ref(), &stamp()).await
            }
            CorpusRequest::ReadObject(key) => self.requests.read_object(&kind, key).await,
            CorpusRequest::ListContained(key) => self.list_contained(key).await?,
            CorpusRequest::Delete(key, _) => self.writes.delete(&kind, key, &named).await,
            CorpusRequest::Release(key, _) => self.writes.release(&kind, key, &named).await,
        };
        Ok(verdict(&answer, before.as_ref(), self.seen(key).await?.as_ref()))
    }

    /// Lists again if another test has just deleted a definition of the shared cluster.
    async fn list_contained(&self, key: &Key) -> Result<StepResult> {
        eventually(WAIT_TIMEOUT, "the contents to be listed", async || {
            match self.requests.list_contained(key).await {
                StepResult::Failed(failure) if failure.class == FailureClass::Transient => {
                    Attempt::NotYet(failure.message.to_string())
                }
                answer => Attempt::Done(answer),
            }
        })
        .await
    }

    /// Removes the finalizers and deletes what was created, so that the cluster is left as it was.
    async fn clear(&self, entry: &Entry) -> Result<()> {
        for given in &entry.given {
            if let Given::Held(key) = given
                && self.seen(key).await?.is_some()
            {
                self.merge(key, json!({"metadata": {"finalizers": null}})).await?;
            }
        }
        for given in &entry.given {
            if let Given::Served(item) = given {
                let _ = self.api(&item.key).delete(&item.key.name, &DeleteParams::default()).await;
            }
        }
        let _ = self
            .api(&namespace_key(&entry.namespace))
            .delete(&entry.namespace, &DeleteParams::default())
            .await;
        Ok(())
    }
}

#[tokio::test]
async fn the_simulated_server_answers_as_the_real_one_does() -> Result<()> {
    let cluster = Cluster::shared().await?;
    Real::of(&cluster).await?.compare(corpus(&unique("sim")), &Server::new(Timestamp::now())).await
}

#[tokio::test]
async fn the_simulated_fence_refuses_as_the_real_one_does() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let mut server = Server::new(Timestamp::now());
    server.fence = Some(stamp().agent);
    Real::behind_the_fence(&cluster).await?.compare(fenced(&unique("fenced")), &server).await
}

#[tokio::test]
async fn the_simulated_server_forbids_as_the_real_one_does() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let (admin, home) = (Real::of(&cluster).await?, unique("sim-rights"));
    admin.create(&Item { key: namespace_key(&home), ..Item::new("/Namespace//any", 1) }).await?;
    let account = serde_json::from_value(json!({"metadata": {"name": "nobody"}}))?;
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::namespaced(admin.admin.clone(), &home);
    accounts.create(&PostParams::default(), &account).await?;
    let unprivileged = Requests::new(cluster.client_for(&home, "nobody").await?, 1);
    unprivileged.allow_writes(true);
    let item = Item::new(&format!("/ConfigMap/{home}/one"), 1);
    let truth = as_itself(&unprivileged)?.apply(&item.desired(), None, &stamp()).await;
    let mut server = Server::new(Timestamp::now());
    server.forbidden.insert(brokkr_agent::resource::KindName::of(&item.key));
    let simulated = server.apply(&item.desired(), None, &stamp());
    assert_eq!(verdict(&truth, None, None), verdict(&simulated, None, None));
    let StepResult::Failed(failure) = truth else { panic!("{truth:?}") };
    assert_eq!(failure.class, FailureClass::Permanent);
    Ok(())
}

#[tokio::test]
async fn the_simulated_record_store_keeps_the_same_versions() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let namespace = unique("sim-records");
    Real::of(&cluster)
        .await?
        .create(&Item { key: namespace_key(&namespace), ..Item::new("/Namespace//any", 1) })
        .await?;
    install(&cluster, &namespace, &[] as &[&str]).await?;
    let (agent, stack) = (AgentId::generate(), StackId::generate());
    let real = Records::new(cluster.admin().await?, &namespace, agent);
    eventually(WAIT_TIMEOUT, "the record kind to be served", async || match real.load().await {
        Ok(_) => Attempt::Done(()),
        Err(error) => Attempt::NotYet(error.to_string()),
    })
    .await?;
    let mut simulated = SimulatedRecords::default();
    let mut record = blank(stack);
    // The version after each write, in the real and in the simulated store.
    let mut versions: Vec<(String, String)> = Vec::new();
    // Created; created again; replaced; replaced with the version before; deleted by hand and written again.
    for (round, back) in [None, None, Some(0), Some(1), Some(0)].into_iter().enumerate() {
        if round == 4 {
            let name = wire::record_name(&record.stack_name, stack);
            let objects: Api<DynamicObject> = Api::all_with(cluster.admin().await?, &wire::api_resource());
            let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            objects.patch(&name, &PatchParams::default(), &bare).await?;
            objects.delete(&name, &DeleteParams::default()).await?;
            simulated.drop_record(stack);
        }
        let known = back.and_then(|back| versions.iter().rev().nth(back).cloned());
        record.sequence = SequenceId(i64::try_from(round)?);
        record.version = known.as_ref().map(|(version, _)| version.clone());
        let truth = real.write(&record).await;
        record.version = known.map(|(_, version)| version);
        match (truth, simulated.write(&record)) {
            (Ok(new), Ok(simulated_new)) => versions.push((new, simulated_new)),
            (Err(RecordError::Stale), Err(_)) => {}
            (truth, answer) => panic!("round {round}: real {truth:?}, simulated {answer:?}"),
        }
    }
    assert_eq!(versions.len(), 3);
    let sequence = real.fetch(&record.stack_name, stack).await?.map(|record| record.sequence);
    assert_eq!(sequence, simulated.get(stack).map(|record| record.sequence));
    real.delete(&record.stack_name, stack).await?;
    real.delete(&record.stack_name, stack).await?;
    Ok(())
}

fn blank(stack: StackId) -> Record {
    Record {
        project: "default".into(),
        stack,
        stack_name: unique("sim"),
        sequence: SequenceId(0),
        removal: None,
        checksum: None,
        stamp: SequenceId(0),
        applied: None,
        inventory: Default::default(),
        grant: None,
        suspensions: Vec::new(),
        drift: Default::default(),
        made: Default::default(),
        first: None,
        wave_wait_seconds: None,
        wait: None,
        jobs: Vec::new(),
        hops: Default::default(),
        outcome: None,
        crashed: None,
        conditions: Vec::new(),
        ready: 0,
        total: 0,
        reports: Vec::new(),
        session: 1,
        version: None,
    }
}

//! What the agent stores in its cluster, on a real API server: contents, its state, records and their shards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use brokkr_agent::broker_link::memory::{CONFIG_MAP, Memory};
use brokkr_agent::content_cache::{CachedContent, ContentCache};
use brokkr_agent::inventory::{RecordError, Records};
use brokkr_agent::model::{Entry, Origin, Record};
use brokkr_agent::resource::{Kind, Served};
use brokkr_api::agents::AgentStatus;
use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, SequenceId, StackId};
use brokkr_manifest::Key;
use brokkr_testkit::{Cluster, unique};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use rand::RngExt as _;
use serde_json::json;

/// Creates a namespace, like the one that every agent has.
async fn own_namespace() -> Result<(Client, String)> {
    let client = Cluster::shared().await?.admin().await?;
    let name = unique("keeping");
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    Ok((client, name))
}

fn kind(name: &str) -> Kind {
    Kind::from(Served {
        group: String::new(),
        version: "v1".into(),
        kind: name.into(),
        plural: format!("{}s", name.to_lowercase()),
        namespaced: true,
    })
}

fn parsed() -> Checksum {
    Checksum::of(b"parsed")
}

/// Returns bytes that do not compress, so that they need three Secrets.
fn large() -> Vec<u8> {
    let mut bytes = vec![0; 2_500_000];
    rand::rng().fill(bytes.as_mut_slice());
    bytes
}

/// Returns the names and versions of the stored Secrets.
async fn kept(secrets: &Api<Secret>) -> Result<BTreeSet<(String, Option<String>)>> {
    let list = secrets.list(&ListParams::default().labels("brokkr.io/kept-by")).await?;
    Ok(list.items.iter().map(|secret| (secret.name_any(), secret.resource_version())).collect())
}

#[tokio::test]
async fn a9_a_content_is_stored_once_and_read_back_complete_or_not_at_all() -> Result<()> {
    let (client, namespace) = own_namespace().await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let (agent, stack) = (AgentId::generate(), StackId::generate());
    let contents = ContentCache::new(&client, &namespace, agent);
    let bytes = large();
    let checksum = Checksum::of(&bytes);
    assert_eq!(contents.load(stack, SequenceId(1)).await?, None);
    contents.store(stack, SequenceId(1), checksum, parsed(), &bytes).await?;
    let whole = Some(CachedContent { checksum, parsed_digest: parsed(), bytes: bytes.clone() });
    assert_eq!(contents.load(stack, SequenceId(1)).await?, whole);
    let first = kept(&secrets).await?;
    assert_eq!(first.len(), 3, "{first:?}");

    // Storing the same content again writes nothing; under another sequence id it writes only a head.
    contents.store(stack, SequenceId(1), checksum, parsed(), &bytes).await?;
    assert_eq!(kept(&secrets).await?, first);
    contents.store(stack, SequenceId(2), checksum, parsed(), &bytes).await?;
    let second = kept(&secrets).await?;
    assert_eq!(second.len(), 4);

    // Evicting the older one keeps the shards that the newer one needs.
    contents.evict(stack, &[SequenceId(2)]).await?;
    assert_eq!(contents.load(stack, SequenceId(1)).await?, None);
    assert_eq!(contents.load(stack, SequenceId(2)).await?, whole);

    // A damaged shard makes the content absent, until it is stored again.
    let shard = second.iter().find(|(name, _)| name.contains("-part-")).expect("a shard").0.clone();
    let damage = json!({"stringData": {"part": "x"}});
    secrets.patch(&shard, &PatchParams::default(), &Patch::Merge(damage)).await?;
    assert_eq!(contents.load(stack, SequenceId(2)).await?, None);
    contents.store(stack, SequenceId(2), checksum, parsed(), &bytes).await?;
    assert_eq!(contents.load(stack, SequenceId(2)).await?, whole);
    secrets.delete(&shard, &DeleteParams::default()).await?;
    assert_eq!(contents.load(stack, SequenceId(2)).await?, None);

    contents.evict(stack, &[]).await?;
    assert_eq!(kept(&secrets).await?, BTreeSet::new());
    Ok(())
}

#[tokio::test]
async fn d6_shards_without_a_head_are_no_content_and_are_removed() -> Result<()> {
    let (client, namespace) = own_namespace().await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let contents = ContentCache::new(&client, &namespace, AgentId::generate());
    let others = ContentCache::new(&client, &namespace, AgentId::generate());
    let (crashed, lost, alive) = (StackId::generate(), StackId::generate(), StackId::generate());
    let (small, bytes) = (b"kind: ConfigMap".as_slice(), large());
    contents.store(crashed, SequenceId(1), Checksum::of(&bytes), parsed(), &bytes).await?;
    contents.store(alive, SequenceId(2), Checksum::of(small), parsed(), small).await?;
    contents.store(lost, SequenceId(3), Checksum::of(small), parsed(), small).await?;
    others.store(lost, SequenceId(4), Checksum::of(small), parsed(), small).await?;

    // The state after a crash before the head was written.
    for (name, _) in kept(&secrets).await?.iter().filter(|(name, _)| name.ends_with("-1")) {
        secrets.delete(name, &DeleteParams::default()).await?;
    }
    assert_eq!(contents.load(crashed, SequenceId(1)).await?, None);
    contents.evict(crashed, &[SequenceId(1)]).await?;
    assert_eq!(kept(&secrets).await?.len(), 3, "no shard is left of it");

    contents.evict_unknown_stacks(&[alive].into()).await?;
    assert!(contents.load(alive, SequenceId(2)).await?.is_some());
    assert_eq!(contents.load(lost, SequenceId(3)).await?, None);
    assert!(others.load(lost, SequenceId(4)).await?.is_some(), "another agent's content is not evicted");
    Ok(())
}

#[tokio::test]
async fn a9_the_agents_state_is_written_when_it_changes_and_again_after_its_deletion() -> Result<()> {
    let (client, namespace) = own_namespace().await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let memory = Memory::new(&client, &namespace);
    let first = memory.start(0).await?;
    assert_eq!((first.session.count, first.status), (1, None));

    memory.keep_status(AgentStatus::Inactive).await?;
    memory.keep_status(AgentStatus::Active).await?;
    let version = maps.get(CONFIG_MAP).await?.resource_version();
    memory.keep_status(AgentStatus::Active).await?;
    assert_eq!(maps.get(CONFIG_MAP).await?.resource_version(), version);

    maps.delete(CONFIG_MAP, &DeleteParams::default()).await?;
    memory.keep_position("3.7".parse()?).await?;
    let second = Memory::new(&client, &namespace).start(0).await?;
    assert_eq!(second.session.count, 2);
    assert_eq!(second.position, "3.7".parse()?);
    assert_eq!(second.status, Some(AgentStatus::Active));
    Ok(())
}

#[tokio::test]
async fn a_position_is_stored_with_its_proof_until_the_owner_of_the_cluster_forgets_it() -> Result<()> {
    let (client, namespace) = own_namespace().await?;
    let memory = Memory::new(&client, &namespace);
    assert_eq!(memory.forget_position().await?, None, "nothing is stored yet");
    memory.start(0).await?;
    let position = "9223372036854775807.7.3.000102030405060708090a0b0c0d0e0f";
    memory.keep_position(position.parse()?).await?;
    memory.keep_refused(Some("epoch_in_future")).await?;
    let again = Memory::new(&client, &namespace).start(0).await?;
    assert_eq!(again.position.to_string(), position);

    assert_eq!(memory.forget_position().await?.as_deref(), Some(position));
    let last = Memory::new(&client, &namespace).start(0).await?;
    assert_eq!((last.position, last.session.count), (brokkr_api::PositionToken::default(), 3));
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let data = maps.get(CONFIG_MAP).await?.data.unwrap_or_default();
    assert_eq!(data.get("refused"), None);
    Ok(())
}

/// The custom resource definition of records, and a namespace for shards.
struct Archive {
    client: Client,
    namespace: String,
    agent: AgentId,
}

impl Archive {
    async fn open() -> Result<Self> {
        let (client, namespace) = own_namespace().await?;
        brokkr_testkit::agent::install(&*Cluster::shared().await?, &namespace, &[] as &[&str]).await?;
        Ok(Self { client, namespace, agent: AgentId::generate() })
    }

    /// Returns the records as one run of the agent uses them.
    fn records(&self) -> Records {
        Records::new(self.client.clone(), &self.namespace, self.agent)
    }

    fn objects(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &brokkr_agent::inventory::wire::api_resource())
    }

    async fn ours(&self) -> Result<Vec<DynamicObject>> {
        let ours = ListParams::default().labels(&format!("brokkr.io/kept-by={}", self.agent));
        Ok(self.objects().list(&ours).await?.items)
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn shards(&self) -> Result<BTreeSet<String>> {
        let shards = ListParams::default().labels("brokkr.io/inventory-of");
        Ok(self.maps().list(&shards).await?.iter().map(ResourceExt::name_any).collect())
    }

    async fn delete_by_hand(&self, name: &str) -> Result<()> {
        self.objects().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }
}

fn record(session: i64, entries: u32) -> Record {
    let line = |number: u32| {
        let key: Key = format!("/ConfigMap/shop/web-{number}").parse().expect("a key");
        let entry = Entry {
            wave: 0,
            kind: kind("ConfigMap"),
            origin: Origin::Created,
            uid: Some(unique("uid").into()),
            digest: Some(Checksum::of(&number.to_be_bytes())),
            fields: None,
            completed: false,
        };
        (key, entry)
    };
    Record {
        made: Default::default(),
        first: None,
        wave_wait_seconds: None,
        wait: None,
        jobs: Vec::new(),
        grant: None,
        suspensions: Vec::new(),
        drift: Default::default(),
        project: "default".into(),
        stack: StackId::generate(),
        stack_name: "shop".into(),
        sequence: SequenceId(session),
        removal: None,
        checksum: None,
        stamp: SequenceId(1),
        applied: None,
        inventory: Arc::new((0..entries).map(line).collect()),
        hops: Default::default(),
        outcome: None,
        crashed: None,
        conditions: Vec::new(),
        ready: 0,
        total: entries,
        reports: Vec::new(),
        session,
        version: None,
    }
}

#[tokio::test]
async fn d6_f4_thirty_thousand_entries_are_sharded_and_a_small_change_rewrites_one_shard() -> Result<()> {
    let archive = Archive::open().await?;
    let records = archive.records();
    let mut record = record(1, 30_000);
    record.version = Some(records.write(&record).await?);
    let written = archive.shards().await?;
    assert_eq!(written.len(), 32);
    assert_eq!(archive.records().load().await?, [record.clone()]);

    // A report writes no shard; a changed entry writes one and removes the old one.
    record.ready = 5;
    record.version = Some(records.write(&record).await?);
    assert_eq!(archive.shards().await?, written);
    record.inventory_mut().pop_first();
    record.version = Some(records.write(&record).await?);
    let now = archive.shards().await?;
    assert_eq!((now.len(), now.difference(&written).count()), (32, 1));

    // The next run changes one more entry, and reuses all shards that this does not affect.
    let next = archive.records();
    let mut again = next.load().await?.remove(0);
    again.session = 2;
    again.inventory_mut().pop_first();
    again.version = Some(next.write(&again).await?);
    assert!(archive.shards().await?.difference(&now).count() <= 1);
    assert_eq!(archive.records().load().await?, [again.clone()]);

    // The earlier run can neither write nor delete, and its unused shards are removed.
    record.inventory_mut().pop_last();
    assert!(matches!(records.write(&record).await, Err(RecordError::Stale)));
    assert!(matches!(records.delete("shop", record.stack).await, Err(RecordError::Stale)));
    assert_eq!(archive.shards().await?.len(), 33);
    next.sweep(2, Duration::ZERO).await?;
    assert_eq!(archive.shards().await?.len(), 32);
    assert_eq!(archive.records().load().await?, [again.clone()]);

    // With few entries they are stored in the record itself.
    let ten = again.inventory.iter().take(10).map(|(key, entry)| (key.clone(), entry.clone()));
    again.inventory = Arc::new(ten.collect());
    again.version = Some(next.write(&again).await?);
    assert_eq!(archive.shards().await?, BTreeSet::new());
    assert_eq!(archive.records().load().await?, [again.clone()]);
    next.delete("shop", again.stack).await?;
    assert_eq!(archive.records().load().await?, []);
    assert_eq!(archive.ours().await?.len(), 0);
    Ok(())
}

#[tokio::test]
async fn d6_a_record_that_names_a_missing_shard_stops_its_own_stack_and_never_looks_empty() -> Result<()> {
    let archive = Archive::open().await?;
    let (broken, whole) = (record(1, 3_000), record(1, 3));
    let records = archive.records();
    records.write(&broken).await?;
    let version = records.write(&whole).await?;
    let shard = archive.shards().await?.pop_first().expect("a shard");
    archive.maps().delete(&shard, &DeleteParams::default()).await?;

    let next = archive.records();
    let whole = Record { version: Some(version), ..whole };
    assert_eq!(next.load().await?, std::slice::from_ref(&whole));
    assert_eq!(next.stacks(), [broken.stack, whole.stack].into(), "both are held");
    let error = next.fetch("shop", broken.stack).await.expect_err("no empty inventory");
    assert!(error.to_string().contains(&shard), "{error}");
    // It is not overwritten by an empty record.
    let empty = Record { inventory: Arc::default(), session: 2, ..broken };
    assert!(matches!(next.write(&empty).await, Err(RecordError::Stale)));
    Ok(())
}

#[tokio::test]
async fn e5_there_is_always_a_record_and_leftovers_of_a_crash_are_removed() -> Result<()> {
    let archive = Archive::open().await?;
    let records = archive.records();
    let mut record = record(1, 3_000);
    record.version = Some(records.write(&record).await?);
    let name = archive.ours().await?[0].name_any();

    // Deleted by hand: the finalizer holds it, one write is refused, and the next one uses the record's other name.
    archive.delete_by_hand(&name).await?;
    assert_eq!(archive.ours().await?.len(), 1, "held by its finalizer");
    assert!(matches!(records.write(&record).await, Err(RecordError::Stale)));
    record.version = records.fetch("shop", record.stack).await?.and_then(|found| found.version);
    record.ready = 7;
    record.version = Some(records.write(&record).await?);
    let ours = archive.ours().await?;
    assert_eq!(ours.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), [format!("{name}-2")]);
    assert_eq!(archive.records().load().await?, [record.clone()]);

    // The state after a crash: the copy exists, and the finalizer still holds the old one.
    archive.delete_by_hand(&format!("{name}-2")).await?;
    let mut copy = archive.ours().await?.remove(0);
    copy.metadata = kube::api::ObjectMeta {
        name: Some(name.clone()),
        labels: copy.metadata.labels,
        finalizers: copy.metadata.finalizers,
        ..Default::default()
    };
    archive.objects().create(&PostParams::default(), &copy).await?;
    // The copy is deleted too: both are terminating. Loading leaves one record that is not.
    archive.delete_by_hand(&name).await?;
    assert_eq!(archive.ours().await?.len(), 2);
    let next = archive.records();
    let mut found = next.load().await?;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].inventory, record.inventory);
    let ours = archive.ours().await?;
    assert_eq!(ours.len(), 1);
    assert!(ours[0].metadata.deletion_timestamp.is_none());

    // Without its finalizer the record is deleted; the next write creates it again, and its shards still exist.
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let name = ours[0].name_any();
    archive.objects().patch(&name, &PatchParams::default(), &patch).await?;
    archive.delete_by_hand(&name).await?;
    assert_eq!(archive.ours().await?.len(), 0);
    let mut record = found.remove(0);
    record.version = Some(next.write(&record).await?);
    assert_eq!(archive.records().load().await?, [record.clone()]);
    next.delete("shop", record.stack).await?;
    assert_eq!((archive.ours().await?.len(), archive.shards().await?.len()), (0, 0));
    Ok(())
}

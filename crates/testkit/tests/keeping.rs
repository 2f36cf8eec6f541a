//! What the agent keeps in its cluster, on a real API server: contents, memory, records and their shards.

use std::collections::BTreeSet;

use anyhow::Result;
use brokkr_agent::keep::{Contents, Kept};
use brokkr_agent::link::memory::{CONFIG_MAP, Memory};
use brokkr_agent::resource::Kind;
use brokkr_api::agents::AgentStatus;
use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, SequenceId, StackId};
use brokkr_testkit::{Cluster, unique};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use rand::RngExt as _;
use serde_json::json;

/// A namespace of its own, as the agent has one.
async fn own_namespace() -> Result<(Client, String)> {
    let client = Cluster::shared().await?.admin().await?;
    let name = unique("keeping");
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    Ok((client, name))
}

fn parsed() -> Checksum {
    Checksum::of(b"parsed")
}

/// Three Secrets: it does not compress.
fn large() -> Vec<u8> {
    let mut bytes = vec![0; 2_500_000];
    rand::rng().fill(bytes.as_mut_slice());
    bytes
}

/// Names and versions of what is kept.
async fn kept(secrets: &Api<Secret>) -> Result<BTreeSet<(String, Option<String>)>> {
    let list = secrets.list(&ListParams::default().labels("brokkr.io/kept-by")).await?;
    Ok(list.items.iter().map(|secret| (secret.name_any(), secret.resource_version())).collect())
}

#[tokio::test]
async fn a9_a_content_is_kept_once_and_comes_back_whole_or_not_at_all() -> Result<()> {
    let (client, namespace) = own_namespace().await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let (agent, stack) = (AgentId::generate(), StackId::generate());
    let contents = Contents::new(&client, &namespace, agent);
    let bytes = large();
    let checksum = Checksum::of(&bytes);
    assert_eq!(contents.load(stack, SequenceId(1)).await?, None);
    contents.keep(stack, SequenceId(1), checksum, parsed(), &bytes).await?;
    let whole = Some(Kept { checksum, parsed_digest: parsed(), bytes: bytes.clone() });
    assert_eq!(contents.load(stack, SequenceId(1)).await?, whole);
    let first = kept(&secrets).await?;
    assert_eq!(first.len(), 3, "{first:?}");

    // Again: nothing is written. Under another sequence id: only a head is.
    contents.keep(stack, SequenceId(1), checksum, parsed(), &bytes).await?;
    assert_eq!(kept(&secrets).await?, first);
    contents.keep(stack, SequenceId(2), checksum, parsed(), &bytes).await?;
    let second = kept(&secrets).await?;
    assert_eq!(second.len(), 4);

    // What the newer one needs stays.
    contents.forget(stack, &[SequenceId(2)]).await?;
    assert_eq!(contents.load(stack, SequenceId(1)).await?, None);
    assert_eq!(contents.load(stack, SequenceId(2)).await?, whole);

    // A shard is damaged by hand: absent, and whole again once it is kept again.
    let shard = second.iter().find(|(name, _)| name.contains("-part-")).expect("a shard").0.clone();
    let damage = json!({"stringData": {"part": "x"}});
    secrets.patch(&shard, &PatchParams::default(), &Patch::Merge(damage)).await?;
    assert_eq!(contents.load(stack, SequenceId(2)).await?, None);
    contents.keep(stack, SequenceId(2), checksum, parsed(), &bytes).await?;
    assert_eq!(contents.load(stack, SequenceId(2)).await?, whole);
    secrets.delete(&shard, &DeleteParams::default()).await?;
    assert_eq!(contents.load(stack, SequenceId(2)).await?, None);

    contents.forget(stack, &[]).await?;
    assert_eq!(kept(&secrets).await?, BTreeSet::new());
    Ok(())
}

#[tokio::test]
async fn d6_shards_without_a_head_are_no_content_and_are_removed() -> Result<()> {
    let (client, namespace) = own_namespace().await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let contents = Contents::new(&client, &namespace, AgentId::generate());
    let others = Contents::new(&client, &namespace, AgentId::generate());
    let (crashed, lost, alive) = (StackId::generate(), StackId::generate(), StackId::generate());
    let (small, bytes) = (b"kind: ConfigMap".as_slice(), large());
    contents.keep(crashed, SequenceId(1), Checksum::of(&bytes), parsed(), &bytes).await?;
    contents.keep(alive, SequenceId(2), Checksum::of(small), parsed(), small).await?;
    contents.keep(lost, SequenceId(3), Checksum::of(small), parsed(), small).await?;
    others.keep(lost, SequenceId(4), Checksum::of(small), parsed(), small).await?;

    // As a crash before the head leaves it.
    for (name, _) in kept(&secrets).await?.iter().filter(|(name, _)| name.ends_with("-1")) {
        secrets.delete(name, &DeleteParams::default()).await?;
    }
    assert_eq!(contents.load(crashed, SequenceId(1)).await?, None);
    contents.forget(crashed, &[SequenceId(1)]).await?;
    assert_eq!(kept(&secrets).await?.len(), 3, "no shard is left of it");

    contents.forget_others(&[alive].into()).await?;
    assert!(contents.load(alive, SequenceId(2)).await?.is_some());
    assert_eq!(contents.load(lost, SequenceId(3)).await?, None);
    assert!(others.load(lost, SequenceId(4)).await?.is_some(), "another agent's is not ours to forget");
    Ok(())
}

#[tokio::test]
async fn a9_what_is_remembered_is_written_when_it_changes_and_survives_its_deletion() -> Result<()> {
    let (client, namespace) = own_namespace().await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let kind = |plural: &str| Kind {
        group: String::new(),
        version: "v1".into(),
        kind: plural.into(),
        plural: plural.into(),
        namespaced: true,
    };
    let memory = Memory::new(&client, &namespace);
    let first = memory.start().await?;
    assert_eq!((first.session.count, first.status, first.kinds.len()), (1, None, 0));

    memory.keep_status(AgentStatus::Inactive).await?;
    memory.keep_status(AgentStatus::Active).await?;
    memory.keep_kinds(&[kind("secrets")].into()).await?;
    memory.keep_kinds(&[kind("configmaps")].into()).await?;
    let version = maps.get(CONFIG_MAP).await?.resource_version();
    memory.keep_status(AgentStatus::Active).await?;
    memory.keep_kinds(&[kind("secrets")].into()).await?;
    assert_eq!(maps.get(CONFIG_MAP).await?.resource_version(), version);

    maps.delete(CONFIG_MAP, &DeleteParams::default()).await?;
    memory.keep_position("3.7".parse()?).await?;
    let second = Memory::new(&client, &namespace).start().await?;
    assert_eq!(second.session.count, 2);
    assert_eq!(second.position, "3.7".parse()?);
    assert_eq!(second.status, Some(AgentStatus::Active));
    assert_eq!(second.kinds, [kind("secrets"), kind("configmaps")].into());
    Ok(())
}

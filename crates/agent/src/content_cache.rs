//! A cache of the applied content in the cluster, so that an agent that starts while the broker is unreachable
//! can still repair its objects (A9).
//!
//! The content of a version is stored in Secrets of the agent's namespace, because manifests may contain
//! secrets. It is compressed and split into parts. The first part is in the head, which lists the other parts
//! (shards) with their digests; most content fits into the head. The head is written last, so that a crash
//! leaves no head without its shards.
//!
//! A head belongs to one sequence id. Shards are named by their digest: the same content under another sequence id (A8)
//! needs a new head, but reuses the shards.
//!
//! | file   | contents                                                |
//! |--------|---------------------------------------------------------|
//! | `head` | splits content into Secrets, and joins them again       |

mod head;

use std::collections::BTreeSet;

use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, SequenceId, StackId};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};

use crate::own_objects::{KEPT_BY, RequestError, StackLocks, list, put, remove, with_deadline};
use head::{CONTENT_OF, ContentNames, Cut, Head, SEQUENCE};

#[derive(Clone)]
pub struct ContentCache {
    api: Api<Secret>,
    agent: AgentId,
    /// Storing and evicting exclude each other, because a shard without a head may belong to a write in
    /// progress.
    locks: StackLocks,
}

/// The cached content of a version, with a verified checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedContent {
    pub checksum: Checksum,
    pub parsed_digest: Checksum,
    pub bytes: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum ContentCacheError {
    #[error("failed to compress the content")]
    Compression(#[source] std::io::Error),
    #[error("failed to store, read or delete cached content in the agent's namespace")]
    Request(#[from] RequestError),
}

impl ContentCache {
    #[must_use]
    pub fn new(client: &Client, namespace: &str, agent: AgentId) -> Self {
        Self { api: Api::namespaced(client.clone(), namespace), agent, locks: StackLocks::default() }
    }

    /// Stores the verified content of a version. Writes nothing if it is already cached.
    pub async fn store(
        &self,
        stack: StackId,
        sequence: SequenceId,
        checksum: Checksum,
        parsed_digest: Checksum,
        bytes: &[u8],
    ) -> Result<(), ContentCacheError> {
        let _lock = self.locks.lock(stack).await;
        let cached = self.load(stack, sequence).await?;
        if cached.is_some_and(|cached| cached.checksum == checksum && cached.parsed_digest == parsed_digest) {
            return Ok(());
        }
        let Cut { head, shards } = self
            .names(stack)
            .cut(sequence, checksum, parsed_digest, bytes)
            .map_err(ContentCacheError::Compression)?;
        for shard in &shards {
            put(&self.api, shard).await?;
        }
        Ok(put(&self.api, &head).await?)
    }

    /// Returns the cached content of a version; if it is damaged or incomplete, it counts as absent.
    pub async fn load(
        &self,
        stack: StackId,
        sequence: SequenceId,
    ) -> Result<Option<CachedContent>, ContentCacheError> {
        let name = self.names(stack).head_name(sequence);
        let Some(first) = with_deadline(self.api.get_opt(&name)).await? else { return Ok(None) };
        let Some(head) = Head::of(&first.metadata) else {
            tracing::warn!(secret = name, "failed to read cached content; treating it as absent");
            return Ok(None);
        };
        let mut shards = Vec::with_capacity(head.shards.len());
        for shard in &head.shards {
            shards.extend(with_deadline(self.api.get_opt(&shard.name)).await?);
        }
        let Some(bytes) = head.join(first, shards) else {
            tracing::warn!(secret = name, "cached content is damaged or incomplete; treating it as absent");
            return Ok(None);
        };
        Ok(Some(CachedContent { checksum: head.checksum, parsed_digest: head.parsed_digest, bytes }))
    }

    /// Removes the cached content of a stack, except that of the versions with these sequence ids. Before the
    /// stack's record is deleted, this is called with an empty list, so that a crash leaves nothing behind.
    pub async fn evict(&self, stack: StackId, keep: &[SequenceId]) -> Result<(), ContentCacheError> {
        let _lock = self.locks.lock(stack).await;
        let kept = list(&self.api, &format!("{KEPT_BY}={},{CONTENT_OF}={stack}", self.agent)).await?;
        for name in evictable(&kept, keep) {
            remove(&self.api, &name).await?;
        }
        Ok(())
    }

    /// Removes, at start, the cached content of stacks without a record: a crash may have prevented the record
    /// from being written, and nothing else would remove the content.
    pub async fn evict_unknown_stacks(&self, known: &BTreeSet<StackId>) -> Result<(), ContentCacheError> {
        let kept = list(&self.api, &format!("{KEPT_BY}={},{CONTENT_OF}", self.agent)).await?;
        let of =
            |secret: &PartialObjectMeta<Secret>| secret.labels().get(CONTENT_OF)?.parse::<StackId>().ok();
        for stack in kept.iter().filter_map(of).collect::<BTreeSet<_>>().difference(known) {
            self.evict(*stack, &[]).await?;
        }
        Ok(())
    }

    fn names(&self, stack: StackId) -> ContentNames {
        ContentNames { agent: self.agent, stack }
    }
}

/// Returns the Secrets to remove, heads first: a crash leaves orphaned shards, but no head without its shards.
fn evictable(kept: &[PartialObjectMeta<Secret>], keep: &[SequenceId]) -> Vec<String> {
    let sequence = |secret: &PartialObjectMeta<Secret>| secret.labels().get(SEQUENCE).cloned();
    let (heads, shards): (Vec<_>, Vec<_>) = kept.iter().partition(|secret| sequence(secret).is_some());
    let keep: BTreeSet<String> = keep.iter().map(ToString::to_string).collect();
    let (needed, gone): (Vec<_>, Vec<_>) =
        heads.into_iter().partition(|head| sequence(head).is_some_and(|sequence| keep.contains(&sequence)));
    let needed: BTreeSet<String> = needed
        .iter()
        .filter_map(|head| Head::of(&head.metadata))
        .flat_map(|head| head.shards.into_iter().map(|shard| shard.name))
        .collect();
    let orphans = shards.into_iter().filter(|shard| !needed.contains(&shard.name_any()));
    gone.into_iter().chain(orphans).map(ResourceExt::name_any).collect()
}

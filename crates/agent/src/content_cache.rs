//! A cache of the applied contents in the cluster, so that an agent that starts while the broker
//! is unreachable can still repair them (A9).
//!
//! A content is stored in Secrets of the agent's namespace, because manifests may hold secrets: compressed, split
//! into parts, each part but the first in a shard of its own. The head holds the first part and names
//! the shards with their digests; nearly every content is a head alone. Shards are written first and the
//! head last, so that a crash in between leaves nothing that looks whole.
//!
//! A head belongs to one sequence id. Shards are named by their digest: the same content under another
//! sequence id (A8) writes a new head and finds its shards there already.
//!
//! | file   | what it is                                              |
//! |--------|---------------------------------------------------------|
//! | `head` | splits a content into Secrets, and joins them again     |

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
    /// Storing and evicting are exclusive: a shard without a head may be one that is just being written.
    locks: StackLocks,
}

/// A cached content with a verified checksum.
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

    /// Stores a verified content. Writes nothing if it is already cached.
    pub async fn store(
        &self,
        stack: StackId,
        sequence: SequenceId,
        checksum: Checksum,
        parsed_digest: Checksum,
        bytes: &[u8],
    ) -> Result<(), ContentCacheError> {
        let _lock = self.locks.lock(stack).await;
        let there = self.load(stack, sequence).await?;
        if there.is_some_and(|kept| kept.checksum == checksum && kept.parsed_digest == parsed_digest) {
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

    /// Returns a cached content; a damaged or incomplete one counts as absent.
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

    /// Removes the cached contents of a stack, except these sequence ids. With none, all of
    /// them: to be called before the stack's record is deleted, so that a crash in between leaves nothing behind.
    pub async fn evict(&self, stack: StackId, keep: &[SequenceId]) -> Result<(), ContentCacheError> {
        let _lock = self.locks.lock(stack).await;
        let kept = list(&self.api, &format!("{KEPT_BY}={},{CONTENT_OF}={stack}", self.agent)).await?;
        for name in superfluous(&kept, keep) {
            remove(&self.api, &name).await?;
        }
        Ok(())
    }

    /// At start: removes cached contents of stacks without a record. A crash may have come between the
    /// content and the record, and then nothing else would remove it.
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

/// Heads first: a crash in between leaves orphaned shards, never a head without its shards.
fn superfluous(kept: &[PartialObjectMeta<Secret>], keep: &[SequenceId]) -> Vec<String> {
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

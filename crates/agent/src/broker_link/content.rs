//! Fetches a deployment object as bytes, checks it before it is parsed, parses it with the same crate as the
//! broker, and resolves it against the kinds that this cluster serves.

use std::collections::BTreeMap;
use std::sync::Arc;

use brokkr_api::SequenceId;
use brokkr_api::envelope::TargetStack;
use brokkr_api::ids::Checksum;
use brokkr_api::reason::Reason;
use brokkr_client::Client as Broker;
use brokkr_manifest::{Budget, HookUse, hook_of, parse};

use crate::clock;
use crate::content_cache::{ContentCache, ContentCacheError};
use crate::execute::Cluster;
use crate::execute::discovery::{Kinds, ResolveError};
use crate::model::{Content, Failure, FailureClass, definitions};

/// Where content comes from: the cache in the cluster, otherwise the broker.
#[derive(Clone)]
pub struct ContentSource {
    pub broker: Broker,
    pub contents: ContentCache,
    pub kinds: Kinds,
}

impl ContentSource {
    /// A9: returns content only after it is cached in the cluster, so that its objects can be repaired
    /// without the broker.
    pub async fn fetch(&self, cluster: &Cluster, target: &TargetStack) -> Result<Arc<Content>, Failure> {
        let kept = self.contents.load(target.stack_id, target.sequence_id).await;
        let kept =
            kept.map_err(|error| cache_failure(&error))?.filter(|kept| kept.checksum == target.checksum);
        if let Some(kept) = kept {
            return read(cluster, &self.kinds, target, &kept.bytes, kept.parsed_digest).await;
        }
        let bytes = self.ask(target).await?;
        let content = read(cluster, &self.kinds, target, &bytes, target.parsed_digest).await?;
        self.contents
            .store(target.stack_id, target.sequence_id, target.checksum, target.parsed_digest, &bytes)
            .await
            .map_err(|error| cache_failure(&error))?;
        Ok(content)
    }

    /// Returns the previously applied content, if it is cached and readable.
    pub async fn earlier(
        &self,
        cluster: &Cluster,
        target: &TargetStack,
        sequence: SequenceId,
    ) -> Result<Option<Arc<Content>>, Failure> {
        let kept =
            self.contents.load(target.stack_id, sequence).await.map_err(|error| cache_failure(&error))?;
        let Some(kept) = kept else { return Ok(None) };
        let target = TargetStack { sequence_id: sequence, checksum: kept.checksum, ..target.clone() };
        Ok(read(cluster, &self.kinds, &target, &kept.bytes, kept.parsed_digest).await.ok())
    }

    async fn ask(&self, target: &TargetStack) -> Result<bytes::Bytes, Failure> {
        let asked = self.broker.deployment_object(target.sequence_id).await;
        let bytes = asked.map_err(|error| Failure {
            retry_after: error.retry_after(),
            ..Failure::with_words(FailureClass::Transient, Reason::FetchFailed, &error)
        })?;
        let found = Checksum::of(&bytes);
        if found != target.checksum {
            // The response may be truncated or altered: the content is fetched again, and never applied.
            let reason = Reason::ChecksumMismatch { expected: target.checksum, found };
            return Err(Failure::new(FailureClass::Transient, reason));
        }
        Ok(bytes)
    }
}

/// Converts an error of the content cache into a failure that is retried: nothing is applied before its
/// content is cached, and no record is deleted before its content is evicted.
#[must_use]
pub fn cache_failure(error: &ContentCacheError) -> Failure {
    Failure::with_words(FailureClass::Transient, Reason::ContentCacheFailed, error)
}

async fn read(
    cluster: &Cluster,
    kinds: &Kinds,
    target: &TargetStack,
    bytes: &[u8],
    announced: Checksum,
) -> Result<Arc<Content>, Failure> {
    let fetched = clock::now();
    let manifest = parse(bytes, &Budget::default())
        .map_err(|errors| Failure::with_words(FailureClass::Permanent, Reason::Unreadable, errors))?;
    let digest = Checksum(manifest.digest());
    if digest != announced {
        return Err(Failure::new(FailureClass::Permanent, Reason::ParsedDifferently));
    }
    let objects = kinds.resolve_all(cluster, &manifest).await.map_err(|error| match error {
        // Another stack may contain the definition of this kind.
        ResolveError::UnknownKind { kind } => {
            Failure::new(FailureClass::Missing, Reason::UnknownKind { kind })
        }
        ResolveError::NotNamespaced { object, kind } => {
            Failure::with_words(FailureClass::Permanent, Reason::NotNamespaced { kind }, object)
        }
        ResolveError::Unreachable(words) => {
            Failure::with_words(FailureClass::Transient, Reason::DiscoveryFailed, words)
        }
    })?;
    let left_out = manifest.objects.iter().filter_map(|object| match hook_of(object) {
        Some(HookUse::LeftOut(hook)) => Some((object.identity.key(), hook)),
        _ => None,
    });
    let verified = clock::now();
    Ok(Arc::new(Content {
        sequence: target.sequence_id,
        checksum: target.checksum,
        definitions: definitions(&objects),
        objects,
        dormant: BTreeMap::new(),
        left_out: left_out.collect(),
        fetched,
        verified,
    }))
}

//! One deployment object: fetched as bytes, checked before it is parsed, read with the same crate as
//! the broker's, and resolved against what this cluster serves.

use std::sync::Arc;

use brokkr_api::SequenceId;
use brokkr_api::envelope::TargetStack;
use brokkr_api::ids::Checksum;
use brokkr_client::Client as Broker;
use brokkr_manifest::{Budget, parse};
use jiff::Timestamp;

use crate::content_cache::{ContentCache, ContentCacheError};
use crate::execute::Cluster;
use crate::execute::discovery::{Kinds, ResolveError};
use crate::model::{Content, Failure, FailureClass, definitions};

/// Where contents come from: what was kept in the cluster, else the broker.
#[derive(Clone)]
pub struct ContentSource {
    pub broker: Broker,
    pub contents: ContentCache,
    pub kinds: Kinds,
}

impl ContentSource {
    /// A9: what is returned was kept in the cluster before, so that it can be put back without the broker.
    pub async fn fetch(&self, cluster: &Cluster, target: &TargetStack) -> Result<Arc<Content>, Failure> {
        let kept = self.contents.load(target.stack_id, target.sequence_id).await;
        let kept = kept.map_err(|error| not_kept(&error))?.filter(|kept| kept.checksum == target.checksum);
        if let Some(kept) = kept {
            return read(cluster, &self.kinds, target, &kept.bytes, kept.parsed_digest).await;
        }
        let bytes = self.ask(target).await?;
        let content = read(cluster, &self.kinds, target, &bytes, target.parsed_digest).await?;
        self.contents
            .keep(target.stack_id, target.sequence_id, target.checksum, target.parsed_digest, &bytes)
            .await
            .map_err(|error| not_kept(&error))?;
        Ok(content)
    }

    /// What was applied before, as far as it was kept and can still be read.
    pub async fn earlier(
        &self,
        cluster: &Cluster,
        target: &TargetStack,
        sequence: SequenceId,
    ) -> Result<Option<Arc<Content>>, Failure> {
        let kept = self.contents.load(target.stack_id, sequence).await.map_err(|error| not_kept(&error))?;
        let Some(kept) = kept else { return Ok(None) };
        let target = TargetStack { sequence_id: sequence, checksum: kept.checksum, ..target.clone() };
        Ok(read(cluster, &self.kinds, &target, &kept.bytes, kept.parsed_digest).await.ok())
    }

    async fn ask(&self, target: &TargetStack) -> Result<bytes::Bytes, Failure> {
        let asked = self.broker.deployment_object(target.sequence_id).await;
        let bytes = asked.map_err(|error| Failure {
            class: FailureClass::Transient,
            reason: "FetchFailed".into(),
            message: format!("cannot fetch deployment object {}: {error}", target.sequence_id),
            retry_after: error.retry_after(),
        })?;
        let found = Checksum::of(&bytes);
        if found != target.checksum {
            // May be a cut-off or altered answer on the way, so it is fetched again; never applied.
            return Err(Failure {
                class: FailureClass::Transient,
                reason: "ChecksumMismatch".into(),
                message: format!(
                    "the content's checksum is {found}, the broker announced {}",
                    target.checksum
                ),
                retry_after: None,
            });
        }
        Ok(bytes)
    }
}

/// The content must be kept before it is applied, and forgotten before its record is.
#[must_use]
pub fn not_kept(error: &ContentCacheError) -> Failure {
    Failure {
        class: FailureClass::Transient,
        reason: "ContentNotKept".into(),
        message: error.to_string(),
        retry_after: None,
    }
}

async fn read(
    cluster: &Cluster,
    kinds: &Kinds,
    target: &TargetStack,
    bytes: &[u8],
    announced: Checksum,
) -> Result<Arc<Content>, Failure> {
    let fetched = Timestamp::now();
    let permanent = |reason: &str, message: String| Failure {
        class: FailureClass::Permanent,
        reason: reason.into(),
        message,
        retry_after: None,
    };
    let manifest = parse(bytes, &Budget::default())
        .map_err(|errors| permanent("Unreadable", format!("this agent cannot read the content: {errors}")))?;
    let digest = Checksum(manifest.digest());
    if digest != announced {
        return Err(permanent(
            "ReadDifferently",
            "this agent reads the content differently from the broker; upgrade the older of the two".into(),
        ));
    }
    let objects = kinds.resolve_all(cluster, &manifest).await.map_err(|error| match error {
        // Its definition may come with another stack.
        ResolveError::UnknownKind(_) => Failure {
            class: FailureClass::Missing,
            reason: "UnknownKind".into(),
            message: error.to_string(),
            retry_after: None,
        },
        ResolveError::NotNamespaced { .. } => permanent("NotNamespaced", error.to_string()),
        ResolveError::Unreachable(_) => Failure {
            class: FailureClass::Transient,
            reason: "DiscoveryFailed".into(),
            message: error.to_string(),
            retry_after: None,
        },
    })?;
    let verified = Timestamp::now();
    Ok(Arc::new(Content {
        sequence: target.sequence_id,
        checksum: target.checksum,
        definitions: definitions(&objects),
        objects,
        fetched,
        verified,
    }))
}

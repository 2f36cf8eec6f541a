//! One deployment object: fetched as bytes, checked before it is parsed, read with the same crate as
//! the broker's, and resolved against what this cluster serves.

use std::sync::Arc;

use brokkr_api::envelope::TargetStack;
use brokkr_api::ids::Checksum;
use brokkr_client::Client as Broker;
use brokkr_manifest::{Budget, parse};
use jiff::Timestamp;

use crate::execute::Cluster;
use crate::execute::discovery::{Kinds, ResolveError};
use crate::plan::types::{Content, Failure, FailureClass, definitions};

pub async fn fetch(
    broker: &Broker,
    cluster: &Cluster,
    kinds: &Kinds,
    target: &TargetStack,
) -> Result<Arc<Content>, Failure> {
    let bytes = broker.deployment_object(target.sequence_id).await.map_err(|error| Failure {
        class: FailureClass::Transient,
        reason: "FetchFailed".into(),
        message: format!("cannot fetch deployment object {}: {error}", target.sequence_id),
        retry_after: error.retry_after(),
    })?;
    let fetched = Timestamp::now();
    let found = Checksum::of(&bytes);
    if found != target.checksum {
        // May be a cut-off or altered answer on the way, so it is fetched again; never applied.
        return Err(Failure {
            class: FailureClass::Transient,
            reason: "ChecksumMismatch".into(),
            message: format!("the content's checksum is {found}, the broker announced {}", target.checksum),
            retry_after: None,
        });
    }
    let permanent = |reason: &str, message: String| Failure {
        class: FailureClass::Permanent,
        reason: reason.into(),
        message,
        retry_after: None,
    };
    let manifest = parse(&bytes, &Budget::default())
        .map_err(|errors| permanent("Unreadable", format!("this agent cannot read the content: {errors}")))?;
    let read = Checksum(manifest.digest());
    if read != target.parsed_digest {
        return Err(permanent(
            "ReadDifferently",
            "this agent reads the content differently from the broker; upgrade the older of the two".into(),
        ));
    }
    let objects = kinds.resolve_all(cluster, &manifest).await.map_err(|error| match error {
        // Its definition may come with another stack.
        ResolveError::UnknownKind(_) => Failure {
            class: FailureClass::Transient,
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

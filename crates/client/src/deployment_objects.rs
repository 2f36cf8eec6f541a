//! Deployment objects: submitting, history, and their exact bytes.

use brokkr_api::SequenceId;
use brokkr_api::objects::{DeploymentObject, Diff, Provenance};
use brokkr_api::page::Page;
use brokkr_api::protocol::{SUBMISSION_BYTES, YAML_MEDIA_TYPE, header};
use bytes::Bytes;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::retry::IdempotencyKey;
use crate::rollouts::RolloutOptions;
use crate::{Client, PageQuery, Result};

impl Client {
    /// Submits the next version of a stack, given by name or id. Repeating a request with the same key returns the first
    /// result.
    pub async fn submit(
        &self,
        stack: &str,
        content: impl Into<Bytes>,
        provenance: &Provenance,
        key: &IdempotencyKey,
    ) -> Result<DeploymentObject> {
        self.submit_as(stack, content, provenance, &RolloutOptions::default(), key).await
    }

    /// Like [`Client::submit`], with options of the rollout.
    pub async fn submit_as(
        &self,
        stack: &str,
        content: impl Into<Bytes>,
        provenance: &Provenance,
        rollout: &RolloutOptions,
        key: &IdempotencyKey,
    ) -> Result<DeploymentObject> {
        let mut call = self
            .call(Method::POST, &["stacks", stack, "deployment-objects"])
            .query(&rollout.pairs())
            .accept("application/json")
            .idempotent(key)
            .bytes(YAML_MEDIA_TYPE, content.into());
        if let Some(message) = provenance.message() {
            call = call.brokkr_header(header::MESSAGE, utf8_percent_encode(message, NON_ALPHANUMERIC));
        }
        if let Some(commit) = provenance.commit() {
            call = call.brokkr_header(header::COMMIT, commit);
        }
        self.send(call).await?.json()
    }

    /// Fetches exactly the bytes that were submitted. The caller compares their checksum with the envelope's.
    pub async fn deployment_object(&self, sequence: SequenceId) -> Result<Bytes> {
        let path = ["deployment-objects", &sequence.to_string()];
        let mut call = self.call(Method::GET, &path).accept(YAML_MEDIA_TYPE);
        call.limit = SUBMISSION_BYTES;
        let answer = self.send(call).await?;
        answer.demand_media_type(YAML_MEDIA_TYPE)?;
        Ok(answer.body)
    }

    /// Reads one page of the versions of a stack, given by name or id.
    pub async fn history(&self, stack: &str, page: &PageQuery) -> Result<Page<DeploymentObject>> {
        self.page(&["stacks", stack, "deployment-objects"], &[], page).await
    }

    /// Reads the newest versions of a stack, at most `most`.
    pub async fn history_up_to(&self, stack: &str, most: usize) -> Result<Page<DeploymentObject>> {
        self.up_to(most, &["stacks", stack, "deployment-objects"], &[]).await
    }

    /// Compares two versions of a stack, given by name or id.
    pub async fn diff(&self, stack: &str, from: SequenceId, to: SequenceId) -> Result<Diff> {
        let pairs = [("from", from.to_string()), ("to", to.to_string())];
        self.send(self.read(&["stacks", stack, "diff"]).query(&pairs)).await?.json()
    }
}

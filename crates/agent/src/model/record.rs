//! The record of a stack in the cluster (`stacks.brokkr.io`): the objects that it owns, and its pending
//! reports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brokkr_api::envelope::{Grant, TargetStack};
use brokkr_api::ids::Checksum;
use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{Condition, Hops, Report, Transition};
use brokkr_api::stacks::DriftPolicy;
use brokkr_api::{SequenceId, StackId};
use brokkr_manifest::Key;
use serde::{Deserialize, Serialize};

use super::job::JobStep;
use super::object::{Fingerprint, Uid};
use super::suspension::RecordedSuspension;
use super::wave_clock::RecordedWait;
use crate::resource::Kind;

/// Whether an object existed before Brokkr. A Namespace is deleted only if Brokkr created it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    Created,
    Adopted,
}

/// One entry of the inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub kind: Kind,
    pub origin: Origin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// Digest of the manifest's object as it was last applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Checksum>,
    /// Hash of our managedFields entry in the response to our last apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Fingerprint>,
    /// It is a Job that is complete: it is not created again when it is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub completed: bool,
    /// The wave in which it was applied. Waves are deleted in reverse order.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wave: i64,
}

fn is_zero(wave: &i64) -> bool {
    *wave == 0
}

/// The record of a stack, stored in the cluster as `stacks.brokkr.io`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub project: String,
    pub stack: StackId,
    pub stack_name: String,
    /// The highest sequence id that the agent ever began to apply or to remove. It decreases only if a removal is cancelled,
    /// because the stack targets the agent again: a removal goes with the newest version, which may be released to others only.
    pub sequence: SequenceId,
    /// Set while the stack is being removed.
    pub removal: Option<brokkr_api::envelope::Removal>,
    /// The checksum in the annotations of the objects.
    pub checksum: Option<Checksum>,
    /// The sequence id in the annotations of the objects. It changes only together with the checksum.
    pub stamp: SequenceId,
    /// The sequence id that was applied completely.
    pub applied: Option<SequenceId>,
    /// Shared, because records are copied more often than their entries change.
    pub inventory: Arc<BTreeMap<Key, Entry>>,
    /// The grant under which the stack was last written: it applies while the broker is unreachable.
    pub grant: Option<Grant>,
    /// What is left alone, also while the broker is unreachable.
    pub suspensions: Vec<RecordedSuspension>,
    /// What is done about changes that others make, also while the broker is unreachable.
    pub drift: DriftPolicy,
    pub made: Made,
    /// The version that was applied first: its delivery is the install, for Helm hooks.
    pub first: Option<SequenceId>,
    /// How long its waves wait for each other.
    pub wave_wait_seconds: Option<u32>,
    /// For how long the delivery has waited for a wave.
    pub wait: Option<RecordedWait>,
    /// Jobs that are steps.
    pub jobs: Vec<JobStep>,
    /// When the delivery reached each of its steps.
    pub hops: Hops,
    pub outcome: Option<Outcome>,
    /// The sequence id of the version in which a container has crashed since the stack was last healthy.
    pub crashed: Option<SequenceId>,
    /// The conditions of the stack.
    pub conditions: Vec<Condition>,
    pub ready: u32,
    pub total: u32,
    /// Reports that the broker has not acknowledged yet.
    pub reports: Vec<Report>,
    /// The session (the run of the agent) that wrote it.
    pub session: i64,
    /// The resourceVersion to be replaced; none before the record was created.
    pub version: Option<String>,
}

/// The Namespaces and definitions that did not exist when the agent first recorded the intent to apply a
/// deployment object, so objects that depend on them did not exist either. If the delivery fails permanently,
/// these Namespaces are deleted, at most once per deployment object (D1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    pub sequence: SequenceId,
    pub prerequisites: BTreeSet<Key>,
}

/// The last reported outcome, so that only changes are reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub transition: Transition,
    pub sequence: SequenceId,
    #[serde(flatten)]
    pub reason: Reason,
    pub message: Message,
}

impl Record {
    /// Returns the inventory to change it.
    pub fn inventory_mut(&mut self) -> &mut BTreeMap<Key, Entry> {
        Arc::make_mut(&mut self.inventory)
    }

    /// Returns the Job, if it is a step.
    #[must_use]
    pub fn job(&self, key: &Key) -> Option<&JobStep> {
        self.jobs.iter().find(|step| step.job == *key)
    }

    /// Returns whether the delivery of this version is the first one that has completed, or may be.
    #[must_use]
    pub fn is_install(&self, sequence: SequenceId) -> bool {
        self.first.map_or(self.applied.is_none(), |first| first == sequence)
    }

    /// Returns whether the removal of the stack is complete, so that the record is about to be deleted.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        let outcome = self.outcome.as_ref();
        self.removal.is_some() && outcome.is_some_and(|outcome| outcome.transition == Transition::Removed)
    }

    /// Returns whether the found record has to be adopted instead of overwritten: an earlier run wrote it, but its write arrived
    /// after this run had read its records.
    #[must_use]
    pub fn is_behind(&self, found: &Self) -> bool {
        found.session < self.session && (self.version.is_none() || found.sequence > self.sequence)
    }

    /// Returns the record of a stack that has none yet.
    #[must_use]
    pub fn new(target: &TargetStack, session: i64) -> Self {
        Self {
            project: target.project.clone(),
            stack: target.stack_id,
            stack_name: target.stack_name.clone(),
            sequence: target.sequence_id,
            removal: None,
            checksum: None,
            stamp: SequenceId::default(),
            applied: None,
            inventory: Arc::default(),
            grant: None,
            suspensions: Vec::new(),
            drift: target.drift,
            made: Made::default(),
            first: None,
            wave_wait_seconds: None,
            wait: None,
            jobs: Vec::new(),
            hops: Hops::default(),
            outcome: None,
            crashed: None,
            conditions: Vec::new(),
            ready: 0,
            total: 0,
            reports: Vec::new(),
            session,
            version: None,
        }
    }
}

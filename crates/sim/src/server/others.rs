//! Other users of the same cluster, who create, change and delete objects.

use brokkr_agent::resource::KindName;
use brokkr_manifest::Key;

use super::{Marks, Server};
use crate::objects::namespace_key;

/// The highest sequence that the fence can read: no delivery will ever reach it.
pub const FORGED_SEQUENCE: &str = "999999999999999999";

/// A change to an object by someone else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meddling {
    Create,
    /// With the metadata of another agent.
    CreateForAnother,
    /// As the child of another object.
    CreateChildOf(Key),
    /// Changes a field that is ours.
    Change,
    Delete,
    TakeMarksOff,
    /// Removes only the label by which watches select.
    TakeLabelOff,
    /// Sets the annotation `brokkr.io/sequence`.
    SetSequence(String),
    /// Makes a definition serve `v1beta1`, too.
    ServeBeta,
    DropBeta,
    /// Adds the annotation `brokkr.io/prune: keep`.
    Keep,
    Hold,
    LetGo,
}

impl Server {
    pub fn meddle(&mut self, key: &Key, what: &Meddling) {
        match what {
            Meddling::Create | Meddling::CreateForAnother | Meddling::CreateChildOf(_) => {
                if self.objects.contains_key(key) || !self.can_exist(key) {
                    return;
                }
                self.insert(key, |object| match what {
                    Meddling::CreateForAnother => object.marks = another(key),
                    Meddling::CreateChildOf(owner) => object.owner = Some(owner.clone()),
                    _ => {}
                });
            }
            Meddling::Change => self.change(key, |object| {
                object.drift += u32::from(object.applied.is_some());
            }),
            Meddling::Delete => self.begin_delete(key),
            Meddling::TakeMarksOff => self.change(key, |object| {
                object.drift += u32::from(object.applied.is_some());
                object.marks = Marks::default();
            }),
            Meddling::TakeLabelOff => self.change(key, |object| {
                object.drift += u32::from(object.applied.is_some());
                object.marks.agent = None;
            }),
            Meddling::SetSequence(sequence) => self.change(key, |object| {
                object.drift += u32::from(object.applied.is_some());
                object.marks.sequence = Some(sequence.clone());
            }),
            Meddling::ServeBeta => self.change(key, |object| object.serves_beta = true),
            Meddling::DropBeta => self.change(key, |object| {
                object.drift += u32::from(object.applied.is_some() && object.serves_beta);
                object.serves_beta = false;
            }),
            Meddling::Keep => self.change(key, |object| object.kept_by_hand = true),
            Meddling::Hold => self.change(key, |object| {
                if !object.is_deleting() && object.finalizers.is_empty() {
                    object.finalizers.push("example.com/hold".into());
                }
            }),
            Meddling::LetGo => {
                self.change(key, |object| object.finalizers.retain(|held| held != "example.com/hold"));
                let free = |object: &super::Object| object.is_deleting() && object.finalizers.is_empty();
                if self.objects.get(key).is_some_and(free) && !KindName::of(key).is_namespace() {
                    self.drop_object(key);
                }
            }
        }
    }

    fn can_exist(&self, key: &Key) -> bool {
        let placed = key.namespace.as_ref().is_none_or(|namespace| {
            self.objects.get(&namespace_key(namespace)).is_some_and(|namespace| !namespace.is_deleting())
        });
        placed && self.is_served(&KindName::of(key))
    }
}

/// Returns the metadata of another agent.
fn another(key: &Key) -> Marks {
    Marks {
        agent: Some("another-agent".into()),
        stack: Some("another-stack".into()),
        id: Some(key.to_string()),
        checksum: Some("theirs".into()),
        sequence: Some("1".into()),
    }
}

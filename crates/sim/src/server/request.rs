//! The agent's requests and their results. The class of each refusal was measured on a real API server: see the corpus.

use std::time::Duration;

use brokkr_agent::model::{Content, DesiredObject, Failure, FailureClass, StepResult, Uid};
use brokkr_agent::ownership::Stamp;
use brokkr_agent::resource::{Kind, KindName, is_prerequisite, object_ref};
use brokkr_api::reason::Reason;
use brokkr_api::report::ObjectNote;
use brokkr_manifest::Key;

use super::fence::FencedWrite;
use super::{Applied, Marks, Server};
use crate::objects::{defines, namespace_key};

#[must_use]
pub fn refusal(class: FailureClass, reason: Reason) -> Failure {
    Failure::with_words(class, reason, "answered by the simulated server")
}

fn forbidden() -> Reason {
    Reason::Forbidden { account: None, verbs: Vec::new(), resource: None, namespace: None }
}

fn invalid() -> Reason {
    Reason::Invalid { fields: Vec::new() }
}

/// Returns the failure of a request without an answer: the answer is lost, or the server is unreachable.
#[must_use]
pub fn no_answer() -> Failure {
    refusal(FailureClass::Transient, Reason::ApiServerUnreachable)
}

/// Returns the failure of a request to an overloaded server, with its `Retry-After`.
#[must_use]
pub fn overload() -> Failure {
    let retry_after = Some(Duration::from_secs(3));
    Failure { retry_after, ..refusal(FailureClass::Transient, Reason::TooManyRequests) }
}

impl Marks {
    fn of(key: &Key, stamp: &Stamp) -> Self {
        Self {
            agent: Some(stamp.agent.to_string()),
            stack: Some(stamp.stack.to_string()),
            id: Some(key.to_string()),
            checksum: Some(stamp.checksum.to_string()),
            sequence: Some(stamp.sequence.to_string()),
        }
    }
}

impl Server {
    pub fn apply(&mut self, desired: &DesiredObject, uid: Option<&Uid>, stamp: &Stamp) -> StepResult {
        if self.ailing {
            return StepResult::Failed(refusal(FailureClass::Transient, Reason::HttpStatus { code: 503 }));
        }
        let (body, marks) = (self.read(desired), Marks::of(&desired.key, stamp));
        if let Err(failure) = self.check_apply(&desired.kind, &desired.key, &body, uid, &marks) {
            return StepResult::Failed(failure);
        }
        let created = !self.objects.contains_key(&desired.key);
        let is_ours_alone = is_prerequisite(&desired.key)
            && self
                .objects
                .get(&desired.key)
                .is_some_and(|object| object.made_by_brokkr && object.drift == 0);
        if created {
            self.insert(&desired.key, |object| {
                object.made_by_brokkr = true;
                object.marks = marks;
                object.serves_beta = body.serves_beta;
                object.applied = Some(body);
            });
        } else {
            self.change(&desired.key, |object| {
                object.marks = marks;
                object.serves_beta = body.serves_beta;
                object.applied = Some(body);
                object.drift = 0;
            });
        }
        match self.seen(&desired.key) {
            Some(seen) => StepResult::Applied { seen, created: created || is_ours_alone },
            None => StepResult::Failed(no_answer()),
        }
    }

    pub fn dry_run(&mut self, desired: &DesiredObject, uid: Option<&Uid>, stamp: &Stamp) -> StepResult {
        let (body, marks) = (self.read(desired), Marks::of(&desired.key, stamp));
        match self.check_apply(&desired.kind, &desired.key, &body, uid, &marks) {
            Ok(()) => StepResult::Valid { exists: self.objects.contains_key(&desired.key) },
            Err(failure) => StepResult::Failed(failure),
        }
    }

    fn check_apply(
        &self,
        kind: &Kind,
        key: &Key,
        body: &Applied,
        uid: Option<&Uid>,
        marks: &Marks,
    ) -> Result<(), Failure> {
        if !self.serves(kind) {
            return Err(refusal(FailureClass::Missing, Reason::HttpStatus { code: 404 }));
        }
        if self.forbidden.contains(&kind.name()) {
            return Err(refusal(FailureClass::Permanent, forbidden()));
        }
        match (self.objects.get(key), uid) {
            (Some(object), Some(uid)) if object.uid != *uid => {
                Err(refusal(FailureClass::Conflict, invalid()))
            }
            (None, Some(_)) => Err(refusal(FailureClass::Conflict, Reason::Conflict)),
            (Some(object), _) => {
                let allowed = object.applied.as_ref().is_none_or(|applied| applied.allows(body));
                if body.is_broken() {
                    return Err(refusal(FailureClass::Permanent, invalid()));
                }
                if !allowed {
                    return Err(refusal(FailureClass::Immutable, Reason::Immutable { fields: Vec::new() }));
                }
                self.check_fence(key, &FencedWrite::Update { old: &object.marks, new: marks })
            }
            (None, None) => {
                self.check_create(key, body)?;
                self.check_fence(key, &FencedWrite::Create { new: marks })
            }
        }
    }

    fn check_create(&self, key: &Key, body: &Applied) -> Result<(), Failure> {
        if let Some(namespace) = &key.namespace {
            match self.objects.get(&namespace_key(namespace)) {
                None => {
                    return Err(refusal(
                        FailureClass::Missing,
                        Reason::NamespaceNotFound { namespace: None },
                    ));
                }
                Some(namespace) if namespace.is_deleting() => {
                    return Err(refusal(
                        FailureClass::Missing,
                        Reason::NamespaceTerminating { namespace: None },
                    ));
                }
                Some(_) => {}
            }
        }
        let kind = KindName::of(key);
        let is_terminating =
            self.objects.iter().any(|(other, object)| defines(other, &kind) && object.is_deleting());
        if is_terminating {
            return Err(refusal(FailureClass::Permanent, forbidden()));
        }
        if body.is_broken() { Err(refusal(FailureClass::Permanent, invalid())) } else { Ok(()) }
    }

    /// Returns the objects that the agent has no permission to write.
    #[must_use]
    pub fn lacking(&self, content: &Content) -> Vec<ObjectNote> {
        let keys = content.objects.keys().filter(|key| self.forbidden.contains(&KindName::of(key)));
        keys.map(|key| ObjectNote {
            object: object_ref(key),
            message: forbidden().message(),
            reason: forbidden(),
        })
        .collect()
    }

    #[must_use]
    pub fn read_object(&self, key: &Key) -> StepResult {
        StepResult::ObjectRead(self.seen(key))
    }

    /// Lists the contents as the agent does: everything without an owner, which no garbage collector would delete.
    #[must_use]
    pub fn list_contained(&self, prerequisite: &Key) -> StepResult {
        let lost = self.inside(prerequisite).filter(|(_, object)| object.owner.is_none());
        StepResult::Contained(lost.map(|(key, _)| key.display_name().to_string()).collect())
    }

    pub fn delete(&mut self, key: &Key, uid: &Uid) -> StepResult {
        let fenced = |old: &Marks| self.check_fence(key, &FencedWrite::Delete { old });
        match self.check_uid(key, uid, Reason::Conflict, fenced) {
            Ok(true) => {
                self.begin_delete(key);
                StepResult::DeleteAccepted
            }
            Ok(false) => StepResult::Gone,
            Err(failure) => StepResult::Failed(failure),
        }
    }

    pub fn release(&mut self, key: &Key, uid: &Uid) -> StepResult {
        let bare = Marks::default();
        let fenced = |old: &Marks| self.check_fence(key, &FencedWrite::Update { old, new: &bare });
        match self.check_uid(key, uid, invalid(), fenced) {
            Ok(true) => {
                self.change(key, |object| {
                    object.marks = Marks::default();
                    object.drift += u32::from(object.applied.is_some());
                });
                StepResult::Released
            }
            Ok(false) => StepResult::Gone,
            Err(failure) => StepResult::Failed(failure),
        }
    }

    /// Returns whether the object exists, if the server and its fence allow the write.
    fn check_uid(
        &self,
        key: &Key,
        uid: &Uid,
        reason: Reason,
        fenced: impl Fn(&Marks) -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        match self.objects.get(key) {
            None => Ok(false),
            Some(_) if self.forbidden.contains(&KindName::of(key)) => {
                Err(refusal(FailureClass::Permanent, forbidden()))
            }
            Some(object) if object.uid != *uid => Err(refusal(FailureClass::Conflict, reason)),
            Some(object) => fenced(&object.marks).map(|()| true),
        }
    }
}

//! The transaction of a change: idempotent by its key, with its audit record and resulting position.
//!
//! The key is claimed first and the result stored last, in the same transaction as the change: all of it happens, or
//! nothing. A repeated request gets the stored result; of two at once, the second waits for the first.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use brokkr_api::audit::AuditKind;
use brokkr_api::ids::Checksum;
use brokkr_api::protocol::header;
use brokkr_api::{ErrorCode, HistoryMark, Position};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use sqlx::{PgConnection, Postgres, Transaction};
use subtle::ConstantTimeEq as _;
use tracing::Instrument as _;

use super::change::Change;
use crate::access::Caller;
use crate::access::origin::Origin;
use crate::domain::audit::AuditRecord;
use crate::domain::webhooks::happening::Happening;
use crate::error::{ApiError, ApiResult};
use crate::state::Broker;
use crate::store::Doing as _;
use crate::store::audit::{audit_insert, audit_insert_with_result_on_conn};
use crate::store::deployment_objects::{
    NewObject, NewRollout, PublishedObject, deployment_object_publish_on_conn,
};
use crate::store::history_marks::history_mark_insert_on_conn;
use crate::store::idempotency_keys::{
    KeyOwner, StoredResult, idempotency_key_claim_on_conn, idempotency_key_find,
    idempotency_key_store_on_conn,
};
use crate::store::outbox::{OutboxNotification, outbox_insert_on_conn, outbox_transaction_id_on_conn};
use crate::store::stacks::{LockedStack, StackRef, stack_lock_claiming_on_conn, stack_lock_on_conn};
use crate::store::webhook_notices::webhook_notify_on_conn;
use crate::telemetry::TRACES;

/// How long a response waits for this replica's index to include the change. Best effort: a later read
/// with the returned position waits for the change.
const INDEX_WAIT: Duration = Duration::from_secs(1);

/// How the result is stored for repeated requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultStorage {
    Plain,
    /// Encrypted with the idempotency key, of which only a hash is stored: for results that contain a secret.
    Encrypted,
}

/// Runs `work` in the transaction of a change. A repeated request is not run again: it gets its first result.
///
/// `work` ends with [`Write::finish`] or [`Write::finish_empty`], which commit; an error rolls back.
pub async fn run(
    broker: &Arc<Broker>,
    change: &Change,
    storage: ResultStorage,
    work: impl AsyncFnOnce(Write) -> ApiResult,
) -> ApiResult {
    match Write::begin(broker, change, storage).await? {
        Begun::New(write) => work(write).await,
        Begun::Repeated(response) => Ok(response),
    }
}

/// Like [`run`], for a change of one stack: the statement that claims the key locks the stack, too.
pub async fn run_on_stack(
    broker: &Arc<Broker>,
    change: &Change,
    project: &str,
    stack: &StackRef,
    work: impl AsyncFnOnce(Write, LockedStack) -> ApiResult,
) -> ApiResult {
    let storage = ResultStorage::Plain;
    let missing = || ApiError::not_found("stack");
    let mut write = Write::new(broker, change, storage, Key::of(change)).await?;
    let conn = &mut write.transaction;
    let locked = match &write.key {
        Some(key) => stack_lock_claiming_on_conn(conn, project, stack, &key.owner(), &change.digest).await?,
        None => stack_lock_on_conn(conn, project, stack).await?.map(|locked| (true, locked)),
    };
    match locked {
        Some((true, locked)) => work(write, locked).await,
        Some((false, _)) => write.repeat_instead(change).await,
        // The key may have been claimed or not.
        None => {
            drop(write);
            first_result(broker, change, storage).await?.ok_or_else(missing)
        }
    }
}

/// Returns the first result of this request if it was made before. For handlers with work to do before they write.
pub async fn first_result(
    broker: &Broker,
    change: &Change,
    storage: ResultStorage,
) -> ApiResult<Option<Response>> {
    let Some(key) = Key::of(change) else { return Ok(None) };
    match idempotency_key_find(&broker.pool, &key.owner()).await? {
        Some(stored) => repeat(broker, change, &key, storage, stored).map(Some),
        None => Ok(None),
    }
}

enum Begun {
    New(Write),
    /// The request was made before; this is its first result.
    Repeated(Response),
}

pub struct Write {
    broker: Arc<Broker>,
    transaction: Transaction<'static, Postgres>,
    key: Option<Key>,
    storage: ResultStorage,
    notified: bool,
    caller: Option<Caller>,
    origin: Arc<Origin>,
    /// Digest of the resource before the change.
    before: Option<Checksum>,
    /// Digest of the resource after the change, if the response does not show it.
    audit_after: Option<Option<Checksum>>,
    /// The reason that the caller gave for the change.
    audit_reason: String,
    /// Whether a message to a webhook was stored.
    webhooks_notified: bool,
}

struct Key {
    project: String,
    principal: String,
    clear: String,
    hash: [u8; 32],
}

impl Key {
    fn of(change: &Change) -> Option<Self> {
        let caller = change.caller.as_ref()?;
        let clear = change.key.clone()?;
        let hash = Sha256::digest(clear.as_bytes()).into();
        Some(Self { project: caller.project().to_owned(), principal: caller.principal(), clear, hash })
    }

    fn owner(&self) -> KeyOwner<'_> {
        KeyOwner { project: &self.project, principal: &self.principal, key: &self.hash }
    }
}

impl Write {
    async fn begin(broker: &Arc<Broker>, change: &Change, storage: ResultStorage) -> ApiResult<Begun> {
        let mut write = Self::new(broker, change, storage, Key::of(change)).await?;
        if let Some(key) = &write.key
            && !idempotency_key_claim_on_conn(&mut write.transaction, &key.owner(), &change.digest).await?
        {
            return Ok(Begun::Repeated(write.repeat_instead(change).await?));
        }
        Ok(Begun::New(write))
    }

    async fn new(
        broker: &Arc<Broker>,
        change: &Change,
        storage: ResultStorage,
        key: Option<Key>,
    ) -> ApiResult<Self> {
        Ok(Self {
            broker: Arc::clone(broker),
            transaction: broker.pool.begin().await.doing("begin a transaction")?,
            key,
            storage,
            notified: false,
            webhooks_notified: false,
            caller: change.caller.clone(),
            origin: Arc::clone(&change.origin),
            before: None,
            audit_after: None,
            audit_reason: String::new(),
        })
    }

    /// Rolls back, and returns the first result of a request whose key is taken.
    async fn repeat_instead(self, change: &Change) -> ApiResult {
        self.transaction.rollback().await.doing("roll back the transaction")?;
        // The key may have expired between the two statements.
        first_result(&self.broker, change, self.storage).await?.ok_or_else(|| {
            ApiError::new(ErrorCode::BRK3003, "the stored result has expired; try again").retry_after(1)
        })
    }

    /// Returns the connection of the transaction, for functions of the store.
    pub fn conn(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }

    /// Stores what changed in the outbox, so that every replica reads it again.
    pub async fn notify(&mut self, project: &str, notification: OutboxNotification) -> ApiResult<()> {
        self.notified = true;
        Ok(outbox_insert_on_conn(&mut self.transaction, project, notification).await?)
    }

    /// Stores the object as the newest version of the stack and notifies every replica. Without a rollout, every agent gets it.
    /// Returns none if `respect_bars` is set and its content is barred.
    pub async fn publish(
        &mut self,
        stack: &LockedStack,
        new: &NewObject<'_>,
        rollout: Option<&NewRollout>,
        respect_bars: bool,
    ) -> ApiResult<Option<PublishedObject>> {
        self.notified = true;
        let conn = &mut self.transaction;
        Ok(deployment_object_publish_on_conn(conn, stack, new, rollout, respect_bars).await?)
    }

    /// Records the resource before the change for the audit log. The response shows it after the change; the log has
    /// digests of both.
    pub fn audit_before(&mut self, before: &impl Serialize) {
        self.before = Some(digest(before));
    }

    /// Records digests before and after the change, if the response is not the changed resource.
    pub fn audit_digests(&mut self, before: Option<Checksum>, after: Option<Checksum>) {
        self.before = before;
        self.audit_after = Some(after);
    }

    /// Records the reason that the caller gave for the change.
    pub fn audit_reason(&mut self, reason: &str) {
        reason.clone_into(&mut self.audit_reason);
    }

    /// Returns the audit record. Routine requests of agents are in events, sessions and holds already: of their
    /// changes, only those with digests are recorded.
    fn audit_record(&self, status: StatusCode, body: &[u8]) -> Option<AuditRecord> {
        if matches!(self.caller, Some(Caller::Agent(_))) && self.audit_after.is_none() {
            return None;
        }
        // A result that contains a secret is not logged, not even its digest.
        let shown = self.storage == ResultStorage::Plain && !body.is_empty();
        let after = self.audit_after.unwrap_or_else(|| shown.then(|| Checksum::of(body)));
        let record = AuditRecord::new(AuditKind::Change, self.caller.as_ref(), &self.origin, status);
        Some(AuditRecord { before: self.before, after, reason: self.audit_reason.clone(), ..record })
    }

    /// Stores messages to the project's webhooks.
    pub async fn notify_webhooks(&mut self, project: &str, happening: &Happening) -> ApiResult<()> {
        self.webhooks_notified |= webhook_notify_on_conn(&mut self.transaction, project, happening).await?;
        Ok(())
    }

    /// Wakes the webhook sender after the commit.
    pub fn wake_webhook_sender(&mut self) {
        self.webhooks_notified = true;
    }

    pub async fn finish<T: Serialize>(self, status: StatusCode, result: &T) -> ApiResult {
        self.finish_with(status, encode(result)?).await
    }

    pub async fn finish_empty(self) -> ApiResult {
        self.finish_with(StatusCode::NO_CONTENT, Vec::new()).await
    }

    async fn finish_with(mut self, status: StatusCode, body: Vec<u8>) -> ApiResult {
        let record = self.audit_record(status, &body);
        let conn = &mut self.transaction;
        // The mark is in the same transaction: where it is, the write is. Routine requests of agents are too many for a mark each;
        // agents carry the mark of what they have seen.
        let (xid, mark) = match (&self.key, record) {
            (Some(key), record) => {
                let stored =
                    if self.storage == ResultStorage::Encrypted { seal(key, &body)? } else { body.clone() };
                match record {
                    Some(record) => {
                        let written =
                            audit_insert_with_result_on_conn(conn, &record, &key.owner(), &stored).await?;
                        (written.xid, Some(written.mark))
                    }
                    None => {
                        let status = status.as_u16();
                        idempotency_key_store_on_conn(conn, &key.owner(), status, &stored).await?;
                        (outbox_transaction_id_on_conn(conn).await?, None)
                    }
                }
            }
            (None, Some(record)) => {
                let mark = history_mark_insert_on_conn(conn).await?;
                (audit_insert(&mut **conn, &[record]).await?, Some(mark))
            }
            (None, None) => (outbox_transaction_id_on_conn(conn).await?, None),
        };
        let span = tracing::info_span!(target: TRACES, "commit");
        self.transaction.commit().instrument(span).await.doing("commit")?;
        let position = position(&self.broker, xid);
        if self.webhooks_notified {
            self.broker.webhooks.notify();
        }
        if self.notified {
            self.broker.tail.committed(xid);
            let span = tracing::info_span!(target: TRACES, "wait for the index");
            self.broker.index.reached(position, INDEX_WAIT).instrument(span).await;
        }
        let mark = mark.unwrap_or_else(|| self.broker.index.freshness().mark);
        Ok(answer(&self.broker, status, body, (position, mark)))
    }
}

/// Returns the digest of a representation.
pub fn digest(shown: &impl Serialize) -> Checksum {
    // Serializing plain structs with text keys cannot fail.
    Checksum::of(&serde_json::to_vec(shown).unwrap_or_default())
}

/// Answers a write that another task has committed at this position.
pub fn answer_at<T: Serialize>(broker: &Broker, position: Position, result: &T) -> ApiResult {
    let mark = broker.index.freshness().mark;
    Ok(answer(broker, StatusCode::OK, encode(result)?, (position, mark)))
}

fn encode<T: Serialize>(result: &T) -> ApiResult<Vec<u8>> {
    serde_json::to_vec(result)
        .map_err(|error| ApiError::new(ErrorCode::BRK9001, "failed to encode the result").because(error))
}

/// Returns the position at which this transaction is visible.
pub fn position(broker: &Broker, xid: u64) -> Position {
    Position { epoch: broker.index.position().epoch, horizon: xid + 1 }
}

fn answer(broker: &Broker, status: StatusCode, body: Vec<u8>, stamp: (Position, HistoryMark)) -> Response {
    let mut response = status.into_response();
    response.headers_mut().insert(header::POSITION, broker.access.positions.header(stamp));
    if !body.is_empty() {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *response.body_mut() = Body::from(body);
    }
    response
}

fn repeat(
    broker: &Broker,
    change: &Change,
    key: &Key,
    storage: ResultStorage,
    stored: StoredResult,
) -> ApiResult {
    if stored.request_digest[..].ct_eq(&change.digest[..]).unwrap_u8() == 0 {
        return Err(ApiError::new(ErrorCode::BRK2005, "this idempotency key was used for another request"));
    }
    let body = if storage == ResultStorage::Encrypted { unseal(key, stored.body)? } else { stored.body };
    let status = StatusCode::from_u16(stored.status).unwrap_or(StatusCode::OK);
    let freshness = broker.index.freshness();
    let position = Position { epoch: freshness.position.epoch, horizon: stored.xid + 1 };
    Ok(answer(broker, status, body, (position, freshness.mark)))
}

fn sealing_key(key: &Key) -> ApiResult<RandomizedNonceKey> {
    let mut hash = Sha256::new();
    hash.update(b"brokkr: result of an idempotent request\0");
    hash.update(key.clear.as_bytes());
    RandomizedNonceKey::new(&AES_256_GCM, &hash.finalize()).map_err(cannot_seal)
}

fn seal(key: &Key, body: &[u8]) -> ApiResult<Vec<u8>> {
    let mut sealed = body.to_vec();
    let owner = Aad::from(key.principal.as_bytes());
    let nonce = sealing_key(key)?.seal_in_place_append_tag(owner, &mut sealed).map_err(cannot_seal)?;
    Ok([&nonce.as_ref()[..], &sealed[..]].concat())
}

fn unseal(key: &Key, mut stored: Vec<u8>) -> ApiResult<Vec<u8>> {
    let mut sealed = stored.split_off(NONCE_LEN.min(stored.len()));
    let nonce = Nonce::try_assume_unique_for_key(&stored).map_err(cannot_seal)?;
    let owner = Aad::from(key.principal.as_bytes());
    let clear = sealing_key(key)?.open_in_place(nonce, owner, &mut sealed).map_err(cannot_seal)?;
    Ok(clear.to_vec())
}

fn cannot_seal(error: aws_lc_rs::error::Unspecified) -> ApiError {
    ApiError::new(ErrorCode::BRK9001, "failed to encrypt or decrypt the result").because(error)
}

//! The signed assertions of agents: short-lived JWTs, verified with the key that the agent registered.
//!
//! An assertion for reading is used for every `GET` until it expires. Verifying costs a signature check, so it is cached;
//! whether the agent and its key still exist is looked up in the index each time. Every other request has an assertion
//! that names this request (`access/binding.rs`). It is verified each time: it comes once, or again if a response was
//! lost.
//!
//! A captured assertion for writing can be sent again while it is valid, at most three minutes with the tolerated clock
//! differences. This changes nothing: it has the same idempotency key, so the broker answers with the first result. If
//! the first attempt failed, the repetition is what the agent itself does next. It has a short lifetime all the same, so
//! that a request that the agent gave up is not carried out much later.
//!
//! The index contains the current key. During a rotation an agent may sign with the previous key for a while,
//! or with a new one that this replica does not know yet. So the database is queried (`access/keys.rs`), but
//! only for assertions that do not match the current key.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brokkr_api::assertion::{
    AssertionClaims, BoundRequest, READ_ASSERTION_SECONDS, WRITE_ASSERTION_SECONDS, longest_lifetime,
};
use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, InstallationId};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use serde::Deserialize;
use sqlx::PgPool;

use super::binding::{BoundPart, RequestHead};
use super::caller::AgentCaller;
use super::keys::AgentKeys;
use crate::error::ApiError;
use crate::index::Index;
use crate::store::StoreError;
use crate::store::agent_keys::AgentKey;

/// The tolerated clock difference, in seconds.
const LEEWAY: i64 = 60;
/// Why the last request of an agent was refused, if its assertion is not for this request.
pub const OTHER_REQUEST: &str =
    "the assertion is for another request; check whether a proxy changes requests";
/// The largest number of cached assertions.
const CAPACITY: u64 = 200_000;

#[derive(Debug, thiserror::Error)]
pub enum BadAssertion {
    #[error("the assertion is malformed")]
    Unreadable,
    #[error("no such agent")]
    UnknownAgent(AgentId),
    #[error("the assertion is invalid")]
    Invalid(AgentId, #[source] jsonwebtoken::errors::Error),
    #[error(
        "the assertion is valid for longer than {READ_ASSERTION_SECONDS} seconds ({WRITE_ASSERTION_SECONDS} for a \
         write), or was issued in the future"
    )]
    Lifetime(AgentId),
    #[error("the assertion names two agents")]
    Subject(AgentId),
    #[error("the assertion is for reading; this request needs an assertion that names it")]
    NotBound(AgentId),
    #[error("the assertion is for another request")]
    OtherRequest(AgentId, BoundPart),
    #[error("failed to look up the agent's keys")]
    Store(#[source] Arc<StoreError>),
    #[error("the agent's keys were not looked up")]
    NotAdmitted(Box<ApiError>),
}

impl BadAssertion {
    /// Returns the agent that the assertion names, and why it was refused; none if no known agent is named,
    /// or if its keys could not be read.
    #[must_use]
    pub fn claims(&self) -> Option<(AgentId, &'static str)> {
        match self {
            Self::Invalid(agent, error) => Some((
                *agent,
                match error.kind() {
                    ErrorKind::InvalidSignature => "the signature does not match a current key of the agent",
                    ErrorKind::ExpiredSignature => "the assertion has expired; check the clocks",
                    ErrorKind::InvalidAudience => "the assertion is for another installation",
                    _ => "the assertion is invalid",
                },
            )),
            Self::Lifetime(agent) => Some((
                *agent,
                "the assertion is valid for too long, or was issued in the future; check the clocks",
            )),
            Self::Subject(agent) => Some((*agent, "the assertion names two agents")),
            Self::NotBound(agent) | Self::OtherRequest(agent, _) => Some((*agent, OTHER_REQUEST)),
            Self::Unreadable | Self::UnknownAgent(_) | Self::Store(_) | Self::NotAdmitted(_) => None,
        }
    }
}

#[derive(Debug)]
pub struct Assertions {
    validation: Validation,
    /// Assertions for reading.
    verified: moka::future::Cache<Checksum, AgentCaller>,
    keys: AgentKeys,
}

impl Assertions {
    #[must_use]
    pub fn new(installation: InstallationId) -> Self {
        let mut validation = Validation::new(Algorithm::EdDSA);
        validation.set_audience(&[installation.to_string()]);
        validation.set_required_spec_claims(&["exp", "aud", "iss", "sub"]);
        validation.leeway = LEEWAY.unsigned_abs();
        let verified = moka::future::Cache::builder()
            .max_capacity(CAPACITY)
            .time_to_live(Duration::from_secs(READ_ASSERTION_SECONDS.unsigned_abs()))
            .build();
        Self { validation, verified, keys: AgentKeys::default() }
    }

    /// Verifies an assertion for reading and returns the agent. `admit` has to succeed before the database is queried; its
    /// result is held until then.
    pub async fn verify_read<P>(
        &self,
        index: &Index,
        pool: &PgPool,
        token: &str,
        now: i64,
        admit: impl Future<Output = Result<P, ApiError>>,
    ) -> Result<AgentCaller, BadAssertion> {
        let digest = Checksum::of(token.as_bytes());
        if let Some(known) = self.verified.get(&digest).await
            && known.until > now
            && is_current_key(index, known.id, &known.public_key)
        {
            return Ok(known);
        }
        let (caller, request) = self.verify_signature(index, pool, token, now, admit).await?;
        if request.is_some() {
            return Err(BadAssertion::OtherRequest(caller.id, BoundPart::Method));
        }
        self.verified.insert(digest, caller.clone()).await;
        Ok(caller)
    }

    /// Verifies an assertion for this request. Returns the agent, and the digest that the body must have.
    pub async fn verify_write<P>(
        &self,
        index: &Index,
        pool: &PgPool,
        token: &str,
        head: &RequestHead<'_>,
        now: i64,
        admit: impl Future<Output = Result<P, ApiError>>,
    ) -> Result<(AgentCaller, Checksum), BadAssertion> {
        let (caller, request) = self.verify_signature(index, pool, token, now, admit).await?;
        let request = request.ok_or(BadAssertion::NotBound(caller.id))?;
        match head.difference(&request) {
            Some(part) => Err(BadAssertion::OtherRequest(caller.id, part)),
            None => Ok((caller, request.body)),
        }
    }

    async fn verify_signature<P>(
        &self,
        index: &Index,
        pool: &PgPool,
        token: &str,
        now: i64,
        admit: impl Future<Output = Result<P, ApiError>>,
    ) -> Result<(AgentCaller, Option<BoundRequest>), BadAssertion> {
        let claimed = unverified_subject(token).ok_or(BadAssertion::Unreadable)?;
        let public_key = key(index, claimed).ok_or(BadAssertion::UnknownAgent(claimed))?;
        let (claims, signed_with, until) = match self.decode(token, &public_key) {
            Ok(claims) => (claims, Arc::clone(&public_key), i64::MAX),
            Err(invalid) => {
                let keys = self.other_keys(pool, claimed, &public_key, &invalid, admit).await?;
                self.decode_with_other_keys(token, claimed, &keys, now, invalid)?
            }
        };
        if claims.iss != claimed || claims.sub != claimed {
            return Err(BadAssertion::Subject(claimed));
        }
        // The caller chooses these numbers, so the subtraction may overflow.
        let lifetime = claims.exp.checked_sub(claims.iat);
        let longest = longest_lifetime(claims.request.as_ref());
        if lifetime.is_none_or(|seconds| seconds > longest)
            || claims.iat > now + LEEWAY
            || claims.exp > now + longest + LEEWAY
        {
            return Err(BadAssertion::Lifetime(claimed));
        }
        let until = until.min(claims.exp + LEEWAY);
        Ok((AgentCaller { id: claimed, public_key, signed_with, until }, claims.request))
    }

    /// Returns whether a caller that was verified earlier is still valid: for long polls.
    pub async fn is_still_valid(
        &self,
        index: &Index,
        pool: &PgPool,
        caller: &AgentCaller,
    ) -> Result<bool, Arc<StoreError>> {
        if is_current_key(index, caller.id, &caller.public_key) {
            return Ok(true);
        }
        let Some(key) = key(index, caller.id) else { return Ok(false) };
        let keys = self.keys.find(pool, caller.id, &key).await?;
        Ok(keys.iter().any(|known| known.key == caller.signed_with))
    }

    fn decode(&self, token: &str, key: &[u8]) -> Result<AssertionClaims, jsonwebtoken::errors::Error> {
        decode::<AssertionClaims>(token, &DecodingKey::from_ed_der(key), &self.validation)
            .map(|data| data.claims)
    }

    /// Returns all keys of the agent, if one of them may match where the current one does not.
    async fn other_keys<P>(
        &self,
        pool: &PgPool,
        agent: AgentId,
        public_key: &[u8],
        invalid: &jsonwebtoken::errors::Error,
        admit: impl Future<Output = Result<P, ApiError>>,
    ) -> Result<Arc<Vec<AgentKey>>, BadAssertion> {
        if *invalid.kind() != ErrorKind::InvalidSignature {
            return Ok(Arc::default());
        }
        if let Some(keys) = self.keys.cached(agent, public_key).await {
            return Ok(keys);
        }
        let _permit = admit.await.map_err(|error| BadAssertion::NotAdmitted(Box::new(error)))?;
        self.keys.find(pool, agent, public_key).await.map_err(BadAssertion::Store)
    }

    /// Tries these keys; returns the matching one and its expiry.
    fn decode_with_other_keys(
        &self,
        token: &str,
        agent: AgentId,
        keys: &[AgentKey],
        now: i64,
        invalid: jsonwebtoken::errors::Error,
    ) -> Result<(AssertionClaims, Arc<[u8]>, i64), BadAssertion> {
        let matching = |known: &AgentKey| {
            let until = known.until.map_or(i64::MAX, |until| until.as_second());
            let claims = (until > now).then(|| self.decode(token, &known.key).ok()).flatten()?;
            Some((claims, Arc::clone(&known.key), until))
        };
        keys.iter().find_map(matching).ok_or(BadAssertion::Invalid(agent, invalid))
    }
}

/// Returns the current key of an agent, as this replica knows it.
fn key(index: &Index, agent: AgentId) -> Option<Arc<[u8]>> {
    index.snapshot().agent(agent).map(|facts| Arc::from(&facts.public_key[..]))
}

fn is_current_key(index: &Index, agent: AgentId, key: &[u8]) -> bool {
    index.snapshot().agent(agent).is_some_and(|facts| facts.public_key[..] == *key)
}

/// Returns the agent that the assertion claims to be from. Not trusted until the signature is verified.
fn unverified_subject(token: &str) -> Option<AgentId> {
    #[derive(Deserialize)]
    struct Subject {
        sub: AgentId,
    }
    let payload = token.split('.').nth(1)?;
    let bytes = URL_SAFE_NO_PAD.decode(payload).ok()?;
    serde_json::from_slice::<Subject>(&bytes).ok().map(|claims| claims.sub)
}

//! Replaces the agent's key after about two thirds of `--key-life`, or when the broker asks for it.
//!
//! The new key is first stored in the cluster next to the old one, then registered with a request that both
//! sign, and then replaces the old one. The broker accepts both for an hour. After a crash, the Secret
//! shows which steps are done, and the others are repeated: registering the same key twice is harmless.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use brokkr_api::{AgentId, ErrorCode};
use brokkr_client::{AgentIdentity, AgentKey, Client as Broker, Credential};
use brokkr_install::IDENTITY;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::identity::{KEY, KEY_SINCE, NEXT_KEY, StoredIdentity, key_in};
use crate::backoff::Backoff;
use crate::metrics::Metrics;
use crate::own_objects::with_deadline;

/// When the key is replaced, as a fraction of `--key-life`. Spread, so that the agents of a fleet do not
/// rotate at once.
const DUE: f64 = 2.0 / 3.0;
const SPREAD: f64 = 0.1;
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(300));

/// Why the key is replaced now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum RotationReason {
    /// An earlier run has started the rotation.
    Started,
    Requested,
    Age,
}

pub struct Keys {
    secrets: Api<Secret>,
    broker: Broker,
    identity: AgentIdentity,
    since: Timestamp,
    life: Duration,
    started: bool,
    failures: u32,
    not_before: Option<Instant>,
    metrics: Metrics,
}

impl Keys {
    /// Creates the rotation. After each rotation, `broker` and all its clones sign with the new key.
    #[must_use]
    pub fn new(
        client: &Client,
        namespace: &str,
        broker: Broker,
        found: StoredIdentity,
        life: Duration,
        metrics: Metrics,
    ) -> Self {
        metrics.key_life(life);
        metrics.key_since(found.key_since);
        Self {
            secrets: Api::namespaced(client.clone(), namespace),
            broker,
            identity: found.identity,
            since: found.key_since,
            life,
            started: found.has_next_key,
            failures: 0,
            not_before: None,
            metrics,
        }
    }

    /// Replaces the key if it is due. Called after every poll.
    pub async fn rotate_if_due(&mut self, requested: bool) {
        let Some(reason) = rotation_reason(self.started, requested, self.due_at(), Timestamp::now()) else {
            return;
        };
        if self.not_before.is_some_and(|at| Instant::now() < at) {
            return;
        }
        match self.replace().await {
            Ok(()) => {
                (self.failures, self.not_before) = (0, None);
                tracing::info!(reason = <&str>::from(reason), "replaced the agent's key");
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                let pause = BACKOFF.delay(self.failures);
                self.not_before = Some(Instant::now() + pause);
                tracing::warn!(
                    reason = <&str>::from(reason),
                    "failed to replace the agent's key: {error:#}; keeping the old key, retrying in {pause:?}"
                );
            }
        }
    }

    /// Called when the broker refuses the key: an earlier run may have registered the next one.
    pub async fn on_refused(&mut self) {
        if self.started {
            self.rotate_if_due(false).await;
        }
    }

    fn due_at(&self) -> Timestamp {
        due_at(self.since, self.life, self.identity.agent_id)
    }

    async fn replace(&mut self) -> anyhow::Result<()> {
        let stored = with_deadline(self.secrets.get(IDENTITY)).await.context("read the agent's keys")?;
        let (next, version) = match key_in(&stored, NEXT_KEY)? {
            Some(next) => (next, stored.metadata.resource_version),
            None => self.store_next(&stored).await?,
        };
        self.started = true;
        self.register(&next).await?;
        let now = Timestamp::now();
        let change = json!({
            "data": { NEXT_KEY: null },
            "stringData": { KEY: next.to_pkcs8_pem().expose_secret(), KEY_SINCE: now.to_string() },
        });
        self.write(version, change).await.context("replace the old key")?;
        self.broker.sign_with(&next);
        (self.identity.key, self.since, self.started) = (next, now, false);
        self.metrics.key_since(now);
        Ok(())
    }

    async fn store_next(&self, stored: &Secret) -> anyhow::Result<(AgentKey, Option<String>)> {
        let next = AgentKey::generate().context("generate a key")?;
        let change = json!({"stringData": {NEXT_KEY: next.to_pkcs8_pem().expose_secret()}});
        let written = self.write(stored.metadata.resource_version.clone(), change).await;
        Ok((next, written.context("store the new key")?.metadata.resource_version))
    }

    /// Writes only if the Secret still has the version that was read, because another process may also rotate
    /// the key.
    async fn write(&self, version: Option<String>, mut change: Value) -> anyhow::Result<Secret> {
        change["metadata"] = json!({ "resourceVersion": version });
        Ok(with_deadline(self.secrets.patch(IDENTITY, &PatchParams::default(), &Patch::Merge(change)))
            .await?)
    }

    async fn register(&self, next: &AgentKey) -> anyhow::Result<()> {
        let request = self.identity.key_change(next).context("sign the new key")?;
        let agent = self.identity.agent_id;
        let Err(error) = self.broker.rotate_key(agent, &request).await else { return Ok(()) };
        if error.code() == Some(ErrorCode::BRK1001) {
            // If the next key was registered more than an hour ago and the response was lost, only the next key is valid.
            let identity = AgentIdentity { key: next.clone(), ..self.identity.clone() };
            let as_next = self.broker.with_credential(Credential::Agent(identity));
            if as_next.rotate_key(agent, &request).await.is_ok() {
                return Ok(());
            }
        }
        Err(error).context("register the new key")
    }
}

fn rotation_reason(
    started: bool,
    requested: bool,
    due_at: Timestamp,
    now: Timestamp,
) -> Option<RotationReason> {
    match (started, requested) {
        (true, _) => Some(RotationReason::Started),
        (_, true) => Some(RotationReason::Requested),
        _ => (now >= due_at).then_some(RotationReason::Age),
    }
}

/// Returns a time that differs between agents and is always the same for one agent.
fn due_at(since: Timestamp, life: Duration, agent: AgentId) -> Timestamp {
    // The end of the id is random; its beginning is the time when the agent joined.
    let [.., high, low] = agent.0.into_bytes();
    let position = f64::from(u16::from_be_bytes([high, low])) / f64::from(u16::MAX);
    since.checked_add(life.mul_f64(DUE + SPREAD * position)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn a_key_is_due_after_two_thirds_of_its_lifetime_at_a_different_time_for_each_agent() {
        let since: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let days = |days: u32| since.checked_add(DAY * days).unwrap();
        let mut times = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let agent = AgentId::generate();
            let at = due_at(since, DAY * 90, agent);
            assert!((days(60)..=days(69)).contains(&at), "{at}");
            assert_eq!(at, due_at(since, DAY * 90, agent));
            times.insert(at);
        }
        assert!(times.len() > 900, "only {} of 1000 agents have a different time", times.len());
    }

    #[test]
    fn started_and_requested_rotations_do_not_depend_on_the_age() {
        let due = Timestamp::from_second(1000).unwrap();
        let (before, after) = (Timestamp::from_second(999).unwrap(), Timestamp::from_second(1000).unwrap());
        assert_eq!(rotation_reason(false, false, due, before), None);
        assert_eq!(rotation_reason(false, false, due, after), Some(RotationReason::Age));
        assert_eq!(rotation_reason(false, true, due, before), Some(RotationReason::Requested));
        assert_eq!(rotation_reason(true, false, due, before), Some(RotationReason::Started));
    }

    #[test]
    fn an_unlimited_lifetime_never_ends() {
        assert_eq!(due_at(Timestamp::UNIX_EPOCH, Duration::MAX / 2, AgentId::generate()), Timestamp::MAX);
    }
}

//! The agent replaces its key after two thirds of its lifetime, or when the broker asks for it.
//!
//! The new key is stored in the cluster beside the old one, then registered with a request that the old one signs, then it
//! replaces the old one. The broker accepts both for an hour. After a crash in between, the Secret shows how far it
//! came, and the same steps are repeated: registering the same key twice is harmless.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use brokkr_api::agents::RotateKey;
use brokkr_api::{AgentId, ErrorCode};
use brokkr_client::{AgentIdentity, AgentKey, Client as Broker, Credential};
use brokkr_install::IDENTITY;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::identity::{Identified, KEY, KEY_SINCE, NEXT_KEY, key_in};
use crate::backoff::Backoff;
use crate::metrics::Metrics;
use crate::own_objects::with_deadline;

/// When the key is replaced, as a fraction of its lifetime; spread, so that a fleet does not rotate at the same time.
const FROM: f64 = 2.0 / 3.0;
const SPREAD: f64 = 0.1;
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(300));

/// Why the key is replaced now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum Because {
    /// An earlier run has started it.
    Begun,
    Asked,
    Age,
}

pub struct Keys {
    secrets: Api<Secret>,
    broker: Broker,
    identity: AgentIdentity,
    since: Timestamp,
    life: Duration,
    begun: bool,
    failures: u32,
    not_before: Option<Instant>,
    metrics: Metrics,
}

impl Keys {
    /// `broker` and all its clones sign with the new key once there is one.
    #[must_use]
    pub fn new(
        client: &Client,
        namespace: &str,
        broker: Broker,
        found: Identified,
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
            begun: found.next_key,
            failures: 0,
            not_before: None,
            metrics,
        }
    }

    /// Replaces the key if that is due. Called after every poll.
    pub async fn look(&mut self, asked: bool) {
        let Some(because) = because(self.begun, asked, self.due_at(), Timestamp::now()) else { return };
        if self.not_before.is_some_and(|at| Instant::now() < at) {
            return;
        }
        match self.replace().await {
            Ok(()) => {
                (self.failures, self.not_before) = (0, None);
                tracing::info!(because = <&str>::from(because), "replaced the agent's key");
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                let pause = BACKOFF.delay(self.failures);
                self.not_before = Some(Instant::now() + pause);
                tracing::warn!(
                    because = <&str>::from(because),
                    "failed to replace the agent's key: {error:#}; keeping the old key, retrying in {pause:?}"
                );
            }
        }
    }

    /// The broker refuses the key: an earlier run may have registered the next one.
    pub async fn refused(&mut self) {
        if self.begun {
            self.look(false).await;
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
        self.begun = true;
        self.register(&next).await?;
        let now = Timestamp::now();
        let change = json!({
            "data": { NEXT_KEY: null },
            "stringData": { KEY: next.to_pkcs8_pem().expose_secret(), KEY_SINCE: now.to_string() },
        });
        self.write(version, change).await.context("put the new key in the place of the old one")?;
        self.broker.sign_with(&next);
        (self.identity.key, self.since, self.begun) = (next, now, false);
        self.metrics.key_since(now);
        Ok(())
    }

    async fn store_next(&self, stored: &Secret) -> anyhow::Result<(AgentKey, Option<String>)> {
        let next = AgentKey::generate().context("generate a key")?;
        let change = json!({"stringData": {NEXT_KEY: next.to_pkcs8_pem().expose_secret()}});
        let written = self.write(stored.metadata.resource_version.clone(), change).await;
        Ok((next, written.context("store the new key")?.metadata.resource_version))
    }

    /// Another process of this agent may do the same: the write needs the version that was read.
    async fn write(&self, version: Option<String>, mut change: Value) -> anyhow::Result<Secret> {
        change["metadata"] = json!({ "resourceVersion": version });
        Ok(with_deadline(self.secrets.patch(IDENTITY, &PatchParams::default(), &Patch::Merge(change)))
            .await?)
    }

    async fn register(&self, next: &AgentKey) -> anyhow::Result<()> {
        let desired = RotateKey { public_key: next.public_key_base64url() };
        let agent = self.identity.agent_id;
        let Err(error) = self.broker.rotate_key(agent, &desired).await else { return Ok(()) };
        if error.code() == Some(ErrorCode::BRK1001) {
            // It may have been registered more than an hour ago, with a lost answer: then it is accepted itself.
            let identity = AgentIdentity { key: next.clone(), ..self.identity.clone() };
            let as_next = self.broker.with_credential(Credential::Agent(identity));
            if as_next.rotate_key(agent, &desired).await.is_ok() {
                return Ok(());
            }
        }
        Err(error).context("register the new key")
    }
}

fn because(begun: bool, asked: bool, due_at: Timestamp, now: Timestamp) -> Option<Because> {
    match (begun, asked) {
        (true, _) => Some(Because::Begun),
        (_, true) => Some(Because::Asked),
        _ => (now >= due_at).then_some(Because::Age),
    }
}

/// Returns a time that differs between agents and is always the same for one agent.
fn due_at(since: Timestamp, life: Duration, agent: AgentId) -> Timestamp {
    // The end of the id is random; its beginning is the time when the agent joined.
    let [.., high, low] = agent.0.into_bytes();
    let place = f64::from(u16::from_be_bytes([high, low])) / f64::from(u16::MAX);
    since.checked_add(life.mul_f64(FROM + SPREAD * place)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn a_key_is_replaced_after_two_thirds_of_its_life_by_each_agent_at_its_own_time() {
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
        assert!(times.len() > 900, "{} of 1000 agents have a time of their own", times.len());
    }

    #[test]
    fn what_was_begun_is_ended_and_what_is_asked_is_done_whatever_the_age() {
        let due = Timestamp::from_second(1000).unwrap();
        let (before, after) = (Timestamp::from_second(999).unwrap(), Timestamp::from_second(1000).unwrap());
        assert_eq!(because(false, false, due, before), None);
        assert_eq!(because(false, false, due, after), Some(Because::Age));
        assert_eq!(because(false, true, due, before), Some(Because::Asked));
        assert_eq!(because(true, false, due, before), Some(Because::Begun));
    }

    #[test]
    fn a_life_without_end_ends_never() {
        assert_eq!(due_at(Timestamp::UNIX_EPOCH, Duration::MAX / 2, AgentId::generate()), Timestamp::MAX);
    }
}

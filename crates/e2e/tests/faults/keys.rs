//! The agent is killed at every step of a key rotation, and returns with one valid key.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use brokkr_install::IDENTITY;
use brokkr_testkit::eventually;
use brokkr_testkit::proxy::{Action, Matcher, ProxiedRequest};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use crate::world::{FaultWorld, WAIT_TIMEOUT};

const KEY: &str = "key.pem";
const NEXT_KEY: &str = "next-key.pem";

/// The step at which the agent is killed.
#[derive(Clone, Copy, Debug)]
enum At {
    /// Before or after the n-th write of its Secret: the first stores the new key, the second replaces the old one by it.
    Secret(usize, Halt),
    /// Before or after the broker accepts the new key.
    Broker(Halt),
}

#[derive(Clone, Copy, Debug)]
enum Halt {
    Before,
    After,
}

fn action(halt: Halt) -> Action {
    match halt {
        Halt::Before => Action::HaltBefore,
        Halt::After => Action::HaltAfter,
    }
}

fn is_registration(request: &ProxiedRequest) -> bool {
    request.method == http::Method::POST && request.path.ends_with("/keys")
}

async fn stored(world: &FaultWorld) -> Result<BTreeMap<String, ByteString>> {
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), world.agent.namespace());
    secrets.get(IDENTITY).await?.data.context("the Secret has no data")
}

/// Requests a new key and kills the agent at this step. With `away` it returns after the old key has expired.
async fn rotate_and_kill(world: &FaultWorld, at: At, away: bool) -> Result<()> {
    let before = stored(world).await?[KEY].clone();
    let writes_secret = Matcher::writes().about("secrets").named(IDENTITY);
    let rule = match at {
        At::Secret(nth, halt) => world.api_proxy.when(writes_secret.nth(nth), action(halt)),
        At::Broker(halt) => world.broker_proxy.when(Matcher::new(is_registration), action(halt)),
    };
    let requested = world.fleet.request(http::Method::POST, "/api/v1/agents/shop-1/rotation").send().await?;
    requested.error_for_status()?;
    rule.wait_for_hits(1, WAIT_TIMEOUT).await?;
    world.agent.kill9();
    rule.discard();
    if away {
        let mut connection = world.fleet.database().connect().await?;
        sqlx::query("UPDATE agents SET old_key_until = now()").execute(&mut connection).await?;
    }
    world.agent.start()?;
    eventually(WAIT_TIMEOUT, &format!("a new key after a kill at {at:?}"), async || {
        let now = stored(world).await?;
        let agent = world.fleet.agent("shop-1").await?.context("the agent")?;
        ensure!(now[KEY] != before, "it still has the old key");
        ensure!(!now.contains_key(NEXT_KEY), "the next key is still stored");
        ensure!(agent["rotation_asked_at"].is_null(), "the request is still open: {agent}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn killed_at_every_step_of_a_key_rotation_the_agent_returns_with_a_valid_key() -> Result<()> {
    let world = FaultWorld::start().await?;
    let steps = [
        (At::Secret(1, Halt::Before), false),
        (At::Secret(1, Halt::After), false),
        (At::Broker(Halt::Before), false),
        (At::Broker(Halt::After), false),
        (At::Broker(Halt::After), true),
        (At::Secret(2, Halt::Before), true),
        (At::Secret(2, Halt::After), true),
    ];
    for (number, (at, away)) in steps.into_iter().enumerate() {
        rotate_and_kill(&world, at, away).await.with_context(|| format!("{at:?}, away: {away}"))?;
        world.deliver(&[("a", &number.to_string())]).await.with_context(|| format!("after {at:?}"))?;
    }
    world.assert_invariants().await
}

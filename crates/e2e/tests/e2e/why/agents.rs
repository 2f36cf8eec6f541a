//! Situations 1 to 5: problems of targets, of the agent, or of its connection to the broker.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use brokkr_client::AgentKey;
use brokkr_testkit::proxy::{Action, Matcher};
use brokkr_testkit::{AgentOptions, Bystander, Cluster, FaultProxy, Fleet, Launch, eventually, run};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::asking::{explained, follow, row, two_hours_later, types, types_with, well};
use brokkr_testkit::world::{WAIT_TIMEOUT, World};

#[tokio::test]
async fn g3_why_an_agent_that_is_not_targeted() -> Result<()> {
    let world = World::start().await?;
    world.fleet.submit("web", "env=dev", &world.manifest(&[("one", "1")])).await?;
    let explanation = explained(&world.fleet, "1", "web", "not_targeted").await?;
    ensure!(
        explanation.evidence.contains("it requires env=dev, but the agent has env=prod"),
        "{explanation:?}"
    );
    follow(&world, &explanation, "web").await?;
    world.wait_for_value("one", "1").await
}

#[tokio::test]
async fn g3_why_an_agent_that_is_paused() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    world.fleet.brokkr(["agent", "pause", "shop-1"]).await?.ok()?;
    world.fleet.submit("web", "env=prod", &world.manifest(&[("one", "2")])).await?;
    let explanation = explained(&world.fleet, "2", "web", "agent_inactive").await?;
    follow(&world, &explanation, "web").await?;
    world.wait_for_value("one", "2").await
}

#[tokio::test]
async fn g3_why_an_agent_that_is_silent() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    world.agent.kill9();
    world.fleet.submit("web", "env=prod", &world.manifest(&[("one", "2")])).await?;
    two_hours_later(&world.fleet).await?;
    explained(&world.fleet, "3", "web", "agent_silent").await?;
    // The operator finds that it does not run.
    world.agent.start()?;
    well(&world.fleet, "web").await?;
    world.wait_for_value("one", "2").await
}

/// If the agent cannot reach it, its last contact is shown; if the caller cannot, the step that fails.
#[tokio::test]
async fn g3_why_a_broker_that_cannot_be_reached() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let fleet = Fleet::start().await?;
    let proxy = FaultProxy::of_broker(&fleet).await?;
    let options = AgentOptions { broker_url: Some(proxy.url().to_owned()), ..AgentOptions::default() };
    let world = World::start_in(cluster, fleet, &options).await?;
    let fleet = &world.fleet;
    fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;

    proxy.when(Matcher::any(), Action::Cut);
    fleet.submit("web", "env=prod", &world.manifest(&[("one", "2")])).await?;
    two_hours_later(fleet).await?;
    let away = explained(fleet, "3", "web", "agent_silent").await?;
    ensure!(away.next.contains("whether the broker is reachable from there"), "{away:?}");
    proxy.heal();
    well(fleet, "web").await?;

    let port = fleet.broker.port();
    let command = "brokkr why web --agent shop-1";
    // The command is a process, and so is the control.
    let bystander = Bystander::start(|| run(Launch::new("true", "/bin/true"), WAIT_TIMEOUT));
    let assert_fails_at = async |line: &str, environment: &[(&str, &str)], hop: &str| -> Result<String> {
        let begun = Instant::now();
        let output = types_with(fleet, &world.cluster, line, environment).await?;
        ensure!(output.code == 7, "{output:?}");
        let (took, limit) = (begun.elapsed(), bystander.allows(Duration::from_secs(3)));
        ensure!(took < limit, "it took {took:?}, allowed {limit:?}");
        ensure!(output.stderr.contains(&format!("\n  {hop}: https://")), "{hop}: {}", output.stderr);
        let tried = seconds_tried(&output.stderr).with_context(|| output.stderr.clone())?;
        let limit = bystander.allows(Duration::from_secs(1));
        ensure!(tried < limit, "it tried for {tried:?}, allowed {limit:?}");
        Ok(output.stderr)
    };
    let token = [("BROKKR_TOKEN", fleet.admin_token())];
    assert_fails_at("brokkr --server https://no-such-broker.invalid why web", &token, "DNS").await?;
    let foreign = fleet.cli.file("ca.crt", &world.cluster.facts().authority)?;
    let explanation =
        assert_fails_at(&format!("brokkr --ca-file {} why web", foreign.display()), &[], "TLS").await?;
    ensure!(explanation.contains("--ca-file"), "{explanation}");
    let explanation = assert_fails_at(command, &[("HTTPS_PROXY", "http://127.0.0.1:9")], "proxy").await?;
    ensure!(explanation.contains("the environment sets the proxy 127.0.0.1:9"), "{explanation}");
    fleet.broker.kill9();
    let explanation = assert_fails_at(command, &[], "connect").await?;
    ensure!(explanation.contains(&format!("https://127.0.0.1:{port}: ")), "{explanation}");
    let mut lines = explanation.lines().map(str::trim);
    let what = lines.next().and_then(|line| line.rsplit(": ").next()).context("an error")?.to_owned();
    let next = lines.find_map(|line| line.strip_prefix("next: ")).context("a next step")?;
    row("4")?.fits("–", "exit code 7", &what, next)?;

    fleet.broker.start_again().await?;
    types(fleet, &world.cluster, command).await?.ok()?;
    Ok(())
}

/// Returns the time of `…, after 0.2 s`.
fn seconds_tried(message: &str) -> Option<Duration> {
    let (_, after) = message.rsplit_once(", after ")?;
    after.split_once(" s")?.0.parse().ok().map(Duration::from_secs_f64)
}

/// The agent's key is not the one that it joined with: restored from a backup, or a stolen identity.
#[tokio::test]
async fn g3_why_an_agent_with_a_rejected_signature() -> Result<()> {
    // The default namespace of agents, so that the printed command needs no option.
    let options = AgentOptions { namespace: Some("brokkr-system".into()), ..AgentOptions::default() };
    let world = World::start_with(&options).await?;
    let fleet = &world.fleet;
    fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    world.agent.kill9();
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), world.agent.namespace());
    let key = AgentKey::generate()?.to_pkcs8_pem();
    let other = json!({"stringData": {"key.pem": key.expose_secret()}});
    secrets.patch(brokkr_install::IDENTITY, &PatchParams::default(), &Patch::Merge(other)).await?;
    fleet.submit("web", "env=prod", &world.manifest(&[("one", "2")])).await?;
    two_hours_later(fleet).await?;
    world.agent.start()?;
    let explanation = explained(fleet, "5", "web", "agent_refused").await?;
    ensure!(explanation.message.contains("does not match a current key"), "{explanation:?}");

    // The command waits for the agent. The test replaces the kubelet: it passes the new token on and starts the agent.
    let typed = types(fleet, &world.cluster, explanation.command()?);
    let started = async {
        let token = eventually(WAIT_TIMEOUT, "the token for the agent", async || {
            let gone = secrets.get_opt(brokkr_install::IDENTITY).await?.is_none();
            let join = secrets.get_opt("brokkr-agent-join").await?.and_then(|secret| secret.data);
            join.and_then(|mut data| data.remove("token")).filter(|_| gone).context("no token yet")
        })
        .await?;
        world.agent.give_join_token(&String::from_utf8(token.0)?)?;
        world.agent.restart()
    };
    let (typed, started) = tokio::join!(typed, started);
    started?;
    typed?.ok()?;
    well(fleet, "web").await?;
    world.wait_for_value("one", "2").await
}

//! Installs with kubectl, and waits for the agent to connect. While it waits, it reports steps that are stuck.

use std::time::{Duration, Instant};

use brokkr_api::agents::Agent;
use brokkr_api::why::Presence;
use brokkr_client::Client;
use brokkr_install::rights::RIGHTS_OF;
use brokkr_install::{ACCOUNT, IDENTITY, start, workload};
use jiff::Timestamp;
use serde_json::Value;

use super::refused;
use crate::args::Join;
use crate::failure::{Exit, Failure, Result};
use crate::joining::{HintContext, Stuck, stuck, without_rights};
use crate::kubectl::Kubectl;
use crate::printer::{Live, Printer};
use crate::program::ProgramError;

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A failure that looks final is reported only after it has lasted this long, because it may be temporary.
const FINAL_AFTER: Duration = Duration::from_secs(3);
/// If the agent reports nothing for this long, its permissions are checked.
const SILENT_AFTER: Duration = Duration::from_secs(15);
/// How long the Pod of an earlier installation may take to terminate, as an option of kubectl.
const TERMINATION_TIMEOUT: &str = "--timeout=60s";

/// Installs into the cluster at `server`. Returns the agent and the time that the installation took.
pub async fn install(
    args: &Join,
    kubectl: &Kubectl,
    server: &str,
    manifests: &str,
    client: &Client,
    printer: Printer,
) -> Result<(Agent, Duration)> {
    let live = printer.live(&format!("joining {}", args.name));
    let started = Instant::now();
    live.status(&format!("installing into {server}"));
    remove_earlier(args, kubectl).await.map_err(|error| refused(args, server, error))?;
    // An agent that rejoins may have connected before: only a later connection counts.
    let before = client.agent(args.name.as_str()).await.ok();
    let seen_before = before.as_ref().and_then(|agent| agent.last_seen_at);
    let applied = kubectl.apply(manifests).await.map_err(|error| refused(args, server, error))?;
    live.line(&format!("installed {} objects into {server}", applied.lines().count()));
    let is_registered = before.is_some();
    let mut waiting = Waiting { args, kubectl, client, live: &live, started, seen_before, is_registered };
    let agent = waiting.run().await?;
    Ok((agent, started.elapsed()))
}

/// Removes an earlier installation: its agent would keep reporting its own state, and its permissions may be wider than
/// those requested now.
async fn remove_earlier(args: &Join, kubectl: &Kubectl) -> Result<(), ProgramError> {
    let deployment = format!("deployment/{ACCOUNT}");
    let delete = ["delete", "-n", &args.namespace, "--ignore-not-found"];
    kubectl
        .run(
            &[&delete[..], &[deployment.as_str(), "--cascade=foreground", TERMINATION_TIMEOUT]].concat(),
            None,
        )
        .await?;
    let rights = format!("{RIGHTS_OF}={}", args.namespace);
    let of_agent = ["delete", "clusterrolebindings,rolebindings,clusterroles,roles", "-A", "-l", &rights];
    kubectl.run(&of_agent, None).await?;
    let mut stale = vec![format!("configmap/{}", start::CONFIG_MAP)];
    if args.rejoin {
        stale.push(format!("secret/{IDENTITY}"));
    }
    let stale: Vec<&str> = stale.iter().map(String::as_str).collect();
    kubectl.run(&[&delete[..], &stale].concat(), None).await?;
    Ok(())
}

struct Waiting<'a> {
    args: &'a Join,
    kubectl: &'a Kubectl,
    client: &'a Client,
    live: &'a Live,
    started: Instant,
    seen_before: Option<Timestamp>,
    /// Whether the agent is registered, which uses up its token.
    is_registered: bool,
}

impl Waiting<'_> {
    /// Waits until the agent has connected to the broker, or a step has finally failed.
    async fn run(&mut self) -> Result<Agent> {
        let mut since: Option<(Stuck, Instant)> = None;
        loop {
            if let Some(agent) = self.arrived().await? {
                return Ok(agent);
            }
            let found = match self.find_stuck().await {
                Some(found) => Some(found),
                None if self.started.elapsed() > SILENT_AFTER => self.rights().await,
                None => None,
            };
            since = match (found, since) {
                (Some(found), Some((known, at))) if known.hop == found.hop => Some((found, at)),
                (Some(found), _) => {
                    self.live.line(&format!("  {}: {}", found.hop, found.reason));
                    Some((found, Instant::now()))
                }
                (None, _) => None,
            };
            let headline = since.as_ref().map_or("waiting for the agent", |(stuck, _)| stuck.hop.as_str());
            self.live.status(&format!("{headline} ({}s)", self.started.elapsed().as_secs()));
            match &since {
                Some((stuck, at)) if stuck.is_final && at.elapsed() > FINAL_AFTER => {
                    return Err(self.failure(Some(stuck)));
                }
                _ if self.started.elapsed() > self.args.timeout => {
                    return Err(self.failure(since.as_ref().map(|(stuck, _)| stuck)));
                }
                _ => {}
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn arrived(&mut self) -> Result<Option<Agent>> {
        match self.client.agent(self.args.name.as_str()).await {
            Ok(agent)
                if agent.presence == Presence::Fresh
                    && agent.revoked_at.is_none()
                    && agent.last_seen_at > self.seen_before =>
            {
                Ok(Some(agent))
            }
            Ok(_) => {
                self.is_registered = true;
                Ok(None)
            }
            Err(error) if error.code() == Some(brokkr_api::ErrorCode::BRK2001) => Ok(None),
            Err(error) => Err(Failure::of_client("read the agent", error)),
        }
    }

    /// Returns the step that is stuck, from the objects in the agent's namespace.
    async fn find_stuck(&self) -> Option<Stuck> {
        let of_agent = ["deployments,pods,configmaps", "-n", &self.args.namespace, "-l", workload::SELECTOR];
        let found = self.kubectl.get(&of_agent).await.ok()?;
        let items: &[Value] = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        stuck(items, self.hint_context())
    }

    fn hint_context(&self) -> HintContext<'_> {
        let again = if self.is_registered {
            "run the command again, with --rejoin and without labels"
        } else {
            "run the command again"
        };
        HintContext { namespace: &self.args.namespace, again }
    }

    async fn rights(&self) -> Option<Stuck> {
        let namespace = &self.args.namespace;
        let account = format!("system:serviceaccount:{namespace}:{ACCOUNT}");
        let may = ["auth", "can-i", "create", "secrets", "-n", namespace, "--as", &account];
        // If the user is not allowed to impersonate, kubectl prints an error here instead of yes or no.
        let result = self.kubectl.run(&may, None).await;
        let is_no = |output: &str| output.is_empty() || output.starts_with("no");
        let no = matches!(&result, Err(ProgramError::Failed(output)) if is_no(output.trim()));
        no.then(|| without_rights(&account, self.hint_context()))
    }

    fn failure(&self, stuck: Option<&Stuck>) -> Failure {
        let name = &self.args.name;
        match stuck {
            Some(stuck) => Failure::new(
                Exit::Failed,
                format!("agent {name} has not joined: failed at step {}", stuck.hop),
            )
            .line(stuck.reason.clone())
            .next(stuck.next.clone()),
            None => Failure::new(
                Exit::Timeout,
                format!("agent {name} has not joined within {} s", self.started.elapsed().as_secs()),
            )
            .line("its Pod is running but reports no progress")
            .next(format!("kubectl -n {} logs deployment/{ACCOUNT}", self.args.namespace)),
        }
    }
}

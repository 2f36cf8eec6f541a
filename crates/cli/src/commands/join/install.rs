//! Installing by kubectl, and the wait for the agent's first word: where it stands still meanwhile is told.

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
use crate::failure::{Exit, Failure};
use crate::joining::{Place, Stuck, stuck, without_rights};
use crate::kubectl::Kubectl;
use crate::printer::{Live, Printer};
use crate::program::Refused;

const LOOKS: Duration = Duration::from_secs(1);
/// A hop that is not passed may be passed a moment later; one that is refused is believed after this long.
const BELIEVED: Duration = Duration::from_secs(3);
/// An agent that says nothing at all for this long may not be able to.
const MUTE: Duration = Duration::from_secs(15);
/// How long an agent that was installed before may take to end, as kubectl counts.
const ENDS_WITHIN: &str = "--timeout=60s";

/// Into the cluster at `server`. Answers the agent, and how long it took.
pub async fn install(
    args: &Join,
    kubectl: &Kubectl,
    server: &str,
    manifests: &str,
    client: &Client,
    printer: Printer,
) -> Result<(Agent, Duration), Failure> {
    let live = printer.live(&format!("joining {}", args.name));
    let started = Instant::now();
    live.headline(&format!("installing into {server}"));
    make_room(args, kubectl).await.map_err(|said| refused(args, server, said))?;
    // One that joins again was there before: only what comes from now on is its word.
    let before = client.agent(args.name.as_str()).await.ok();
    let seen_before = before.as_ref().and_then(|agent| agent.last_seen_at);
    let applied = kubectl.apply(manifests).await.map_err(|said| refused(args, server, said))?;
    live.line(&format!("installed {} objects into {server}", applied.lines().count()));
    let is_registered = before.is_some();
    let mut waiting = Waiting { args, kubectl, client, live: &live, started, seen_before, is_registered };
    let agent = waiting.run().await?;
    Ok((agent, started.elapsed()))
}

/// An agent of an earlier attempt ends first: it would go on telling where it stands still. Its rights go with it: those that
/// are wanted now may be fewer.
async fn make_room(args: &Join, kubectl: &Kubectl) -> Result<(), Refused> {
    let deployment = format!("deployment/{ACCOUNT}");
    let delete = ["delete", "-n", &args.namespace, "--ignore-not-found"];
    kubectl
        .run(&[&delete[..], &[deployment.as_str(), "--cascade=foreground", ENDS_WITHIN]].concat(), None)
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
    /// Whether the broker knows the agent: then its token is used up.
    is_registered: bool,
}

impl Waiting<'_> {
    /// Until the agent has asked the broker for its work, or a hop is not going to be passed.
    async fn run(&mut self) -> Result<Agent, Failure> {
        let mut since: Option<(Stuck, Instant)> = None;
        loop {
            if let Some(agent) = self.arrived().await? {
                return Ok(agent);
            }
            let found = match self.look().await {
                Some(found) => Some(found),
                None if self.started.elapsed() > MUTE => self.rights().await,
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
            self.live.headline(&format!("{headline} ({}s)", self.started.elapsed().as_secs()));
            match &since {
                Some((stuck, at)) if stuck.for_good && at.elapsed() > BELIEVED => {
                    return Err(self.failure(Some(stuck)));
                }
                _ if self.started.elapsed() > self.args.timeout => {
                    return Err(self.failure(since.as_ref().map(|(stuck, _)| stuck)));
                }
                _ => {}
            }
            tokio::time::sleep(LOOKS).await;
        }
    }

    async fn arrived(&mut self) -> Result<Option<Agent>, Failure> {
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
            Err(error) => Err(Failure::of_client("look for the agent", error)),
        }
    }

    /// What keeps it, as far as its namespace tells.
    async fn look(&self) -> Option<Stuck> {
        let of_agent = ["deployments,pods,configmaps", "-n", &self.args.namespace, "-l", workload::SELECTOR];
        let found = self.kubectl.get(&of_agent).await.ok()?;
        let items: &[Value] = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        stuck(items, self.place())
    }

    fn place(&self) -> Place<'_> {
        let again = if self.is_registered {
            "run the command again, with --rejoin and without labels"
        } else {
            "run the command again"
        };
        Place { namespace: &self.args.namespace, again }
    }

    async fn rights(&self) -> Option<Stuck> {
        let namespace = &self.args.namespace;
        let account = format!("system:serviceaccount:{namespace}:{ACCOUNT}");
        let may = ["auth", "can-i", "create", "secrets", "-n", namespace, "--as", &account];
        // Whoever may not ask as somebody else learns nothing here.
        let said = self.kubectl.run(&may, None).await;
        let said_no = |told: &str| told.is_empty() || told.starts_with("no");
        let no = matches!(&said, Err(Refused::Failed(told)) if said_no(told.trim()));
        no.then(|| without_rights(&account, self.place()))
    }

    fn failure(&self, stuck: Option<&Stuck>) -> Failure {
        let name = &self.args.name;
        match stuck {
            Some(stuck) => Failure::new(
                Exit::Failed,
                format!("agent {name} has not joined: it stopped at {}", stuck.hop),
            )
            .line(stuck.reason.clone())
            .next(stuck.next.clone()),
            None => Failure::new(
                Exit::Timeout,
                format!("agent {name} has not joined within {} s", self.started.elapsed().as_secs()),
            )
            .line("its Pod runs, and says nothing of what it waits for")
            .next(format!("kubectl -n {} logs deployment/{ACCOUNT}", self.args.namespace)),
        }
    }
}

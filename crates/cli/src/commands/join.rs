//! `brokkr agent join`: a token, the manifests, kubectl, and then the wait for the agent's first word.

use std::time::{Duration, Instant};

use brokkr_api::agents::{Agent, RejoinAgent};
use brokkr_api::tokens::{CreateJoinToken, JoinToken};
use brokkr_api::why::Presence;
use brokkr_client::{Client, SecretString};
use brokkr_install::{ACCOUNT, IDENTITY, rights, start, workload};
use serde_json::Value;

use crate::args::{Global, Join};
use crate::commands::agent::seconds;
use crate::connect::{connect_with_authorities, is_this_machine};
use crate::failure::{About as _, Exit, Failure, Noun, WhileTrying as _};
use crate::joining::{Stuck, stuck, without_rights};
use crate::kubectl::Kubectl;
use crate::printer::{Live, Printer};
use crate::program::Refused;
use crate::view::text::labels;

const LOOKS: Duration = Duration::from_secs(1);
/// A hop that is not passed may be passed a moment later; one that is refused is believed after this long.
const BELIEVED: Duration = Duration::from_secs(3);
/// An agent that says nothing at all for this long may not be able to.
const MUTE: Duration = Duration::from_secs(15);

pub async fn run(args: Join, global: &Global, printer: Printer) -> Result<(), Failure> {
    let (client, authorities) = connect_with_authorities(global, printer)?;
    let kubectl = Kubectl::new(args.kubeconfig.as_deref(), args.kube_context.as_deref());
    // Refused before anything is made: the rights are read, and the cluster is asked.
    let before = rights::manifests(&args.rights, &args.namespace)
        .map_err(|error| Failure::new(Exit::Usage, format!("{error:#}")))?;
    let cluster = if args.print { None } else { reachable(&kubectl, printer).await? };
    if let Some(server) = &cluster {
        is_free(&kubectl, &args, server).await?;
    }
    let token = token(&args, &client).await?;
    let broker = args.broker_url.as_ref().unwrap_or_else(|| client.base());
    let joining = workload::Joining {
        image: &args.image,
        broker,
        token: &SecretString::from(token.token.clone()),
        token_id: &token.id.to_string(),
        authorities: authorities.as_deref(),
        proxy: args.proxy.as_ref(),
    };
    let agent = workload::manifests(&joining, &args.rights, &args.namespace);
    let manifests = agent.and_then(|agent| brokkr_install::yaml(&[before, agent].concat()));
    let manifests = manifests.map_err(|error| Failure::new(Exit::Failed, format!("{error:#}")))?;
    let Some(server) = cluster else {
        return print(&args, &token, &manifests, printer);
    };
    if is_this_machine(broker) {
        printer.warn(&format!(
            "the agent will look for the broker at {broker}, which is another place inside a Pod"
        ));
    }
    let joined = install(&args, &kubectl, &server, &manifests, &client, printer).await;
    if joined.is_err() {
        // Of no use to anybody but whoever finds it.
        client.revoke_join_token(token.id).await.ok();
    }
    let (agent, took) = joined?;
    printer.done(&agent, format!("agent/{}", agent.name), || {
        format!("agent {} has joined ({}s)", agent.name, took.as_secs())
    })?;
    let to = labels(&agent.labels);
    let to = to.split(',').next().filter(|label| label.contains('=')).unwrap_or("KEY=VALUE");
    printer.note(&format!("next: brokkr apply -f FOLDER --stack NAME --to {to} --wait"));
    Ok(())
}

/// Where kubectl would install; none if it reaches no cluster, which is told.
async fn reachable(kubectl: &Kubectl, printer: Printer) -> Result<Option<String>, Failure> {
    match printer.patiently("asking the cluster", kubectl.server()).await {
        Ok(server) => Ok(Some(server)),
        Err(refused) => {
            let reason = refused.to_string();
            let reason = reason.lines().last().unwrap_or_default();
            printer.note(&format!("no cluster can be reached from here: {reason}"));
            Ok(None)
        }
    }
}

/// Whether no other agent lives there.
async fn is_free(kubectl: &Kubectl, args: &Join, server: &str) -> Result<(), Failure> {
    let found = kubectl.get(&["secret", IDENTITY, "-n", &args.namespace]).await.map_err(cannot_install)?;
    let lives_there = !found["data"]["agent-id"].is_null();
    if lives_there && !args.rejoin {
        return Err(Failure::new(Exit::Conflict, format!("the cluster at {server} has an agent already"))
            .line(format!("Secret {}/{IDENTITY} holds its key", args.namespace))
            .next(format!(
                "to let the same agent in again, brokkr agent join {} --rejoin; for another cluster, --kube-context",
                args.name
            )));
    }
    Ok(())
}

async fn token(args: &Join, client: &Client) -> Result<JoinToken, Failure> {
    let ttl_seconds = Some(seconds(args.ttl)?);
    let action = format!("make a join token for {}", args.name);
    if args.rejoin {
        let rejoined = client.rejoin_agent(args.name.as_str(), &RejoinAgent { ttl_seconds }).await;
        return rejoined.while_trying(&action).about(Noun::Agent, &args.name);
    }
    let labels = args.label.iter().cloned().collect();
    let wanted = CreateJoinToken { agent_name: args.name.clone(), labels, ttl_seconds };
    client.create_join_token(&wanted).await.while_trying(&action)
}

/// One block that does the same elsewhere.
fn print(args: &Join, token: &JoinToken, manifests: &str, printer: Printer) -> Result<(), Failure> {
    let namespace = &args.namespace;
    let forget = if args.rejoin {
        format!("kubectl delete secret {IDENTITY} -n {namespace} --ignore-not-found\n")
    } else {
        String::new()
    };
    printer.data(&format!(
        "{forget}kubectl apply --server-side --force-conflicts --field-manager=brokkr-install -f - <<'BROKKR'\n\
         {manifests}BROKKR"
    ))?;
    printer.note(&format!(
        "run this where kubectl reaches the cluster, before {:.0}; one agent can join with it, as {}. It holds the token: \
         keep it to yourself\nnext: brokkr agent show {}",
        token.expires_at, token.agent_name, token.agent_name
    ));
    Ok(())
}

async fn install(
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
    let mut stale = vec![format!("configmap/{}", start::CONFIG_MAP)];
    if args.rejoin {
        stale.push(format!("secret/{IDENTITY}"));
    }
    for what in &stale {
        let delete = ["delete", what, "-n", &args.namespace, "--ignore-not-found"];
        kubectl.run(&delete, None).await.map_err(cannot_install)?;
    }
    let applied = kubectl.apply(manifests).await.map_err(cannot_install)?;
    live.line(&format!("installed {} objects into {server}", applied.lines().count()));
    let waiting = Waiting { args, kubectl, client, live: &live, started };
    let agent = waiting.run().await?;
    Ok((agent, started.elapsed()))
}

fn cannot_install(refused: Refused) -> Failure {
    let failure = Failure::new(Exit::Failed, "cannot install the agent: kubectl was refused");
    refused
        .to_string()
        .lines()
        .map(ToOwned::to_owned)
        .fold(failure, Failure::line)
        .next("you need the rights of a cluster administrator there; --kube-context names another cluster")
}

struct Waiting<'a> {
    args: &'a Join,
    kubectl: &'a Kubectl,
    client: &'a Client,
    live: &'a Live,
    started: Instant,
}

impl Waiting<'_> {
    /// Until the agent has asked the broker for its work, or a hop is not going to be passed.
    async fn run(&self) -> Result<Agent, Failure> {
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

    async fn arrived(&self) -> Result<Option<Agent>, Failure> {
        match self.client.agent(self.args.name.as_str()).await {
            Ok(agent) if agent.presence == Presence::Fresh && agent.revoked_at.is_none() => Ok(Some(agent)),
            Ok(_) => Ok(None),
            Err(error) if error.code() == Some(brokkr_api::ErrorCode::BRK2001) => Ok(None),
            Err(error) => Err(Failure::of_client("look for the agent", error)),
        }
    }

    /// What keeps it, as far as its namespace tells.
    async fn look(&self) -> Option<Stuck> {
        let of_agent = ["deployments,pods,configmaps", "-n", &self.args.namespace, "-l", workload::SELECTOR];
        let found = self.kubectl.get(&of_agent).await.ok()?;
        let items: &[Value] = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        stuck(items, &self.args.namespace)
    }

    async fn rights(&self) -> Option<Stuck> {
        let namespace = &self.args.namespace;
        let account = format!("system:serviceaccount:{namespace}:{ACCOUNT}");
        let may = ["auth", "can-i", "create", "secrets", "-n", namespace, "--as", &account];
        // Whoever may not ask as somebody else learns nothing here.
        let said = self.kubectl.run(&may, None).await;
        let said_no = |told: &str| told.is_empty() || told.starts_with("no");
        let no = matches!(&said, Err(Refused::Failed(told)) if said_no(told.trim()));
        no.then(|| without_rights(&account))
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

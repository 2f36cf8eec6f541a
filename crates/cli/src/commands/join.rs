//! `brokkr agent join`: a token, the manifests, kubectl, and then the wait for the agent's first word.

mod install;

use brokkr_api::agents::RejoinAgent;
use brokkr_api::tokens::{CreateJoinToken, JoinToken};
use brokkr_client::{Client, SecretString};
use brokkr_install::{IDENTITY, rights, workload};
use url::Url;

use crate::args::{Global, Join};
use crate::commands::agent::seconds;
use crate::connect::{connect_with_authorities, is_this_machine};
use crate::failure::{About as _, Exit, Failure, Noun, WhileTrying as _};
use crate::joining::forbidden;
use crate::kubectl::Kubectl;
use crate::printer::Printer;
use crate::program::Refused;
use crate::view::text::labels;

/// So many things that may not be done are named; the rest is counted.
const NAMED: usize = 5;

pub async fn run(args: Join, global: &Global, printer: Printer) -> Result<(), Failure> {
    let (client, authorities) = connect_with_authorities(global, printer)?;
    let kubectl = Kubectl::new(args.kubeconfig.as_deref(), args.kube_context.as_deref());
    let broker = args.broker_url.as_ref().unwrap_or_else(|| client.base()).clone();
    let planned = Planned {
        rights: rights::text(&args.rights, &args.namespace)
            .map_err(|error| Failure::new(Exit::Usage, format!("{error:#}")))?,
        broker,
        authorities,
    };
    // Refused before anything is made: the cluster is asked.
    let cluster = if args.print { None } else { reachable(&kubectl, printer).await? };
    if let Some(server) = &cluster {
        is_free(&kubectl, &args, server).await?;
        may_install(&kubectl, &args, server, &planned.manifests(&args, None)).await?;
    }
    if is_this_machine(&planned.broker) {
        printer.warn(&format!(
            "the agent will look for the broker at {}, which is another place inside a Pod",
            planned.broker
        ));
    }
    let token = token(&args, &client).await?;
    let manifests = planned.manifests(&args, Some(&token));
    let Some(server) = cluster else {
        return print(&args, &token, &planned.broker, &manifests, printer);
    };
    let joined = install::install(&args, &kubectl, &server, &manifests, &client, printer).await;
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

/// What is known of the installation before there is a token.
struct Planned {
    rights: String,
    /// As the cluster sees it.
    broker: Url,
    authorities: Option<String>,
}

impl Planned {
    /// Without a token they are of no use but to be tried.
    fn manifests(&self, args: &Join, token: Option<&JoinToken>) -> String {
        let secret = token.map(|token| token.token.clone()).unwrap_or_default();
        let joining = workload::Joining {
            image: &args.image,
            broker: &self.broker,
            token: &SecretString::from(secret),
            token_id: &token.map(|token| token.id.to_string()).unwrap_or_default(),
            authorities: self.authorities.as_deref(),
            proxy: args.proxy.as_ref(),
        };
        self.rights.clone() + &workload::text(&joining, &args.rights, &args.namespace)
    }
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
    let identity = ["secret", IDENTITY, "-n", &args.namespace];
    let found = kubectl.get(&identity).await.map_err(|said| refused(args, server, said))?;
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

/// Whether whoever runs this may make all of it: half an installation helps nobody.
async fn may_install(kubectl: &Kubectl, args: &Join, server: &str, manifests: &str) -> Result<(), Failure> {
    match kubectl.try_out(manifests).await {
        Err(Refused::Failed(said)) if !forbidden(&said).is_empty() => {
            Err(refused(args, server, Refused::Failed(said)))
        }
        // A dry run fails for lesser reasons, too: a namespace that is not there yet has nothing in it.
        _ => Ok(()),
    }
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
fn print(
    args: &Join,
    token: &JoinToken,
    broker: &Url,
    manifests: &str,
    printer: Printer,
) -> Result<(), Failure> {
    let (name, namespace, until) = (&token.agent_name, &args.namespace, token.expires_at);
    let forget = if args.rejoin {
        format!("kubectl delete secret {IDENTITY} -n {namespace} --ignore-not-found\n")
    } else {
        String::new()
    };
    // Inside of the text: not every shell takes a comment that is typed.
    printer.data(&format!(
        "{forget}kubectl apply --server-side --force-conflicts --field-manager=brokkr-install -f - <<'BROKKR'\n\
         # Brokkr's agent {name} for the cluster that kubectl talks to: its namespace {namespace}, the kind of its\n\
         # records, its fence, its account and rights, and the agent itself, which asks {broker} for its work.\n\
         # It holds a token with which one agent can join, as {name}, before {until:.0}.\n\
         {manifests}BROKKR"
    ))?;
    printer.note(&format!(
        "run this with sh, or paste it into bash, where kubectl reaches the cluster, before {until:.0}; one agent can join \
         with it, as {name}. It holds the token: keep it to yourself\nnext: brokkr agent show {name}"
    ));
    Ok(())
}

/// kubectl did not do it: because of whoever runs it, or for another reason.
fn refused(args: &Join, server: &str, said: Refused) -> Failure {
    let said = said.to_string();
    let forbidden = forbidden(&said);
    if forbidden.is_empty() {
        let failure = Failure::new(Exit::Failed, format!("cannot install the agent into {server}"));
        let failure = said.lines().map(ToOwned::to_owned).fold(failure, Failure::line);
        return failure.next("mend what kubectl says; --kube-context names another cluster");
    }
    let what = format!("agent {} has not joined: it stopped at rights", args.name);
    let mut failure = Failure::new(Exit::Failed, what).line(format!("you may not install into {server}:"));
    for line in forbidden.iter().take(NAMED) {
        failure = failure.line(format!("- {line}"));
    }
    if let Some(more) = forbidden.len().checked_sub(NAMED).filter(|more| *more > 0) {
        failure = failure.line(format!("- and {more} more"));
    }
    failure.next(format!(
        "let an administrator of the cluster run this command, or what `brokkr agent join {} --print` prints; \
         --kube-context names another cluster",
        args.name
    ))
}

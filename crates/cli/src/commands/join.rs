//! `brokkr agent join`: creates a token, applies the manifests with kubectl, and waits for the agent to connect.

mod install;

use brokkr_api::agents::RejoinAgent;
use brokkr_api::tokens::{CreateJoinToken, JoinToken};
use brokkr_client::{Client, SecretString};
use brokkr_install::{IDENTITY, rights, workload};
use url::Url;

use crate::args::{Global, Join};
use crate::commands::agent::seconds;
use crate::connect::{connect_with_authorities, is_this_machine};
use crate::failure::{About as _, Exit, Failure, Noun, Result, WhileTrying as _};
use crate::joining::forbidden;
use crate::kubectl::Kubectl;
use crate::printer::Printer;
use crate::program::ProgramError;
use crate::view::text::labels;

/// At most this many missing permissions are listed.
const LISTED: usize = 5;

pub async fn run(args: Join, global: &Global, printer: Printer) -> Result {
    let (client, authorities) = connect_with_authorities(global, printer)?;
    let kubectl = Kubectl::new(args.kubeconfig.as_deref(), args.kube_context.as_deref());
    let broker = args.broker_url.as_ref().unwrap_or_else(|| client.base()).clone();
    let installation = Installation {
        rights: rights::text(&args.rights, &args.namespace)
            .map_err(|error| Failure::new(Exit::Usage, format!("{error:#}")))?,
        broker,
        authorities,
    };
    printer.note(&format!("permissions: {}", args.rights.summary()));
    // The cluster is checked before anything is created.
    let cluster = if args.print { None } else { reachable(&kubectl, printer).await? };
    if let Some(server) = &cluster {
        is_free(&kubectl, &args, server).await?;
        may_install(&kubectl, &args, server, &installation.manifests(&args, None)).await?;
    }
    if is_this_machine(&installation.broker) {
        printer.warn(&format!(
            "the agent will connect to {}, which inside a cluster is the Pod itself; use --broker-url",
            installation.broker
        ));
    }
    let token = token(&args, &client).await?;
    let manifests = installation.manifests(&args, Some(&token));
    let Some(server) = cluster else {
        return print(&args, &token, &installation.broker, &manifests, printer);
    };
    let joined = install::install(&args, &kubectl, &server, &manifests, &client, printer).await;
    if joined.is_err() {
        // The unused token is no longer needed, and it could be stolen.
        client.revoke_join_token(token.id).await.ok();
    }
    let (agent, took) = joined?;
    printer.done(&agent, format!("agent/{}", agent.name), || {
        format!("agent {} has joined ({}s)", agent.name, took.as_secs())
    })?;
    let to = labels(&agent.labels);
    let to = to.split(',').next().filter(|label| label.contains('=')).unwrap_or("KEY=VALUE");
    printer.note(&format!("next: brokkr apply STACK -f DIRECTORY --to {to} --wait"));
    Ok(())
}

/// The installation without its token.
struct Installation {
    rights: String,
    /// As seen from the cluster.
    broker: Url,
    authorities: Option<String>,
}

impl Installation {
    /// Returns the manifests; without a token they are only usable for a dry run.
    fn manifests(&self, args: &Join, token: Option<&JoinToken>) -> String {
        let secret = token.map(|token| token.token.clone()).unwrap_or_default();
        let joining = workload::Joining {
            image: &args.image,
            broker: &self.broker,
            token: &SecretString::from(secret),
            token_id: &token.map(|token| token.id.to_string()).unwrap_or_default(),
            ca_certificates: self.authorities.as_deref(),
            proxy: args.proxy.as_ref(),
        };
        self.rights.clone() + &workload::text(&joining, &args.rights, &args.namespace)
    }
}

/// Returns the address of kubectl's cluster, or none with a note if it cannot be reached.
async fn reachable(kubectl: &Kubectl, printer: Printer) -> Result<Option<String>> {
    match printer.with_spinner("contacting the cluster", kubectl.server()).await {
        Ok(server) => Ok(Some(server)),
        Err(refused) => {
            let reason = refused.to_string();
            let reason = reason.lines().last().unwrap_or_default();
            printer.note(&format!("kubectl cannot reach a cluster: {reason}"));
            Ok(None)
        }
    }
}

/// Fails if the namespace already has an agent, unless that agent is to rejoin.
async fn is_free(kubectl: &Kubectl, args: &Join, server: &str) -> Result {
    let identity = ["secret", IDENTITY, "-n", &args.namespace];
    let found = kubectl.get(&identity).await.map_err(|error| refused(args, server, error))?;
    let has_agent = !found["data"]["agent-id"].is_null();
    if has_agent && !args.rejoin {
        return Err(Failure::new(Exit::Conflict, format!("the cluster at {server} already has an agent"))
            .line(format!("Secret {}/{IDENTITY} contains its key", args.namespace))
            .next(format!(
                "to install the same agent again, use brokkr agent join {} --rejoin; for another cluster, use --kube-context",
                args.name
            )));
    }
    Ok(())
}

/// Fails if the user lacks permissions for a part of the installation.
async fn may_install(kubectl: &Kubectl, args: &Join, server: &str, manifests: &str) -> Result {
    match kubectl.dry_run(manifests).await {
        Err(ProgramError::Failed(output)) if !forbidden(&output).is_empty() => {
            Err(refused(args, server, ProgramError::Failed(output)))
        }
        // A dry run also fails for harmless reasons, such as a namespace that does not exist yet.
        _ => Ok(()),
    }
}

async fn token(args: &Join, client: &Client) -> Result<JoinToken> {
    let ttl_seconds = Some(seconds(args.ttl)?);
    let action = format!("create a join token for {}", args.name);
    if args.rejoin {
        let rejoined = client.rejoin_agent(args.name.as_str(), &RejoinAgent { ttl_seconds }).await;
        return rejoined.while_trying(&action).about(Noun::Agent, &args.name);
    }
    let labels = args.label.iter().cloned().collect();
    let request = CreateJoinToken { agent_name: args.name.clone(), labels, ttl_seconds };
    client.create_join_token(&request).await.while_trying(&action)
}

/// Prints a script that does the same on a machine with access to the cluster.
fn print(args: &Join, token: &JoinToken, broker: &Url, manifests: &str, printer: Printer) -> Result {
    let (name, namespace, until) = (&token.agent_name, &args.namespace, token.expires_at);
    let forget = if args.rejoin {
        format!("kubectl delete secret {IDENTITY} -n {namespace} --ignore-not-found\n")
    } else {
        String::new()
    };
    // Comments are inside the here-document, because not every interactive shell accepts them outside it.
    printer.data(&format!(
        "{forget}kubectl apply --server-side --force-conflicts --field-manager=brokkr-install -f - <<'BROKKR'\n\
         # Installs the Brokkr agent {name} into kubectl's current cluster: the namespace {namespace}, the Stack CRD,\n\
         # the admission policy, the ServiceAccount with its permissions, and the agent, which connects to {broker}.\n\
         # Contains a token with which one agent can join as {name} before {until:.0}.\n\
         {manifests}BROKKR"
    ))?;
    printer.note(&format!(
        "run this script before {until:.0} on a machine with access to the cluster: with sh, or paste it into bash. It \
         contains a token with which one agent can join as {name}: keep it secret\nnext: brokkr agent show {name}"
    ));
    Ok(())
}

/// Explains an error of kubectl: missing permissions, or another error.
fn refused(args: &Join, server: &str, error: ProgramError) -> Failure {
    let output = error.to_string();
    let forbidden = forbidden(&output);
    if forbidden.is_empty() {
        let failure = Failure::new(Exit::Failed, format!("cannot install the agent into {server}"));
        let failure = output.lines().map(ToOwned::to_owned).fold(failure, Failure::line);
        return failure
            .next("fix the error that kubectl reports; to use another cluster, set --kube-context");
    }
    let what = format!("agent {} has not joined: failed at step rights", args.name);
    let mut failure =
        Failure::new(Exit::Failed, what).line(format!("you are not allowed to install into {server}:"));
    for line in forbidden.iter().take(LISTED) {
        failure = failure.line(format!("- {line}"));
    }
    if let Some(more) = forbidden.len().checked_sub(LISTED).filter(|more| *more > 0) {
        failure = failure.line(format!("- and {more} more"));
    }
    failure.next(format!(
        "ask an administrator of the cluster to run this command, or the output of `brokkr agent join {} --print`; \
         to use another cluster, set --kube-context",
        args.name
    ))
}

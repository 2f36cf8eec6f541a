//! `brokkr agent …`

mod leave;
mod rotate;
mod upgrade;

use std::time::Duration;

use brokkr_api::agents::{Agent, AgentPatch, AgentStatus, RejoinAgent};
use brokkr_api::tokens::{CreateJoinToken, JoinToken as Token};
use brokkr_api::{Name, TokenId};
use brokkr_client::{AgentQuery, Client, PageQuery};

use crate::args::{AgentCommand, JoinToken, LabelAgent, LabelChange, ListAgents, Preview, Rejoin, Revoke};
use crate::commands::confirm::confirm;
use crate::failure::{About as _, Exit, Failure, Noun, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view::text::labels;
use crate::view::whole;

pub async fn run(args: AgentCommand, client: &Client, printer: Printer) -> Result {
    match args {
        // Handled by `commands::run`.
        AgentCommand::Join(_) => Ok(()),
        AgentCommand::List(args) => list(args, client, printer).await,
        AgentCommand::Show(args) => printer.show(&read(&args.agent, client).await?),
        AgentCommand::Label(args) => label(args, client, printer).await,
        AgentCommand::Pause(args) => set(&args.agent, AgentStatus::Inactive, client, printer).await,
        AgentCommand::Resume(args) => set(&args.agent, AgentStatus::Active, client, printer).await,
        AgentCommand::Targets(args) => targets(&args.agent, client, printer).await,
        AgentCommand::Preview(args) => preview(args, client, printer).await,
        AgentCommand::JoinToken(args) => join_token(args, client, printer).await,
        AgentCommand::JoinTokens => {
            let tokens = client.join_tokens_all().await.while_trying("list the join tokens")?;
            printer.show(&whole(tokens))
        }
        AgentCommand::RevokeJoinToken { id } => revoke_join_token(id, client, printer).await,
        AgentCommand::Rejoin(args) => rejoin(args, client, printer).await,
        AgentCommand::Rotate(args) => rotate::rotate(args, client, printer).await,
        AgentCommand::Revoke(args) => revoke(args, client, printer).await,
        AgentCommand::Retire(args) => leave::retire(args, client, printer).await,
        AgentCommand::Abandon(args) => leave::abandon(args, client, printer).await,
        AgentCommand::Delete(args) => leave::delete(args, client, printer).await,
        AgentCommand::Upgrade(args) => upgrade::run(*args, client, printer).await,
    }
}

async fn list(args: ListAgents, client: &Client, printer: Printer) -> Result {
    let query = AgentQuery {
        name: args.name,
        selector: args.selector,
        status: args.status.map(Into::into),
        presence: args.presence,
    };
    let read = client.agents_where(&query, printer.rows(args.rows));
    let page = printer.with_spinner("reading the agents", read).await.while_trying("list the agents")?;
    if page.items.is_empty() && query != AgentQuery::default() && printer.is_for_people() {
        return printer.data("no agents match");
    }
    printer.show(&page)?;
    if page.next.is_some() && printer.is_for_people() {
        // The total is optional.
        let total = client.agents_counted(&query).await.ok().flatten();
        printer.note_truncated(page.items.len(), total);
    }
    Ok(())
}

async fn read(agent: &Name, client: &Client) -> Result<Agent> {
    client
        .agent(agent.as_str())
        .await
        .while_trying(&format!("read the agent {agent}"))
        .about(Noun::Agent, agent)
}

async fn join_token(args: JoinToken, client: &Client, printer: Printer) -> Result {
    let request = CreateJoinToken {
        agent_name: args.name.clone(),
        labels: args.label.into_iter().collect(),
        ttl_seconds: Some(seconds(args.ttl)?),
    };
    let token = client
        .create_join_token(&request)
        .await
        .while_trying(&format!("create a join token for {}", args.name))?;
    print_token(&token, client, printer)
}

async fn rejoin(args: Rejoin, client: &Client, printer: Printer) -> Result {
    let request = RejoinAgent { ttl_seconds: Some(seconds(args.ttl)?) };
    let token = client
        .rejoin_agent(args.agent.as_str(), &request)
        .await
        .while_trying(&format!("create a join token for the agent {}", args.agent))
        .about(Noun::Agent, &args.agent)?;
    print_token(&token, client, printer)
}

/// Prints only the token to stdout, so that it can be redirected to a file.
fn print_token(token: &Token, client: &Client, printer: Printer) -> Result {
    printer.done(token, format!("join-token/{}", token.id), || token.token.clone())?;
    printer.note(&format!(
        "one agent can join as {} until {:.0}; the token is not shown again",
        token.agent_name, token.expires_at
    ));
    printer.note(&format!(
        "next: copy it into a file where the agent runs, then start the agent:\n  \
         brokkr-agent run --broker-url {} --join-token-file FILE",
        client.base()
    ));
    Ok(())
}

pub fn seconds(ttl: Duration) -> Result<u32> {
    let seconds = u32::try_from(ttl.as_secs()).ok().filter(|seconds| *seconds > 0);
    seconds.ok_or_else(|| Failure::new(Exit::Usage, "durations must be at least 1s and less than 100 years"))
}

async fn revoke_join_token(id: TokenId, client: &Client, printer: Printer) -> Result {
    client.revoke_join_token(id).await.while_trying(&format!("revoke the join token {id}"))?;
    let name = format!("join-token/{id}");
    printer
        .done(&serde_json::json!({"id": id, "revoked": true}), name, || format!("join token {id} is revoked"))
}

async fn set(agent: &Name, status: AgentStatus, client: &Client, printer: Printer) -> Result {
    let patch = AgentPatch { status: Some(status), ..AgentPatch::default() };
    let agent = client
        .patch_agent(agent.as_str(), &patch)
        .await
        .while_trying(&format!("set the status of the agent {agent}"))
        .about(Noun::Agent, agent)?;
    printer
        .done(&agent, format!("agent/{}", agent.name), || format!("agent {} is {}", agent.name, agent.status))
}

async fn revoke(args: Revoke, client: &Client, printer: Printer) -> Result {
    let agent = read(&args.agent, client).await?;
    let name = agent.name.as_str();
    if !args.yes {
        printer.warn(&format!(
            "requests of the agent {name} of {} will be refused; its cluster stays as it is, and drift is no longer reverted",
            client.base()
        ));
        confirm(&format!("revoking the keys of {name}"), name, printer).await?;
    }
    let agent = client
        .revoke_agent_keys(&agent.id.to_string())
        .await
        .while_trying(&format!("revoke the keys of the agent {name}"))?;
    printer.done(&agent, format!("agent/{}", agent.name), || {
        format!(
            "agent {0}: all keys are revoked; `brokkr agent join {0} --rejoin` connects it again",
            agent.name
        )
    })
}

async fn label(args: LabelAgent, client: &Client, printer: Printer) -> Result {
    let action = format!("change the labels of the agent {}", args.agent);
    let mut new_labels = read(&args.agent, client).await?.labels;
    for change in args.changes {
        match change {
            LabelChange::Set(key, value) => {
                new_labels.insert(key, value);
            }
            LabelChange::Remove(key) => {
                new_labels.remove(&key);
            }
        }
    }
    let patch = AgentPatch { labels: Some(new_labels), ..AgentPatch::default() };
    let agent =
        client.patch_agent_expecting(args.agent.as_str(), &patch, args.expect).await.while_trying(&action)?;
    printer.done(&agent, format!("agent/{}", agent.name), || {
        format!("agent {} has the labels {}", agent.name, labels(&agent.labels))
    })
}

async fn targets(agent: &Name, client: &Client, printer: Printer) -> Result {
    let action = format!("list the stacks that target the agent {agent}");
    let items = printer.with_spinner("reading the targets", client.targets_all(agent.as_str())).await;
    printer.show(&whole(items.while_trying(&action).about(Noun::Agent, agent)?))
}

async fn preview(args: Preview, client: &Client, printer: Printer) -> Result {
    let page = PageQuery { limit: Some(args.limit), after: None };
    let stack = args.stack.as_ref().map(Name::as_str);
    let preview = client.preview_selector(&args.selector, stack, &page).await;
    let preview = preview.while_trying(&format!("preview the selector {}", args.selector));
    match stack {
        Some(stack) => printer.show(&preview.about(Noun::Stack, stack)?),
        None => printer.show(&preview?),
    }
}

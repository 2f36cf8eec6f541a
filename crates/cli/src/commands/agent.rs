//! `brokkr agent …`

use brokkr_api::agents::{Agent, AgentPatch};
use brokkr_api::page::Page;
use brokkr_api::tokens::CreateJoinToken;
use brokkr_client::Client;
use jiff::Timestamp;

use crate::args::{AgentCommand, JoinToken, LabelChange, Labelling, SetStatus};
use crate::failure::{Exit, Failure, WhileTrying as _};
use crate::printer::Printer;
use crate::view;

pub async fn run(args: AgentCommand, client: &Client, printer: Printer) -> Result<(), Failure> {
    match args {
        AgentCommand::JoinToken(args) => join_token(args, client, printer).await,
        AgentCommand::List => {
            let items = client.agents_all().await.while_trying("read the agents")?;
            let page = Page::whole(items);
            printer.result(&page, || view::agents::list(&page.items, Timestamp::now()))
        }
        AgentCommand::Status { name } => {
            let agent = client.agent(name.as_str()).await.while_trying(&format!("read the agent {name}"))?;
            show(&agent, printer)
        }
        AgentCommand::SetStatus(args) => set_status(args, client, printer).await,
        AgentCommand::Label(args) => label(args, client, printer).await,
    }
}

fn show(agent: &Agent, printer: Printer) -> Result<(), Failure> {
    printer.result(agent, || view::agents::one(agent, Timestamp::now()))
}

async fn join_token(args: JoinToken, client: &Client, printer: Printer) -> Result<(), Failure> {
    let ttl_seconds = u32::try_from(args.ttl.as_secs())
        .ok()
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| Failure::new(Exit::Usage, "--ttl must be at least a second and at most a lifetime"))?;
    let wanted = CreateJoinToken {
        agent_name: args.name.clone(),
        labels: args.label.into_iter().collect(),
        ttl_seconds: Some(ttl_seconds),
    };
    let token = client
        .create_join_token(&wanted)
        .await
        .while_trying(&format!("make a join token for {}", args.name))?;
    printer.result(&token, || token.token.clone())?;
    printer.note(&format!(
        "one agent can join with it as {}, until {:.0}; it is not shown again",
        token.agent_name, token.expires_at
    ));
    printer.note(&format!(
        "next: put it into a file where that cluster's agent runs, then start it there:\n  \
         brokkr-agent run --broker-url {} --join-token-file FILE",
        client.base()
    ));
    Ok(())
}

async fn set_status(args: SetStatus, client: &Client, printer: Printer) -> Result<(), Failure> {
    let patch = AgentPatch { status: Some(args.status.into()), ..AgentPatch::default() };
    let agent = client
        .patch_agent(args.name.as_str(), &patch)
        .await
        .while_trying(&format!("set the status of the agent {}", args.name))?;
    printer.result(&agent, || format!("agent {} is {}", agent.name, agent.status))
}

async fn label(args: Labelling, client: &Client, printer: Printer) -> Result<(), Failure> {
    let action = format!("change the labels of the agent {}", args.name);
    let mut labels = client.agent(args.name.as_str()).await.while_trying(&action)?.labels;
    for change in args.changes {
        match change {
            LabelChange::Set(key, value) => {
                labels.insert(key, value);
            }
            LabelChange::Remove(key) => {
                labels.remove(&key);
            }
        }
    }
    let patch = AgentPatch { labels: Some(labels), ..AgentPatch::default() };
    let agent =
        client.patch_agent_expecting(args.name.as_str(), &patch, args.expect).await.while_trying(&action)?;
    printer
        .result(&agent, || format!("agent {} is labelled {}", agent.name, view::text::labels(&agent.labels)))
}

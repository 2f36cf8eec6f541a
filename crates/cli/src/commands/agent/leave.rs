//! `brokkr agent retire`, `abandon` and `delete`.

use std::time::{Duration, Instant};

use brokkr_client::Client;
use brokkr_install::workload::SELECTOR;

use super::read;
use crate::args::{Abandon, DeleteAgent, Retire};
use crate::commands::confirm::confirm;
use crate::failure::{Exit, Failure, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view::text::count;

const POLL_INTERVAL: Duration = Duration::from_secs(1);
const RETIRED_REASON: &str = "retired after all its stacks were removed";

pub async fn retire(args: Retire, client: &Client, printer: Printer) -> Result {
    let agent = read(&args.agent, client).await?;
    let (id, name) = (agent.id.to_string(), agent.name.as_str());
    let action = format!("retire the agent {name}");
    if !args.yes {
        let stacks = stacks_of(&id, client).await?;
        printer.warn(&format!("{} will be removed from the cluster of {name}", count(stacks, "stack")));
        confirm(&format!("retiring {name}"), name, printer).await?;
    }
    client.retire_agent(&id).await.while_trying(&action)?;
    gone(&args, &id, client, printer).await?;
    let agent = client.abandon_agent(&id, RETIRED_REASON).await.while_trying(&action)?;
    printer.done(&agent, format!("agent/{name}"), || {
        format!("agent {name} is retired: all its stacks are removed and its keys are revoked")
    })?;
    // The broker does not know the agent's namespace.
    printer.note(&format!(
        "next, in its cluster: kubectl delete namespace NAMESPACE; find it with `kubectl get deployments -A -l {SELECTOR}`"
    ));
    Ok(())
}

/// Waits until the agent has no stacks.
async fn gone(args: &Retire, id: &str, client: &Client, printer: Printer) -> Result {
    let live = printer.live(&format!("retiring {}", args.agent));
    let (started, mut known) = (Instant::now(), None);
    loop {
        let left = stacks_of(id, client).await?;
        if left == 0 {
            return Ok(());
        }
        if known != Some(left) {
            live.line(&format!("  {} left", count(left, "stack")));
            known = Some(left);
        }
        live.status(&format!("removing ({}s)", started.elapsed().as_secs()));
        if started.elapsed() > args.timeout {
            let time = humantime::format_duration(args.timeout);
            return Err(Failure::new(
                Exit::Timeout,
                format!("{} still has {} after {time}", args.agent, count(left, "stack")),
            )
            .line("the removal continues, and nothing targets the agent any more")
            .next(format!("brokkr why agent/{0}, then brokkr agent retire {0} again", args.agent)));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

pub async fn abandon(args: Abandon, client: &Client, printer: Printer) -> Result {
    let agent = read(&args.agent, client).await?;
    let (id, name) = (agent.id.to_string(), agent.name.as_str());
    if !args.yes {
        let stacks = stacks_of(&id, client).await?;
        printer.warn(&format!(
            "the resources of {} stay in the cluster of {name} and are no longer managed",
            count(stacks, "stack")
        ));
        confirm(&format!("abandoning {name}"), name, printer).await?;
    }
    let abandoned = client.abandon_agent(&id, &args.reason).await;
    let agent = abandoned.while_trying(&format!("abandon the agent {name}"))?;
    printer.done(&agent, format!("agent/{name}"), || {
        format!("agent {name} is abandoned: its keys are revoked, and deletions no longer wait for it")
    })
}

pub async fn delete(args: DeleteAgent, client: &Client, printer: Printer) -> Result {
    let agent = read(&args.agent, client).await?;
    let (id, name) = (agent.id.to_string(), agent.name.as_str());
    if !args.yes {
        confirm(&format!("deleting the agent {name}"), name, printer).await?;
    }
    client.delete_agent(&id).await.while_trying(&format!("delete the agent {name}"))?;
    let document = serde_json::json!({"id": id, "name": name, "deleted": true});
    printer.done(&document, format!("agent/{name}"), || {
        format!("agent {name} is deleted; its events and audit entries stay")
    })
}

/// Returns how many stacks target the agent or are still on it.
async fn stacks_of(id: &str, client: &Client) -> Result<usize> {
    let why = client.agent_why(id).await.while_trying("read the stacks of the agent")?;
    Ok(usize::try_from(why.affected_stacks).unwrap_or(usize::MAX))
}

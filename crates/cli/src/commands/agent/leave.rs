//! `brokkr agent retire` and `abandon`: an agent leaves, in good order or without it.

use std::time::{Duration, Instant};

use brokkr_client::Client;
use brokkr_install::workload::SELECTOR;

use super::read;
use crate::args::{Abandon, Retire};
use crate::commands::confirm::confirm;
use crate::failure::{Exit, Failure, WhileTrying as _};
use crate::printer::Printer;
use crate::view::text::count;

const LOOKS: Duration = Duration::from_secs(1);
const IN_GOOD_ORDER: &str = "retired; everything that it brought was seen to be gone";

pub async fn retire(args: Retire, client: &Client, printer: Printer) -> Result<(), Failure> {
    let agent = read(&args.agent, client).await?;
    let (id, name) = (agent.id.to_string(), agent.name.as_str());
    let action = format!("retire the agent {name}");
    if !args.yes {
        let stacks = concerned(&id, client).await?;
        printer.warn(&format!("{} will be removed from the cluster of {name}", count(stacks, "stack")));
        confirm(&format!("retiring {name}"), name, printer).await?;
    }
    client.retire_agent(&id).await.while_trying(&action)?;
    gone(&args, &id, client, printer).await?;
    let agent = client.abandon_agent(&id, IN_GOOD_ORDER).await.while_trying(&action)?;
    printer.done(&agent, format!("agent/{name}"), || {
        format!("agent {name} is retired: nothing that it brought is left, and its keys have ended")
    })?;
    // Which one only its cluster knows.
    printer.note(&format!(
        "next, where kubectl reaches its cluster: kubectl delete namespace NAMESPACE, the one that `kubectl get \
         deployments -A -l {SELECTOR}` shows"
    ));
    Ok(())
}

/// Waits until the agent has nothing left.
async fn gone(args: &Retire, id: &str, client: &Client, printer: Printer) -> Result<(), Failure> {
    let live = printer.live(&format!("retiring {}", args.agent));
    let (started, mut known) = (Instant::now(), None);
    loop {
        let left = concerned(id, client).await?;
        if left == 0 {
            return Ok(());
        }
        if known != Some(left) {
            live.line(&format!("  {} left", count(left, "stack")));
            known = Some(left);
        }
        live.headline(&format!("removing ({}s)", started.elapsed().as_secs()));
        if started.elapsed() > args.timeout {
            let time = humantime::format_duration(args.timeout);
            return Err(Failure::new(
                Exit::Timeout,
                format!("{} still has {} after {time}", args.agent, count(left, "stack")),
            )
            .line("it goes on removing them, and nothing targets it any more")
            .next(format!("brokkr why agent/{0}, then brokkr agent retire {0} again", args.agent)));
        }
        tokio::time::sleep(LOOKS).await;
    }
}

pub async fn abandon(args: Abandon, client: &Client, printer: Printer) -> Result<(), Failure> {
    let agent = read(&args.agent, client).await?;
    let (id, name) = (agent.id.to_string(), agent.name.as_str());
    if !args.yes {
        let stacks = concerned(&id, client).await?;
        printer.warn(&format!(
            "what the cluster of {name} has of {} stays there, and nobody will look after it",
            count(stacks, "stack")
        ));
        confirm(&format!("abandoning {name}"), name, printer).await?;
    }
    let given_up = client.abandon_agent(&id, &args.reason).await;
    let agent = given_up.while_trying(&format!("abandon the agent {name}"))?;
    printer.done(&agent, format!("agent/{name}"), || {
        format!(
            "agent {name} is given up; nothing is owed there any more, and it is refused if it comes back"
        )
    })
}

/// How many stacks are for the agent, or still there.
async fn concerned(id: &str, client: &Client) -> Result<usize, Failure> {
    let why = client.agent_why(id).await.while_trying("ask what the agent has")?;
    Ok(usize::try_from(why.concerned).unwrap_or(usize::MAX))
}

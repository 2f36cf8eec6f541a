//! `brokkr agent rotate`

use std::time::{Duration, Instant};

use brokkr_api::agents::Agent;
use brokkr_client::Client;

use super::read;
use crate::args::Rotate;
use crate::failure::{About as _, Exit, Failure, Noun, Result, WhileTrying as _};
use crate::printer::Printer;

const POLL_INTERVAL: Duration = Duration::from_millis(500);

pub async fn rotate(args: Rotate, client: &Client, printer: Printer) -> Result {
    let action = format!("rotate the key of the agent {}", args.agent);
    let requested = client.ask_for_key(args.agent.as_str()).await.while_trying(&action);
    let requested = requested.about(Noun::Agent, &args.agent)?;
    if requested.revoked_at.is_some() {
        let text = format!("the keys of {} are revoked, so it cannot register a new one", requested.name);
        return Err(
            Failure::new(Exit::Conflict, text).next(format!("brokkr agent join {} --rejoin", requested.name))
        );
    }
    let agent = registered(&args, requested, client, printer).await?;
    printer.done(&agent, format!("agent/{}", agent.name), || {
        format!("agent {} has a new key; the old one stays valid for an hour", agent.name)
    })
}

/// Waits until the agent has registered a new key.
async fn registered(args: &Rotate, mut agent: Agent, client: &Client, printer: Printer) -> Result<Agent> {
    let live = printer.live(&format!("rotating the key of {}", agent.name));
    let started = Instant::now();
    while agent.rotation_asked_at.is_some() {
        live.status(&format!("waiting for the new key ({}s)", started.elapsed().as_secs()));
        if started.elapsed() > args.timeout {
            let time = humantime::format_duration(args.timeout);
            let text =
                format!("{} has not registered a new key after {time}; it is {}", agent.name, agent.presence);
            return Err(Failure::new(Exit::Timeout, text)
                .line("the request stays open; the agent rotates its key when it connects")
                .next(format!("brokkr why agent/{}", agent.name)));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        agent = read(&args.agent, client).await?;
    }
    Ok(agent)
}

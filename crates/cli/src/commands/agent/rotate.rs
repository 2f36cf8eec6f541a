//! `brokkr agent rotate`: an agent is asked for a new key, and makes it.

use std::time::{Duration, Instant};

use brokkr_api::agents::Agent;
use brokkr_client::Client;

use super::read;
use crate::args::Rotate;
use crate::failure::{About as _, Exit, Failure, Noun, WhileTrying as _};
use crate::printer::Printer;

const LOOKS: Duration = Duration::from_millis(500);

pub async fn rotate(args: Rotate, client: &Client, printer: Printer) -> Result<(), Failure> {
    let action = format!("ask the agent {} for a new key", args.agent);
    let asked = client.ask_for_key(args.agent.as_str()).await.while_trying(&action);
    let asked = asked.about(Noun::Agent, &args.agent)?;
    if asked.revoked_at.is_some() {
        let text = format!("the keys of {} were revoked, so it cannot register another one", asked.name);
        return Err(
            Failure::new(Exit::Conflict, text).next(format!("brokkr agent join {} --rejoin", asked.name))
        );
    }
    let agent = registered(&args, asked, client, printer).await?;
    printer.done(&agent, format!("agent/{}", agent.name), || {
        format!("agent {} has a new key; the one before is refused in an hour", agent.name)
    })
}

/// Waits until the agent has done what it was asked for.
async fn registered(
    args: &Rotate,
    mut agent: Agent,
    client: &Client,
    printer: Printer,
) -> Result<Agent, Failure> {
    let live = printer.live(&format!("asking {} for a new key", agent.name));
    let started = Instant::now();
    while agent.rotation_asked_at.is_some() {
        live.headline(&format!("it makes one ({}s)", started.elapsed().as_secs()));
        if started.elapsed() > args.timeout {
            let time = humantime::format_duration(args.timeout);
            let text =
                format!("{} has not registered a new key after {time}; it is {}", agent.name, agent.presence);
            return Err(Failure::new(Exit::Timeout, text)
                .line("it stays asked, and does it as soon as it hears of the broker")
                .next(format!("brokkr why agent/{}", agent.name)));
        }
        tokio::time::sleep(LOOKS).await;
        agent = read(&args.agent, client).await?;
    }
    Ok(agent)
}

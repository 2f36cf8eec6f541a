//! `brokkr agent upgrade …`

use std::time::{Duration, Instant};

use brokkr_api::UpgradeId;
use brokkr_api::page::Page;
use brokkr_api::rollouts::{CommandRollout, RolloutPolicy, RolloutState, Wave};
use brokkr_api::upgrades::{AgentUpgrade, NewAgentUpgrade};
use brokkr_client::Client;

use crate::args::{BeginUpgrade, OneUpgrade, ReasonedUpgrade, UpgradeAgents, UpgradeCommand};
use crate::failure::{Exit, Failure, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view::Listed;
use crate::view::agent_upgrades::{picture, reached, state};
use crate::view::text::count;

/// The broker looks at the agents as often.
const EVERY: Duration = Duration::from_secs(1);

pub async fn run(args: UpgradeAgents, client: &Client, printer: Printer) -> Result {
    let Some(command) = args.command else {
        return match args.begin {
            Some(args) => begin(args, client, printer).await,
            None => Err(Failure::new(Exit::Usage, "give --to and --version, or a command")),
        };
    };
    match command {
        UpgradeCommand::List { rows } => {
            let found = client.agent_upgrades(printer.rows(rows)).await.while_trying("list the upgrades")?;
            list(&found, printer)
        }
        UpgradeCommand::Show { upgrade, agents: false, .. } => printer.show(&read(upgrade.id, client).await?),
        UpgradeCommand::Show { upgrade, rows, .. } => {
            let found = client.agent_upgrade_statuses(upgrade.id, printer.rows(rows)).await;
            let found = found.while_trying(&format!("list the agents of the upgrade {}", upgrade.id))?;
            list(&found, printer)
        }
        UpgradeCommand::Pause(OneUpgrade { id }) => send("pause", id, "", client, printer).await,
        UpgradeCommand::Resume(OneUpgrade { id }) => send("resume", id, "", client, printer).await,
        UpgradeCommand::Promote(args) => reasoned("promote", &args, client, printer).await,
        UpgradeCommand::Skip(args) => reasoned("skip", &args, client, printer).await,
        UpgradeCommand::Approve(OneUpgrade { id }) => approve(id, client, printer).await,
        UpgradeCommand::Deny(args) => reasoned("deny", &args, client, printer).await,
        UpgradeCommand::Stop(args) => reasoned("stop", &args, client, printer).await,
        UpgradeCommand::Abort(args) => reasoned("abort", &args, client, printer).await,
    }
}

fn list<T: Listed>(page: &Page<T>, printer: Printer) -> Result {
    printer.show(page)?;
    if page.next.is_some() {
        printer.note_truncated(page.items.len(), None);
    }
    Ok(())
}

async fn begin(args: BeginUpgrade, client: &Client, printer: Printer) -> Result {
    let BeginUpgrade { to, version, selector, waves, soak, wait, timeout } = args;
    let waves = (!waves.is_empty()).then(|| waves.into_iter().map(Wave::of).collect());
    let soak_seconds = soak.map(|soak| u32::try_from(soak.as_secs()).unwrap_or(u32::MAX));
    let policy = RolloutPolicy { waves, soak_seconds, ..RolloutPolicy::default() };
    let new = NewAgentUpgrade { image: to, version, selector, policy };
    let action = format!("upgrade the agents to {}", new.version);
    let upgrade = client.begin_agent_upgrade(&new).await.while_trying(&action)?;
    if wait {
        return follow(upgrade, timeout, client, printer).await;
    }
    printer.done(&upgrade, format!("agent-upgrade/{}", upgrade.id), || {
        format!("upgrade {} of agents to {} has begun", upgrade.id, upgrade.version)
    })?;
    printer.note(&format!("next: brokkr agent upgrade show {}", upgrade.id));
    Ok(())
}

async fn read(id: UpgradeId, client: &Client) -> Result<AgentUpgrade> {
    client.agent_upgrade(id).await.while_trying(&format!("read the upgrade {id}"))
}

/// Shows the upgrade until it ends or stops: redrawn on a terminal, otherwise a row or document per change.
async fn follow(
    mut upgrade: AgentUpgrade,
    timeout: Option<Duration>,
    client: &Client,
    printer: Printer,
) -> Result {
    let (mut drawn, mut rows) = (printer.redrawn(), printer.stream());
    let (started, mut shown): (Instant, Option<AgentUpgrade>) = (Instant::now(), None);
    loop {
        let is_open = match &mut drawn {
            Some(drawn) => drawn.draw(&picture(&upgrade, &printer.render_options()))?,
            None if shown.as_ref() != Some(&upgrade) => {
                rows.items("agent_upgrade", std::slice::from_ref(&upgrade))?
            }
            None => true,
        };
        if !is_open {
            return Ok(());
        }
        if upgrade.state.has_ended() || upgrade.state == RolloutState::Stopped {
            return ended(&upgrade);
        }
        if timeout.is_some_and(|timeout| started.elapsed() > timeout) {
            let what = format!("the upgrade {} is still {}", upgrade.id, state(&upgrade));
            let next = format!("brokkr agent upgrade show {}", upgrade.id);
            return Err(Failure::new(Exit::Timeout, what).line(reached(&upgrade)).next(next));
        }
        tokio::time::sleep(EVERY).await;
        let read = client.agent_upgrade(upgrade.id).await;
        shown = Some(upgrade.clone());
        match read {
            Ok(read) => upgrade = read,
            Err(error) if error.is_transient() => {}
            Err(error) => {
                return Err(Failure::of_client(&format!("watch the upgrade {}", upgrade.id), error));
            }
        }
    }
}

/// Returns how the upgrade has ended: success, or a failure with the exit code of its end.
fn ended(upgrade: &AgentUpgrade) -> Result {
    let id = upgrade.id;
    let what = format!("the upgrade {id} of agents to {} is {}", upgrade.version, state(upgrade));
    let failure = |exit| Failure::new(exit, what.clone()).line(reached(upgrade));
    let agents = format!("brokkr agent upgrade show {id} --agents");
    match upgrade.state {
        RolloutState::Stopped => Err(failure(Exit::Failed)
            .next(format!("{agents}; `brokkr agent upgrade resume {id}` accepts the bad agents"))),
        RolloutState::Aborted => Err(failure(Exit::Failed).next(agents)),
        RolloutState::Superseded => Err(failure(Exit::Conflict).next("brokkr agent upgrade list")),
        RolloutState::Completed if upgrade.figures.bad > 0 => {
            let bad = count(usize::try_from(upgrade.figures.bad).unwrap_or(usize::MAX), "bad agent");
            Err(Failure::new(Exit::SomeBad, format!("{what}, with {bad}")).next(agents))
        }
        _ => Ok(()),
    }
}

/// Approves the wave that the upgrade is at now, and no later one.
async fn approve(id: UpgradeId, client: &Client, printer: Printer) -> Result {
    let wave = Some(read(id, client).await?.wave);
    let request = CommandRollout { wave, ..CommandRollout::default() };
    command("approve", id, &request, client, printer).await
}

async fn reasoned(name: &str, args: &ReasonedUpgrade, client: &Client, printer: Printer) -> Result {
    send(name, args.id, &args.reason, client, printer).await
}

async fn send(name: &str, id: UpgradeId, reason: &str, client: &Client, printer: Printer) -> Result {
    let request = CommandRollout { reason: reason.to_owned(), ..CommandRollout::default() };
    command(name, id, &request, client, printer).await
}

async fn command(
    name: &str,
    id: UpgradeId,
    request: &CommandRollout,
    client: &Client,
    printer: Printer,
) -> Result {
    let upgrade = client.command_agent_upgrade(id, name, request).await;
    let upgrade = upgrade.while_trying(&format!("{name} the upgrade {id}"))?;
    printer.done(&upgrade, format!("agent-upgrade/{id}"), || format!("upgrade {id}: {}", upgrade.state))
}

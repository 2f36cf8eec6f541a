//! `brokkr rollout …`

use std::time::Duration;

use brokkr_api::rollouts::{CommandRollout, Rollout, RolloutState};
use brokkr_api::{Name, SequenceId};
use brokkr_client::{Client, ClientError, PageQuery};

use super::rollout_policy;
use crate::args::{OneRollout, ReasonedRollout, RolloutCommand};
use crate::failure::{About as _, Exit, Failure, Noun, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view::rollouts::{picture, reached, state};
use crate::view::text::count;

/// The broker looks at the agents as often.
const EVERY: Duration = Duration::from_secs(1);

pub async fn run(args: RolloutCommand, client: &Client, printer: Printer) -> Result {
    match args {
        RolloutCommand::List { all } => {
            let found = client.rollouts(None, !all, &PageQuery::largest()).await;
            printer.show(&found.while_trying("list the rollouts")?)
        }
        RolloutCommand::Show(OneRollout { stack }) => printer.show(&last(&stack, client).await?),
        RolloutCommand::Watch(OneRollout { stack }) => watch(&stack, client, printer).await,
        RolloutCommand::Pause(args) => command("pause", &args.stack, "", client, printer).await,
        RolloutCommand::Resume(args) => command("resume", &args.stack, "", client, printer).await,
        RolloutCommand::Promote(args) => reasoned("promote", &args, client, printer).await,
        RolloutCommand::Skip(args) => reasoned("skip", &args, client, printer).await,
        RolloutCommand::Approve { rollout, sequence } => {
            approve(&rollout.stack, sequence, client, printer).await
        }
        RolloutCommand::Deny(args) => reasoned("deny", &args, client, printer).await,
        RolloutCommand::Policy { stack } => rollout_policy::show(stack.as_ref(), client, printer).await,
        RolloutCommand::SetPolicy(args) => rollout_policy::set(args, client, printer).await,
        RolloutCommand::Stop(args) => reasoned("stop", &args, client, printer).await,
        RolloutCommand::Abort(args) => reasoned("abort", &args, client, printer).await,
    }
}

/// Returns the newest rollout of the stack, or only if it has not ended.
pub async fn newest(stack: &Name, active: bool, client: &Client) -> Result<Option<Rollout>, ClientError> {
    let page = PageQuery { limit: Some(1), after: None };
    Ok(client.rollouts(Some(stack.as_str()), active, &page).await?.items.into_iter().next())
}

/// Returns the last rollout of the stack.
async fn last(stack: &Name, client: &Client) -> Result<Rollout> {
    let found = newest(stack, false, client).await;
    let found = found.while_trying("read the rollout").about(Noun::Stack, stack.as_str())?;
    found.ok_or_else(|| {
        Failure::new(
            Exit::NotFound,
            format!("the stack {stack} has had no rollout: every agent got its versions at once"),
        )
        .next("submit a version in waves with `brokkr apply --waves`")
    })
}

/// Shows the rollout until it ends or stops: redrawn on a terminal, otherwise a row or document per change.
async fn watch(stack: &Name, client: &Client, printer: Printer) -> Result {
    let mut rollout = last(stack, client).await?;
    let (mut drawn, mut rows) = (printer.redrawn(), printer.stream());
    let mut shown: Option<Rollout> = None;
    loop {
        let is_open = match &mut drawn {
            Some(drawn) => drawn.draw(&picture(&rollout, &printer.render_options()))?,
            None if shown.as_ref() != Some(&rollout) => {
                rows.items("rollout", std::slice::from_ref(&rollout))?
            }
            None => true,
        };
        if !is_open {
            return Ok(());
        }
        if rollout.state.has_ended() || rollout.state == RolloutState::Stopped {
            return ended(stack, &rollout);
        }
        tokio::time::sleep(EVERY).await;
        let read = client.rollout(rollout.sequence_id).await;
        shown = Some(rollout.clone());
        match read {
            Ok(read) => rollout = read,
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(Failure::of_client(&format!("watch the rollout of {stack}"), error)),
        }
    }
}

/// Returns how the rollout has ended: success, or a failure with the exit code of its end.
pub fn ended(stack: &Name, rollout: &Rollout) -> Result {
    let version = rollout.widens.unwrap_or(rollout.sequence_id);
    let what = format!("the rollout of {stack} {version} is {}", state(rollout));
    let failure = |exit| Failure::new(exit, what.clone()).line(reached(rollout));
    match rollout.state {
        RolloutState::Stopped => Err(failure(Exit::Failed).next(format!(
            "submit a corrected version, or `brokkr rollback {stack}`; `brokkr rollout resume {stack}` accepts the bad agents"
        ))),
        RolloutState::Aborted => {
            Err(failure(Exit::Failed)
                .next(format!("submit another version, or `brokkr rollback {stack}`")))
        }
        RolloutState::Superseded => {
            Err(failure(Exit::Conflict).next(format!("brokkr rollout watch {stack}")))
        }
        RolloutState::Completed if rollout.figures.bad > 0 => {
            let bad = count(usize::try_from(rollout.figures.bad).unwrap_or(usize::MAX), "bad agent");
            Err(Failure::new(Exit::SomeBad, format!("{what}, with {bad}"))
                .next(format!("brokkr status {stack}")))
        }
        _ => Ok(()),
    }
}

/// Approves the wave that the rollout is at now, and no later one.
async fn approve(stack: &Name, only: Option<SequenceId>, client: &Client, printer: Printer) -> Result {
    let rollout = last(stack, client).await?;
    if only.is_some_and(|only| only != rollout.sequence_id) {
        let message = format!("the last rollout of {stack} is that of version {}", rollout.sequence_id);
        return Err(Failure::new(Exit::Conflict, message).next(format!("brokkr rollout show {stack}")));
    }
    let request = CommandRollout { wave: Some(rollout.wave), ..CommandRollout::default() };
    send("approve", stack, rollout.sequence_id, &request, client, printer).await
}

async fn reasoned(name: &str, args: &ReasonedRollout, client: &Client, printer: Printer) -> Result {
    command(name, &args.stack, &args.reason, client, printer).await
}

async fn command(name: &str, stack: &Name, reason: &str, client: &Client, printer: Printer) -> Result {
    let version = last(stack, client).await?.sequence_id;
    let request = CommandRollout { reason: reason.to_owned(), ..CommandRollout::default() };
    send(name, stack, version, &request, client, printer).await
}

async fn send(
    name: &str,
    stack: &Name,
    version: SequenceId,
    request: &CommandRollout,
    client: &Client,
    printer: Printer,
) -> Result {
    let rollout = client.command_rollout(version, name, request).await;
    let rollout = rollout.while_trying(&format!("{name} the rollout of {stack} {version}"))?;
    printer.done(&rollout, format!("rollout/{version}"), || {
        format!("rollout of {stack} {version}: {}", rollout.state)
    })
}

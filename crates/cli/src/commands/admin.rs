//! `brokkr admin …`

use std::time::Duration;

use brokkr_api::StackId;
use brokkr_api::system::{Settled, UnsettledStack};
use brokkr_client::Client;
use tokio::time::Instant;

use crate::args::{AdminCommand, Settle};
use crate::failure::{Exit, Failure, WhileTrying as _};
use crate::printer::Printer;
use crate::view;
use crate::view::admin::{Ahead, Unknown};
use crate::view::whole;

pub mod preflight;
pub mod support_bundle;

const LOOK_AGAIN: Duration = Duration::from_millis(500);

pub async fn run(args: AdminCommand, client: &Client, printer: Printer) -> Result<(), Failure> {
    match args {
        // Need more than the broker; done before.
        AdminCommand::Preflight | AdminCommand::SupportBundle(_) => Ok(()),
        AdminCommand::Status => {
            let system = client.system().await.while_trying("read how the broker stands")?;
            printer.show(&system)
        }
        AdminCommand::Ahead => {
            let stacks = client.system_ahead_all().await.while_trying("read who is ahead")?;
            printer.show(&Ahead(whole(stacks)))
        }
        AdminCommand::Unknown => {
            let stacks = client.system_unknown_all().await.while_trying("read what is unknown")?;
            printer.show(&Unknown(whole(stacks)))
        }
        AdminCommand::Settle(args) => settle(args, client, printer).await,
    }
}

async fn settle(args: Settle, client: &Client, printer: Printer) -> Result<(), Failure> {
    let action = format!("settle the stack {}", args.stack);
    let before = unsettled(client).await?;
    let settled = client.settle(args.stack.as_str(), &args.how.settlement()).await.while_trying(&action)?;
    let Some(agent) = &settled.waiting_for else { return tell(&args, &settled, printer) };
    let live = printer.live(&format!("waiting for {agent}"));
    live.line(&format!("waiting for {agent} to hand the content over"));
    live.headline(&format!("waiting for {agent}"));
    let asked = |stack: &&UnsettledStack| {
        stack.stack_id.to_string() == args.stack.as_str() || stack.stack_name == args.stack.as_str()
    };
    let Some(id) = before.iter().find(asked).map(|stack| stack.stack_id) else {
        return tell(&args, &settled, printer);
    };
    let deadline = Instant::now() + args.timeout;
    loop {
        let now = unsettled(client).await?;
        let Some(stack) = now.iter().find(|stack| stack.stack_id == id) else {
            drop(live);
            return published(id, client, &args, printer).await;
        };
        if let Some(why) = stack.wish.as_ref().and_then(|wish| wish.refused.as_ref()) {
            return Err(Failure::new(Exit::Failed, format!("cannot {action}: {agent} has not got it"))
                .line(why.clone())
                .next("take it from another agent, or settle it otherwise: brokkr admin ahead"));
        }
        if Instant::now() >= deadline {
            let time = humantime::format_duration(args.timeout);
            return Err(Failure::new(Exit::Timeout, format!("{agent} has not handed it over within {time}"))
                .next("it is published as soon as the agent does; is it there? brokkr agent list"));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn unsettled(client: &Client) -> Result<Vec<UnsettledStack>, Failure> {
    let mut all = client.system_ahead_all().await.while_trying("read who is ahead")?;
    all.extend(client.system_unknown_all().await.while_trying("read what is unknown")?);
    Ok(all)
}

async fn published(id: StackId, client: &Client, args: &Settle, printer: Printer) -> Result<(), Failure> {
    let newest = client.history(&id.to_string(), &brokkr_client::PageQuery::default()).await;
    let object = newest.ok().and_then(|page| page.items.into_iter().next());
    tell(args, &Settled { object, waiting_for: None }, printer)
}

fn tell(args: &Settle, settled: &Settled, printer: Printer) -> Result<(), Failure> {
    let name = args.stack.as_str();
    printer.done(settled, format!("stack/{name}"), || view::admin::settled(name, settled))
}

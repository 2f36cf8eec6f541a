//! `brokkr suspend`, `brokkr resume` and `brokkr stack suspensions`

use brokkr_api::reason::Reason;
use brokkr_api::report::Transition;
use brokkr_api::suspensions::{EndSuspensions, NewSuspension, ObjectName};
use brokkr_client::events::EventQuery;
use brokkr_client::{Client, PageQuery};

use crate::args::{ListSuspensions, Resume, Suspend};
use crate::failure::{About as _, Exit, Failure, Noun, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view::suspensions::{Edit, Edits, left, what};
use crate::view::text::count;
use crate::view::whole;

pub async fn suspend(args: Suspend, client: &Client, printer: Printer) -> Result {
    let name = args.stack.as_str();
    let object = args.object.map(|object| ObjectName { namespace: args.namespace, ..object });
    let new = NewSuspension {
        agent: args.agent.map(|agent| agent.to_string()),
        selector: args.selector,
        object,
        seconds: u32::try_from(args.duration.as_secs()).unwrap_or(u32::MAX),
        reason: args.reason,
    };
    new.check().map_err(|error| Failure::new(Exit::Usage, error))?;
    let action = format!("suspend the stack {name}");
    let suspension = client.suspend(name, &new).await.while_trying(&action).about(Noun::Stack, name)?;
    printer.done(&suspension, format!("suspension/{}", suspension.id), || {
        format!(
            "{} is suspended for {}; `brokkr resume {name}` ends it",
            what(&suspension),
            left(&suspension)
        )
    })
}

pub async fn resume(args: Resume, client: &Client, printer: Printer) -> Result {
    let name = args.stack.as_str();
    let action = format!("resume the stack {name}");
    let ended = client.resume(name, &EndSuspensions { id: args.id }).await;
    let ended = ended.while_trying(&action).about(Noun::Stack, name)?;
    printer.done(&ended, format!("stack/{name}"), || match ended.items.len() {
        0 => format!("stack {name} is not suspended"),
        number => format!("stack {name}: ended {}", count(number, "suspension")),
    })
}

pub async fn list(args: ListSuspensions, client: &Client, printer: Printer) -> Result {
    let name = args.stack.as_str();
    let action = format!("list the suspensions of the stack {name}");
    let suspensions = client.suspensions_all(name).await.while_trying(&action).about(Noun::Stack, name)?;
    if !args.diff {
        return printer.show(&whole(suspensions));
    }
    let query = EventQuery {
        stack: Some(name.to_owned()),
        transition: Some(Transition::Resumed),
        ..EventQuery::default()
    };
    let events = client.events(&query, &PageQuery::largest()).await.while_trying(&action)?.items;
    let edits = events.into_iter().flat_map(|event| {
        let agent = event.agent_name.clone();
        let of = match event.reason {
            Reason::SuspensionEnded { id } => Some(id),
            _ => None,
        };
        event.objects.into_iter().map(move |note| Edit {
            suspension: of,
            agent: agent.clone(),
            object: note.object,
            patch: match note.reason {
                Reason::Edited { patch } => patch,
                _ => None,
            },
            message: note.message,
        })
    });
    printer.show(&Edits { edits: edits.collect() })
}

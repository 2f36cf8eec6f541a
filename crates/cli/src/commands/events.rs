//! `brokkr events` and `errors`.

use brokkr_client::{Client, EventQuery, Message, PageQuery};

use crate::args::{Errors, Events};
use crate::failure::{About as _, Failure, Noun, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view::text::showing;

pub async fn run(args: Events, client: &Client, printer: Printer) -> Result {
    let query = EventQuery {
        stack: args.stack.as_ref().map(ToString::to_string),
        agent: args.agent.as_ref().map(ToString::to_string),
        sequence_id: args.sequence,
        transition: args.transition,
        since: args.since,
        until: args.until,
    };
    let about = |failure: Failure| {
        let stack = args.stack.iter().fold(failure, |failure, stack| failure.about(Noun::Stack, stack));
        args.agent.iter().fold(stack, |failure, agent| failure.about(Noun::Agent, agent))
    };
    let page = PageQuery { limit: Some(args.limit), after: None };
    if args.watch {
        return watch(&query, &page, client, printer).await.map_err(about);
    }
    let page = client.events(&query, &page).await.while_trying("read the events").map_err(about)?;
    printer.show(&page)?;
    if page.next.is_some() && printer.is_for_people() {
        printer.note("older events are not shown; use --limit");
    }
    Ok(())
}

/// Prints the latest events, then new ones. The stream is opened first, so that no event is missed between the two.
async fn watch(query: &EventQuery, page: &PageQuery, client: &Client, printer: Printer) -> Result {
    let mut stream = client.follow_events(query);
    stream.begin().await.while_trying("watch the events")?;
    let mut rows = printer.stream();
    let mut latest = client.events(query, page).await.while_trying("read the events")?.items;
    latest.sort_by_key(|event| event.at);
    let mut is_open = rows.items("event", &latest)?;
    while is_open {
        match stream.next().await.while_trying("watch the events")? {
            Message::Reset => {
                printer.warn("the broker was restored; events in between are not shown");
            }
            Message::Item(event) if latest.iter().any(|known| known.id == event.id) => {}
            Message::Item(event) => is_open = rows.items("event", &[event])?,
        }
    }
    Ok(())
}

pub async fn errors(args: Errors, client: &Client, printer: Printer) -> Result {
    let stack = args.stack.as_ref().map(brokkr_api::Name::as_str);
    let page = client.errors(stack, &PageQuery::largest()).await.while_trying("list the errors");
    let page = match stack {
        Some(stack) => page.about(Noun::Stack, stack)?,
        None => page?,
    };
    printer.show(&page)?;
    if page.next.is_some() && printer.is_for_people() {
        printer.note(&format!("{}, most frequent first", showing(page.items.len(), None)));
    }
    Ok(())
}

//! `brokkr events`: the latest, and with `--watch` whatever comes after them.

use brokkr_client::{Client, EventQuery, Message, PageQuery};

use crate::args::Events;
use crate::failure::{Failure, Noun, WhileTrying as _};
use crate::printer::Printer;

pub async fn run(args: Events, client: &Client, printer: Printer) -> Result<(), Failure> {
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
        printer.note("older ones are not shown: --limit");
    }
    Ok(())
}

/// The stream is begun first, so that nothing falls between the list and it.
async fn watch(
    query: &EventQuery,
    page: &PageQuery,
    client: &Client,
    printer: Printer,
) -> Result<(), Failure> {
    let mut news = client.follow_events(query);
    news.begin().await.while_trying("follow the events")?;
    let mut told = printer.stream();
    let mut latest = client.events(query, page).await.while_trying("read the events")?.items;
    latest.sort_by_key(|event| event.at);
    let mut is_read = told.items("event", &latest)?;
    while is_read {
        match news.next().await.while_trying("follow the events")? {
            Message::Reset => {
                printer.warn("the broker's history was restored: events in between are not shown");
            }
            Message::Item(event) if latest.iter().any(|known| known.id == event.id) => {}
            Message::Item(event) => is_read = told.items("event", &[event])?,
        }
    }
    Ok(())
}

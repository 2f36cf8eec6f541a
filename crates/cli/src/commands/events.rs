//! `brokkr events`

use brokkr_client::{Client, EventQuery, PageQuery};
use jiff::Timestamp;

use crate::args::Events;
use crate::failure::{Failure, WhileTrying as _};
use crate::printer::Printer;
use crate::view;

pub async fn run(args: Events, client: &Client, printer: Printer) -> Result<(), Failure> {
    let query = EventQuery {
        stack: args.stack.map(|name| name.to_string()),
        agent: args.agent.map(|name| name.to_string()),
    };
    let page = PageQuery { limit: Some(args.limit), after: None };
    let page = client.events(&query, &page).await.while_trying("read the events")?;
    printer.result(&page, || view::events::list(&page.items, Timestamp::now()))?;
    if page.next.is_some() && !printer.wants_json() {
        printer.note("older ones are not shown: --limit");
    }
    Ok(())
}

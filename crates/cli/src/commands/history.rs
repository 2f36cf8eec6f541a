//! `brokkr history STACK`

use brokkr_api::page::Page;
use brokkr_client::Client;
use jiff::Timestamp;

use crate::args::History;
use crate::failure::{Failure, WhileTrying as _};
use crate::printer::Printer;
use crate::view;

pub async fn run(args: History, client: &Client, printer: Printer) -> Result<(), Failure> {
    let action = format!("read the history of the stack {}", args.stack);
    let items = client.history_all(args.stack.as_str()).await.while_trying(&action)?;
    let page = Page::whole(items);
    printer.result(&page, || view::history::list(&page.items, Timestamp::now()))
}

//! `brokkr targets AGENT`

use brokkr_api::page::Page;
use brokkr_client::Client;

use crate::args::Targets;
use crate::failure::{Failure, WhileTrying as _};
use crate::printer::Printer;
use crate::view;

pub async fn run(args: Targets, client: &Client, printer: Printer) -> Result<(), Failure> {
    let action = format!("read what targets the agent {}", args.agent);
    let items = client.targets_all(args.agent.as_str()).await.while_trying(&action)?;
    let page = Page::whole(items);
    printer.result(&page, || view::targets::list(&page.items))
}

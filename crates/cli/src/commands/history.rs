//! `brokkr history STACK`

use brokkr_client::Client;

use crate::args::History;
use crate::failure::{About as _, Failure, Noun, WhileTrying as _};
use crate::printer::Printer;

pub async fn run(args: History, client: &Client, printer: Printer) -> Result<(), Failure> {
    let action = format!("read the history of the stack {}", args.stack);
    let read = client.history_up_to(args.stack.as_str(), printer.rows(args.most));
    let page = printer.patiently("reading the history", read).await;
    let page = page.while_trying(&action).about(Noun::Stack, &args.stack)?;
    printer.show(&page)?;
    if page.next.is_some() {
        printer.cut(page.items.len(), None);
    }
    Ok(())
}

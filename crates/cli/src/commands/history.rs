//! `brokkr history STACK`

use brokkr_client::Client;

use crate::args::History;
use crate::failure::{About as _, Failure, Noun, WhileTrying as _};
use crate::printer::Printer;
use crate::view::whole;

pub async fn run(args: History, client: &Client, printer: Printer) -> Result<(), Failure> {
    let action = format!("read the history of the stack {}", args.stack);
    let items = printer.patiently("reading the history", client.history_all(args.stack.as_str())).await;
    printer.show(&whole(items.while_trying(&action).about(Noun::Stack, &args.stack)?))
}

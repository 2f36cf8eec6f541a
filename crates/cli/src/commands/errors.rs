//! `brokkr errors [STACK]`

use brokkr_client::{Client, PageQuery};

use crate::args::Errors;
use crate::failure::{About as _, Failure, Noun, WhileTrying as _};
use crate::printer::Printer;
use crate::view::text::showing;

pub async fn run(args: Errors, client: &Client, printer: Printer) -> Result<(), Failure> {
    let stack = args.stack.as_ref().map(brokkr_api::Name::as_str);
    let page = client.errors(stack, &PageQuery::largest()).await.while_trying("read what is wrong");
    let page = match stack {
        Some(stack) => page.about(Noun::Stack, stack)?,
        None => page?,
    };
    printer.show(&page)?;
    if page.next.is_some() && printer.is_for_people() {
        printer.note(&format!("{}, the most frequent", showing(page.items.len(), None)));
    }
    Ok(())
}

//! `brokkr preview SELECTOR`

use brokkr_client::{Client, PageQuery};

use crate::args::Preview;
use crate::failure::{About as _, Failure, Noun, WhileTrying as _};
use crate::printer::Printer;

pub async fn run(args: Preview, client: &Client, printer: Printer) -> Result<(), Failure> {
    let page = PageQuery { limit: Some(args.limit), after: None };
    let stack = args.stack.as_ref().map(brokkr_api::Name::as_str);
    let preview = client.preview_selector(&args.selector, stack, &page).await;
    let preview = preview.while_trying(&format!("look whom {} would reach", args.selector));
    match stack {
        Some(stack) => printer.show(&preview.about(Noun::Stack, stack)?),
        None => printer.show(&preview?),
    }
}

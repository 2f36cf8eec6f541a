//! `brokkr targets AGENT`

use brokkr_client::Client;

use crate::args::Targets;
use crate::failure::{About as _, Failure, Noun, WhileTrying as _};
use crate::printer::Printer;
use crate::view::whole;

pub async fn run(args: Targets, client: &Client, printer: Printer) -> Result<(), Failure> {
    let action = format!("read what targets the agent {}", args.agent);
    let items = printer.patiently("reading what targets it", client.targets_all(args.agent.as_str())).await;
    printer.show(&whole(items.while_trying(&action).about(Noun::Agent, &args.agent)?))
}

//! `brokkr show STACK [SEQUENCE]`: a version, as it was submitted.

use brokkr_client::{Client, PageQuery};

use crate::args::ShowVersion;
use crate::failure::{About as _, Exit, Failure, Noun, WhileTrying as _};
use crate::printer::Printer;

pub async fn run(args: ShowVersion, client: &Client, printer: Printer) -> Result<(), Failure> {
    let name = args.stack.as_str();
    let (action, page) = (format!("read the history of the stack {name}"), PageQuery::default());
    let versions = client.history(name, &page).await.while_trying(&action).about(Noun::Stack, name)?;
    let newest = versions.items.iter().find(|version| !version.is_deletion_marker);
    let sequence = match (args.sequence, newest) {
        (Some(sequence), _) => sequence,
        (None, Some(newest)) => newest.sequence_id,
        (None, None) => {
            return Err(Failure::new(Exit::NotFound, format!("nothing was submitted to {name} yet"))
                .next(format!("brokkr apply -f PATH --stack {name}")));
        }
    };
    let content = client.deployment_object(sequence).await;
    printer.bytes(&content.while_trying(&format!("read version {sequence} of the stack {name}"))?)
}

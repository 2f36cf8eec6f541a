//! `brokkr bar …`

use brokkr_api::objects::BarredContent;
use brokkr_client::Client;

use crate::args::{BarCommand, LiftBar};
use crate::failure::{About as _, Exit, Failure, Noun, WhileTrying as _};
use crate::printer::Printer;
use crate::view::history::short_checksum;
use crate::view::whole;

pub async fn run(args: BarCommand, client: &Client, printer: Printer) -> Result<(), Failure> {
    match args {
        BarCommand::List { stack } => printer.show(&whole(barred(stack.as_str(), client).await?)),
        BarCommand::Lift(args) => lift(args, client, printer).await,
    }
}

async fn barred(stack: &str, client: &Client) -> Result<Vec<BarredContent>, Failure> {
    client
        .barred_contents_all(stack)
        .await
        .while_trying(&format!("read what is barred on the stack {stack}"))
        .about(Noun::Stack, stack)
}

async fn lift(args: LiftBar, client: &Client, printer: Printer) -> Result<(), Failure> {
    let (stack, content) = (args.stack.as_str(), args.content.trim());
    let bars = barred(stack, client).await?;
    let bar = find(&bars, content).map_err(|failure| failure.next(format!("brokkr bar list {stack}")))?;
    client
        .lift_bar(stack, bar.checksum)
        .await
        .while_trying(&format!("lift the bar on {}", short_checksum(bar.checksum)))?;
    printer.done(bar, format!("bar/{}", bar.checksum), || {
        format!(
            "stack {stack}: the content of {} (sha256 {}) may be submitted again",
            bar.sequence_id,
            short_checksum(bar.checksum)
        )
    })
}

/// By the sequence id that was rolled back, or by the beginning of the checksum.
fn find<'a>(bars: &'a [BarredContent], content: &str) -> Result<&'a BarredContent, Failure> {
    if let Some(bar) = bars.iter().find(|bar| bar.sequence_id.to_string() == content) {
        return Ok(bar);
    }
    let digits = content.strip_prefix("bar/").unwrap_or(content).to_lowercase();
    let found: Vec<_> = bars.iter().filter(|bar| bar.checksum.to_string().starts_with(&digits)).collect();
    match found.as_slice() {
        [bar] if digits.len() >= 6 => Ok(bar),
        [_] => Err(Failure::new(Exit::Usage, format!("{content} could be too many: give 6 digits at least"))),
        [] => Err(Failure::new(Exit::NotFound, format!("nothing barred is called {content}"))),
        several => Err(Failure::new(Exit::Conflict, format!("{content} fits {} contents", several.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::samples::bar;

    #[test]
    fn a_bar_is_found_by_its_version_and_by_enough_of_its_checksum() {
        let bars = [bar(41), bar(42)];
        assert_eq!(find(&bars, "42").unwrap().sequence_id.0, 42);
        let digits = bars[0].checksum.to_string();
        assert_eq!(find(&bars, &digits[..8].to_uppercase()).unwrap().sequence_id.0, 41);
        assert_eq!(find(&bars, &format!("bar/{digits}")).unwrap().sequence_id.0, 41);
        assert_eq!(find(&bars, &digits[..3]).unwrap_err().exit, Exit::Usage);
        assert_eq!(find(&bars, "43").unwrap_err().exit, Exit::NotFound);
        assert_eq!(find(&bars, "").unwrap_err().exit, Exit::Conflict);
    }
}

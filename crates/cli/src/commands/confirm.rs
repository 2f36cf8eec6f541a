//! Asking before something is taken away: the name is typed on a terminal, `--yes` says it in scripts.

use crate::failure::{Exit, Failure};
use crate::printer::Printer;

/// Lets through whoever types the name. `what` is what would happen: `deleting the project shop`.
pub async fn confirm(what: &str, name: &str, printer: Printer) -> Result<(), Failure> {
    if !printer.can_ask() {
        return Err(
            Failure::new(Exit::Usage, format!("{what} wants to be confirmed")).next("add --yes in scripts")
        );
    }
    let answer = printer.ask(&format!("Type {name} to go on: ")).await;
    if answer.as_deref() == Some(name) {
        return Ok(());
    }
    Err(Failure::new(Exit::Failed, "not confirmed, nothing was changed"))
}

//! Confirmations: a prompt on a terminal, `--yes` in scripts.

use crate::failure::{Exit, Failure, Result};
use crate::printer::Printer;

/// Asks the user to type the name of the resource. `what` is the action: `deleting the project shop`.
pub async fn confirm(what: &str, name: &str, printer: Printer) -> Result {
    if !printer.is_interactive() {
        return Err(
            Failure::new(Exit::Usage, format!("{what} requires confirmation")).next("use --yes in scripts")
        );
    }
    let answer = printer.prompt(&format!("Type {name} to continue: ")).await;
    if answer.as_deref() == Some(name) { Ok(()) } else { Err(not_confirmed()) }
}

/// Asks a question that is answered with y or n. Anything but y or yes is no.
pub async fn proceed(question: &str, printer: Printer) -> Result {
    let answer = printer.prompt(&format!("{question} [y/N] ")).await.unwrap_or_default();
    if ["y", "yes"].contains(&answer.to_lowercase().as_str()) { Ok(()) } else { Err(not_confirmed()) }
}

fn not_confirmed() -> Failure {
    Failure::new(Exit::Failed, "not confirmed; nothing was changed")
}

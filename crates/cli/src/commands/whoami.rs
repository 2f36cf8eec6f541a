//! `brokkr whoami`

use brokkr_client::Client;

use crate::failure::{Failure, WhileTrying as _};
use crate::printer::Printer;

pub async fn run(client: &Client, printer: Printer) -> Result<(), Failure> {
    let me = client.whoami().await.while_trying("ask who you are")?;
    printer.result(&me, || {
        let expires = me.expires_at.map_or_else(|| "never".to_owned(), |at| format!("{at:.0}"));
        let lines = [
            format!("token:    {} ({})", me.name, me.token_id),
            format!("role:     {} in project {}", me.role, me.project),
            format!("expires:  {expires}"),
            format!("broker:   {}", client.base()),
        ];
        lines.join("\n")
    })
}

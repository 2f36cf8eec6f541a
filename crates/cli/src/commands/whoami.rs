//! `brokkr whoami`

use brokkr_client::Client;

use crate::failure::{Failure, WhileTrying as _};
use crate::printer::Printer;
use crate::view::text::fields;

pub async fn run(client: &Client, printer: Printer) -> Result<(), Failure> {
    let me = client.whoami().await.while_trying("ask who you are")?;
    printer.done(&me, format!("token/{}", me.token_id), || {
        let expires = me.expires_at.map_or_else(|| "never".to_owned(), |at| format!("{at:.0}"));
        fields([
            ("token", format!("{} ({})", me.name, me.token_id)),
            ("role", format!("{} in project {}", me.role, me.project)),
            ("expires", expires),
            ("broker", client.base().to_string()),
        ])
    })
}

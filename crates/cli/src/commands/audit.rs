//! `brokkr audit …`

use brokkr_api::audit::AuditVerdict;
use brokkr_client::{AuditQuery, Client, PageQuery};

use crate::args::{AuditCommand, AuditList};
use crate::failure::{Outcome, Result, WhileTrying as _};
use crate::printer::Printer;

pub async fn run(args: AuditCommand, client: &Client, printer: Printer) -> Result<Outcome> {
    match args {
        AuditCommand::List(args) => list(args, client, printer).await.map(|()| Outcome::Success),
        AuditCommand::Head => {
            let head = client.audit_head().await.while_trying("read the head of the audit chain")?;
            printer.show(&head).map(|()| Outcome::Success)
        }
        AuditCommand::Verify => {
            let verdict = verify(client, printer).await?;
            printer.show(&verdict)?;
            Ok(if verdict.broken.is_none() { Outcome::Success } else { Outcome::Negative })
        }
    }
}

async fn list(args: AuditList, client: &Client, printer: Printer) -> Result {
    let query = AuditQuery {
        who: args.actor,
        what: args.route,
        kind: args.kind,
        since: args.since,
        until: args.until,
    };
    let page = PageQuery { limit: Some(args.limit), after: None };
    let page = client.audit(&query, &page).await.while_trying("read the audit log")?;
    printer.show(&page)?;
    if page.next.is_some() && printer.is_for_people() {
        printer.note("older entries are not shown; use --limit");
    }
    Ok(())
}

/// Verifies page by page, up to the end or to the first invalid entry.
async fn verify(client: &Client, printer: Printer) -> Result<AuditVerdict> {
    let live = printer.live("verifying the audit chain");
    let mut verdict = client.audit_verify(None).await.while_trying("verify the audit chain")?;
    while let (Some(next), None) = (verdict.next, &verdict.broken) {
        live.status(&format!("{} entries verified", verdict.links));
        let further = client.audit_verify(Some(next)).await.while_trying("verify the audit chain")?;
        verdict = AuditVerdict {
            links: verdict.links + further.links,
            last: further.last.or(verdict.last),
            ..further
        };
    }
    Ok(verdict)
}

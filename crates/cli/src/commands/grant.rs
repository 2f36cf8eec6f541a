//! `brokkr grant …`

use brokkr_api::grants::PutGrant;
use brokkr_client::Client;

use crate::args::{DeleteGrant, GrantCommand, SetGrant};
use crate::commands::confirm::confirm;
use crate::failure::{Exit, Failure, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view::whole;

pub async fn run(args: GrantCommand, client: &Client, printer: Printer) -> Result {
    match args {
        GrantCommand::List => {
            printer.show(&whole(client.grants_all().await.while_trying("list the grants")?))
        }
        GrantCommand::Show { name } => {
            printer.show(&client.grant(name.as_str()).await.while_trying(&format!("read the grant {name}"))?)
        }
        GrantCommand::Set(args) => set(args, client, printer).await,
        GrantCommand::Delete(args) => delete(args, client, printer).await,
    }
}

async fn set(args: SetGrant, client: &Client, printer: Printer) -> Result {
    let put = PutGrant {
        project: args.to_project.to_string(),
        selector: args.selector,
        namespaces: args.namespaces,
        kinds: args.kinds,
        account: args.account,
    };
    put.check().map_err(|error| Failure::new(Exit::Usage, error.to_string()).next("see docs/grants.md"))?;
    let name = args.name.as_str();
    let grant =
        client.put_grant(name, &put, args.expect).await.while_trying(&format!("set the grant {name}"))?;
    printer.done(&grant, format!("grant/{name}"), || {
        format!(
            "grant {name}: project {} may use agents with {} as {}",
            grant.project, grant.selector, grant.account
        )
    })
}

async fn delete(args: DeleteGrant, client: &Client, printer: Printer) -> Result {
    let name = args.name.as_str();
    if !args.yes {
        confirm(&format!("deleting the grant {name}"), name, printer).await?;
    }
    client.delete_grant(name, args.expect).await.while_trying(&format!("delete the grant {name}"))?;
    let document = serde_json::json!({"name": name, "deleted": true});
    printer.done(&document, format!("grant/{name}"), || {
        format!(
            "grant {name} is deleted; agents neither change nor delete the resources of stacks that no other \
             grant covers (the stacks are frozen)"
        )
    })
}

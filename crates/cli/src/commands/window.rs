//! `brokkr window …`

use brokkr_api::Name;
use brokkr_api::windows::{Freeze, PutWindow, Weekly, WindowRule};
use brokkr_client::Client;

use crate::args::{DeleteWindow, WindowCommand, WindowScope};
use crate::commands::confirm::confirm;
use crate::failure::{Exit, Failure, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view::{whole, windows};

pub async fn run(args: WindowCommand, client: &Client, printer: Printer) -> Result {
    match args {
        WindowCommand::List => {
            printer.show(&whole(client.windows_all().await.while_trying("list the windows")?))
        }
        WindowCommand::Show { name } => printer
            .show(&client.window(name.as_str()).await.while_trying(&format!("read the window {name}"))?),
        WindowCommand::Set(args) => {
            let minutes = args.duration.as_secs().div_ceil(60);
            let rule = WindowRule::Weekly(Weekly {
                timezone: args.timezone,
                days: args.days,
                start: args.start,
                minutes: u32::try_from(minutes).unwrap_or(u32::MAX),
            });
            put(&args.name, args.scope, rule, client, printer).await
        }
        WindowCommand::Freeze(args) => {
            let freeze = Freeze { from: args.from, until: args.until, reason: args.reason };
            put(&args.name, args.scope, WindowRule::Freeze(freeze), client, printer).await
        }
        WindowCommand::Delete(args) => delete(args, client, printer).await,
    }
}

async fn put(
    name: &Name,
    WindowScope { selector, for_project }: WindowScope,
    rule: WindowRule,
    client: &Client,
    printer: Printer,
) -> Result {
    let put = PutWindow { project: for_project.map(|project| project.to_string()), selector, rule };
    put.check().map_err(|error| Failure::new(Exit::Usage, error))?;
    let window = client.put_window(name.as_str(), &put).await;
    let window = window.while_trying(&format!("set the window {name}"))?;
    printer.done(&window, format!("window/{name}"), || {
        format!(
            "window {name}: agents with {} begin new versions {}",
            window.selector,
            windows::rule(&window.rule)
        )
    })
}

async fn delete(args: DeleteWindow, client: &Client, printer: Printer) -> Result {
    let name = args.name.as_str();
    if !args.yes {
        confirm(&format!("deleting the window {name}"), name, printer).await?;
    }
    client.delete_window(name).await.while_trying(&format!("delete the window {name}"))?;
    let document = serde_json::json!({"name": name, "deleted": true});
    printer.done(&document, format!("window/{name}"), || {
        format!("window {name} is deleted; agents that waited for it begin")
    })
}

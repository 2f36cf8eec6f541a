//! `brokkr project …`

use brokkr_api::ErrorCode;
use brokkr_api::projects::PutProject;
use brokkr_client::Client;

use crate::args::{ProjectCommand, ProjectQuotas, SetProject};
use crate::commands::confirm::confirm;
use crate::failure::{Exit, Failure, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view::whole;

pub async fn run(args: ProjectCommand, client: &Client, printer: Printer) -> Result {
    match args {
        ProjectCommand::List => {
            printer.show(&whole(client.projects_all().await.while_trying("list the projects")?))
        }
        ProjectCommand::Show { name } => {
            let project = client.project(name.as_str()).await;
            printer.show(&project.while_trying(&format!("read the project {name}"))?)
        }
        ProjectCommand::Create(args) => create(args, client, printer).await,
        ProjectCommand::Set(args) => set(args, client, printer).await,
        ProjectCommand::Delete { name, yes } => {
            let name = name.as_str();
            if !yes {
                confirm(&format!("deleting the project {name}"), name, printer).await?;
            }
            client.delete_project(name).await.while_trying(&format!("delete the project {name}"))?;
            let document = serde_json::json!({"name": name, "deleted": true});
            printer.done(&document, format!("project/{name}"), || format!("project {name} is deleted"))
        }
    }
}

/// The API creates or changes in one call. `create` refuses an existing project, so that a mistyped name is noticed.
async fn create(args: ProjectQuotas, client: &Client, printer: Printer) -> Result {
    let name = args.name.as_str();
    let action = format!("create the project {name}");
    match client.project(name).await {
        Ok(_) => {
            return Err(Failure::new(Exit::Conflict, format!("the project {name} already exists"))
                .next(format!("to change its quotas, use brokkr project set {name}")));
        }
        Err(error) if error.code() == Some(ErrorCode::BRK2001) => {}
        Err(error) => return Err(Failure::of_client(&action, error)),
    }
    let put = PutProject { allowed: args.allowed(), restricted: None };
    let project = client.put_project(name, &put, None).await.while_trying(&action)?;
    printer.done(&project, format!("project/{name}"), || format!("project {name} is created"))?;
    printer.note(&format!(
        "next: brokkr token create NAME --role owner --project {name}; brokkr grant set NAME --to-project {name} …"
    ));
    Ok(())
}

async fn set(args: SetProject, client: &Client, printer: Printer) -> Result {
    let name = args.quotas.name.as_str();
    let action = format!("change the project {name}");
    let put = PutProject { allowed: args.quotas.allowed(), restricted: args.restricted };
    if put == PutProject::default() {
        return Err(Failure::new(Exit::Usage, "no change was given").next("brokkr project set --help"));
    }
    client.project(name).await.while_trying(&action)?;
    let project = client.put_project(name, &put, args.expect).await.while_trying(&action)?;
    printer.show(&project)
}

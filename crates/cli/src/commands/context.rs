//! `brokkr context …`

use crate::args::{ContextCommand, Global};
use crate::config::{Config, Context, Folder};
use crate::connect::{no_context, of_config};
use crate::failure::Result;
use crate::printer::Printer;
use crate::view::contexts::ContextLine;
use crate::view::whole;

pub fn run(args: ContextCommand, global: &Global, printer: Printer) -> Result {
    let folder = Folder::of_this_user().map_err(of_config)?;
    let config = folder.config().map_err(of_config)?;
    match args {
        ContextCommand::List => printer.show(&whole(lines(&config, global, &folder)?)),
        ContextCommand::Use { name } => {
            let name = known(&config, &name)?;
            folder.use_context(&name).map_err(of_config)?;
            let server = config.contexts[&name].server.clone();
            let document = serde_json::json!({"context": name, "server": server});
            printer.done(&document, format!("context/{name}"), || format!("now using {name}: {server}"))
        }
        ContextCommand::Delete { name } => {
            let name = known(&config, &name)?;
            folder.delete(&name).map_err(of_config)?;
            let document = serde_json::json!({"context": name, "deleted": true});
            printer.done(&document, format!("context/{name}"), || format!("context {name} is deleted"))?;
            if config.current_context.as_deref() == Some(&name) {
                printer.note("it was the current context; select another with `brokkr context use NAME`");
            }
            Ok(())
        }
    }
}

fn known(config: &Config, name: &str) -> Result<String> {
    let name = name.strip_prefix("context/").unwrap_or(name);
    if config.contexts.contains_key(name) { Ok(name.to_owned()) } else { Err(no_context(config, name)) }
}

fn lines(config: &Config, global: &Global, folder: &Folder) -> Result<Vec<ContextLine>> {
    let current = global.context.as_ref().or(config.current_context.as_ref());
    let line = |(name, context): (&String, &Context)| -> Result<ContextLine> {
        Ok(ContextLine {
            name: name.clone(),
            current: current == Some(name),
            server: context.server.clone(),
            own_authorities: context.certificate_authorities.is_some(),
            has_token: folder.token(name).map_err(of_config)?.is_some(),
        })
    };
    config.contexts.iter().map(line).collect()
}

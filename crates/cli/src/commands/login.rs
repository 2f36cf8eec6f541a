//! `brokkr login`: check first, then remember.

use std::io::IsTerminal as _;
use std::path::Path;

use brokkr_api::tokens::WhoAmI;
use brokkr_client::{RetryPolicy, SecretString};
use secrecy::ExposeSecret as _;
use serde::Serialize;
use url::Url;

use crate::args::{Global, Login};
use crate::config::{Context, Folder};
use crate::connect::{
    client, is_this_machine, of_config, read_authorities, read_token, token_from, token_from_environment,
};
use crate::failure::{Exit, Failure, WhileTrying as _};
use crate::printer::Printer;

#[derive(Serialize)]
struct LoggedIn<'a> {
    context: &'a str,
    server: &'a Url,
    whoami: &'a WhoAmI,
}

pub async fn run(args: Login, global: &Global, printer: Printer) -> Result<(), Failure> {
    let name = match &global.context {
        Some(name) => name.clone(),
        None => name_of(&args.url)?,
    };
    let certificate_authorities = global.ca_file.as_deref().map(read_authorities).transpose()?;
    let context = Context { server: args.url, certificate_authorities };
    if context.server.scheme() == "http" && !is_this_machine(&context.server) {
        printer.warn("the token travels unprotected over http://; use https:// for anything but a trial");
    }
    let token = token(global.token_file.as_deref(), printer).await?;
    let whoami = client(&context, token.clone(), global.project.as_ref(), RetryPolicy::none())?
        .whoami()
        .await
        .while_trying(&format!("log in to {}", context.server))?;
    let folder = Folder::of_this_user().map_err(of_config)?;
    let server = context.server.clone();
    folder.remember(&name, context, &token).map_err(of_config)?;
    printer.done(
        &LoggedIn { context: &name, server: &server, whoami: &whoami },
        format!("context/{name}"),
        || {
            format!(
                "logged in to {server} as {} ({} in project {}); context {name}",
                whoami.name, whoami.role, whoami.project
            )
        },
    )
}

fn name_of(url: &Url) -> Result<String, Failure> {
    let host = url.host_str().ok_or_else(|| Failure::new(Exit::Usage, format!("{url} names no host")))?;
    Ok(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

async fn token(file: Option<&Path>, printer: Printer) -> Result<SecretString, Failure> {
    if let Some(path) = file {
        return token_from(path);
    }
    let token = match token_from_environment() {
        Some(token) => Some(token),
        None if std::io::stdin().is_terminal() => printer.ask_secret("Token: ").await,
        None => Some(read_token(Ok(std::io::stdin()), "stdin")?),
    };
    token.filter(|token| !token.expose_secret().is_empty()).ok_or_else(|| {
        Failure::new(Exit::Usage, "no token was given").next("use --token-file FILE, BROKKR_TOKEN, or stdin")
    })
}

//! Which broker, as whom: flag before environment before context.

use std::path::Path;
use std::time::Duration;

use brokkr_api::Name;
use brokkr_client::{Client, Credential, RetryPolicy, SecretString};
use url::Url;

use crate::args::Global;
use crate::config::{ConfigError, Context, Folder};
use crate::failure::{Exit, Failure};
use crate::printer::Printer;

const PATIENCE: Duration = Duration::from_secs(30);
const LOG_IN: &str = "log in with `brokkr login URL`";

/// A client for the context, server and token that this command is to use.
pub fn connect(global: &Global, printer: Printer) -> Result<Client, Failure> {
    let folder = Folder::of_this_user().map_err(of_config)?;
    let found = find(global, &folder)?;
    if let Some(path) = folder.has_open_credentials() {
        printer.warn(&format!("others can read your tokens: chmod 600 {}", path.display()));
    }
    let certificate_authorities = match &global.ca_file {
        Some(path) => Some(read_authorities(path)?),
        None => found.context.certificate_authorities,
    };
    let context = Context { server: found.context.server, certificate_authorities };
    let retry = RetryPolicy::up_to(PATIENCE).noticing(move |retry| {
        if retry.attempt == 1 {
            printer.note(&format!("{}; trying again for {} s", retry.error, retry.left.as_secs()));
        }
    });
    client(&context, found.token, global.project.as_ref(), retry)
}

pub fn client(
    context: &Context,
    token: SecretString,
    project: Option<&Name>,
    retry: RetryPolicy,
) -> Result<Client, Failure> {
    let mut builder = Client::builder(context.server.clone())
        .credential(Credential::Token(token))
        .user_agent(concat!("brokkr/", env!("CARGO_PKG_VERSION")))
        .retry(retry);
    if let Some(pem) = &context.certificate_authorities {
        builder = builder.ca_pem(pem.as_bytes());
    }
    if let Some(project) = project {
        builder = builder.project(project.as_str());
    }
    builder.build().map_err(|error| Failure::new(Exit::Usage, error.to_string()))
}

struct Found {
    context: Context,
    token: SecretString,
}

fn find(global: &Global, folder: &Folder) -> Result<Found, Failure> {
    let config = folder.config().map_err(of_config)?;
    let name = match (&global.context, &global.server) {
        (Some(name), _) => Some(name.clone()),
        // The token of a context goes only to that context's broker.
        (None, Some(server)) => {
            let is_it = |(_, context): &(&String, &Context)| context.server == *server;
            config.contexts.iter().find(is_it).map(|(name, _)| name.clone())
        }
        (None, None) => config.current_context.clone(),
    };
    let stored = match &name {
        None => None,
        Some(name) => Some(config.contexts.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = config.contexts.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "there is none yet".to_owned() } else { known.join(", ") };
            Failure::new(Exit::Usage, format!("there is no context {name}"))
                .line(format!("known: {known}"))
                .next(LOG_IN)
        })?),
    };
    let may_use_stored_token = match (&global.server, &stored) {
        (Some(server), Some(stored)) => *server == stored.server,
        _ => true,
    };
    let context = match (&global.server, stored) {
        (Some(server), stored) => Context {
            server: server.clone(),
            certificate_authorities: stored.and_then(|stored| stored.certificate_authorities),
        },
        (None, Some(stored)) => stored,
        (None, None) => return Err(Failure::new(Exit::Auth, "not logged in to any broker").next(LOG_IN)),
    };
    let stored_token = match &name {
        Some(name) if may_use_stored_token => folder.token(name).map_err(of_config)?,
        _ => None,
    };
    let token = token_from_environment().or(stored_token).ok_or_else(|| no_token(&context.server))?;
    Ok(Found { context, token })
}

fn no_token(server: &Url) -> Failure {
    Failure::new(Exit::Auth, format!("there is no token for {server}"))
        .next(format!("log in with `brokkr login {server}`, or set BROKKR_TOKEN"))
}

pub fn token_from_environment() -> Option<SecretString> {
    std::env::var("BROKKR_TOKEN")
        .ok()
        .map(|token| token.trim().to_owned())
        .filter(|token| !token.is_empty())
        .map(Into::into)
}

pub fn read_authorities(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::new(Exit::Usage, format!("cannot read {}: {error}", path.display())))
}

pub fn of_config(error: ConfigError) -> Failure {
    Failure::new(Exit::Failed, error.to_string())
}

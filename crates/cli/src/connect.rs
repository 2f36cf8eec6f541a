//! Selects the broker and the credential: flag, then environment, then context.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use brokkr_api::Name;
use brokkr_api::ids::Checksum;
use brokkr_client::{Client, Credential, RetryPolicy, SecretString};
use secrecy::ExposeSecret as _;
use url::{Host, Url};

use crate::args::Global;
use crate::config::{Config, ConfigError, Context, Folder};
use crate::failure::{Exit, Failure, Result};
use crate::printer::Printer;

mod replicas;

pub use replicas::{Replicas, connect_to_replicas};

const RETRY_TIME: Duration = Duration::from_secs(30);
/// Longer input is not a token.
const LONGEST_TOKEN: u64 = 4096;
const LOG_IN: &str = "log in with `brokkr login URL`";

/// Returns a client for the selected context, server and token.
pub fn connect(global: &Global, printer: Printer) -> Result<Client> {
    connect_for(RETRY_TIME, global, printer).map(|(client, _)| client)
}

/// Like [`connect`], and also returns the additional certificate authorities. One function does both, because a token from
/// stdin can be read only once.
pub fn connect_with_authorities(global: &Global, printer: Printer) -> Result<(Client, Option<String>)> {
    connect_for(RETRY_TIME, global, printer)
}

/// Like [`connect`], without retries.
pub fn connect_at_once(global: &Global, printer: Printer) -> Result<Client> {
    connect_for(Duration::ZERO, global, printer).map(|(client, _)| client)
}

fn connect_for(patience: Duration, global: &Global, printer: Printer) -> Result<(Client, Option<String>)> {
    let folder = Folder::of_this_user().map_err(of_config)?;
    let Found { context, token } = find(global, &folder)?;
    if let Some(path) = folder.has_open_credentials() {
        printer.warn(&format!("other users can read your tokens: chmod 600 {}", path.display()));
    }
    let retry = RetryPolicy::up_to(patience).noticing(move |retry| {
        if retry.attempt == 1 {
            printer.note(&format!("{}; retrying for {} s", retry.error, retry.left.as_secs()));
        }
    });
    let client = client(&context, token, global.project.as_ref(), retry)?;
    Ok((client, context.certificate_authorities))
}

/// Like [`connect`], without retries and messages. Also returns a digest of broker, project and token as a cache key.
pub fn connect_once(global: &Global) -> Result<(Client, Checksum)> {
    let Found { context, token } = find(global, &Folder::of_this_user().map_err(of_config)?)?;
    let project = global.project.as_ref().map(Name::as_str).unwrap_or_default();
    let cache_key = [context.server.as_str(), project, token.expose_secret()].join("\0");
    let client = client(&context, token, global.project.as_ref(), RetryPolicy::none())?;
    Ok((client, Checksum::of(cache_key.as_bytes())))
}

pub fn client(
    context: &Context,
    token: SecretString,
    project: Option<&Name>,
    retry: RetryPolicy,
) -> Result<Client> {
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

pub fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

struct Found {
    context: Context,
    token: SecretString,
}

fn find(global: &Global, folder: &Folder) -> Result<Found> {
    let config = folder.config().map_err(of_config)?;
    let name = match (&global.context, &global.server) {
        (Some(name), _) => Some(name.clone()),
        // The token of a context is only sent to that context's broker.
        (None, Some(server)) => {
            let has_server = |(_, context): &(&String, &Context)| context.server == *server;
            config.contexts.iter().find(has_server).map(|(name, _)| name.clone())
        }
        (None, None) => config.current_context.clone(),
    };
    let stored = match &name {
        None => None,
        Some(name) => Some(config.contexts.get(name).cloned().ok_or_else(|| no_context(&config, name))?),
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
    let given = match &global.token_file {
        Some(path) => Some(token_from(path)?),
        None => token_from_environment(),
    };
    let token = given.or(stored_token).ok_or_else(|| no_token(&context.server))?;
    let certificate_authorities = match &global.ca_file {
        Some(path) => Some(read_authorities(path)?),
        None => context.certificate_authorities,
    };
    Ok(Found { context: Context { server: context.server, certificate_authorities }, token })
}

pub fn no_context(config: &Config, name: &str) -> Failure {
    let known: Vec<&str> = config.contexts.keys().map(String::as_str).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Failure::new(Exit::Usage, format!("there is no context {name}"))
        .line(format!("contexts: {known}"))
        .next(LOG_IN)
}

fn no_token(server: &Url) -> Failure {
    Failure::new(Exit::Auth, format!("no token for {server}"))
        .next(format!("log in with `brokkr login {server}`, or set BROKKR_TOKEN"))
}

/// Reads a token from a file or from stdin.
pub fn token_from(path: &Path) -> Result<SecretString> {
    let token = if path.as_os_str() == "-" {
        read_token(Ok(std::io::stdin()), "stdin")?
    } else {
        read_token(std::fs::File::open(path), &path.display().to_string())?
    };
    if token.expose_secret().is_empty() {
        return Err(Failure::new(Exit::Usage, format!("{} contains no token", path.display())));
    }
    Ok(token)
}

pub fn read_token(source: std::io::Result<impl std::io::Read>, name: &str) -> Result<SecretString> {
    let mut text = String::new();
    source
        .and_then(|source| source.take(LONGEST_TOKEN).read_to_string(&mut text))
        .map_err(|error| Failure::new(Exit::Usage, format!("cannot read the token from {name}: {error}")))?;
    Ok(text.trim().to_owned().into())
}

pub fn token_from_environment() -> Option<SecretString> {
    std::env::var("BROKKR_TOKEN")
        .ok()
        .map(|token| token.trim().to_owned())
        .filter(|token| !token.is_empty())
        .map(Into::into)
}

pub fn read_authorities(path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::new(Exit::Usage, format!("cannot read {}: {error}", path.display())))
}

pub fn of_config(error: ConfigError) -> Failure {
    Failure::new(Exit::Failed, error.to_string())
}

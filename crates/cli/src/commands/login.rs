//! `brokkr login`, `logout` and `whoami`.

use std::io::IsTerminal as _;
use std::path::Path;

use brokkr_api::tokens::WhoAmI;
use brokkr_client::{Client, RetryPolicy, SecretString};
use secrecy::ExposeSecret as _;
use serde::Serialize;
use url::Url;

use crate::args::{Global, Login};
use crate::config::{Context, Folder};
use crate::connect::{
    client, is_this_machine, no_context, of_config, read_authorities, read_token, token_from,
    token_from_environment,
};
use crate::failure::{Exit, Failure, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view::text::fields;

#[derive(Serialize)]
struct LoggedIn<'a> {
    context: &'a str,
    server: &'a Url,
    whoami: &'a WhoAmI,
}

pub async fn run(args: Login, global: &Global, printer: Printer) -> Result {
    let name = match &global.context {
        Some(name) => name.clone(),
        None => name_of(&args.url)?,
    };
    let certificate_authorities = global.ca_file.as_deref().map(read_authorities).transpose()?;
    let context = Context { server: args.url, certificate_authorities };
    if context.server.scheme() == "http" && !is_this_machine(&context.server) {
        printer.warn("the token is sent unencrypted over http://; use https:// except for tests");
    }
    let token = token(global.token_file.as_deref(), printer).await?;
    let whoami = client(&context, token.clone(), global.project.as_ref(), RetryPolicy::none())?
        .whoami()
        .await
        .while_trying(&format!("log in to {}", context.server))?;
    let folder = Folder::of_this_user().map_err(of_config)?;
    let server = context.server.clone();
    folder.store(&name, context, &token).map_err(of_config)?;
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

/// Removes the stored token of the context. The context stays, so that the next login needs only a token.
pub fn logout(global: &Global, printer: Printer) -> Result {
    let folder = Folder::of_this_user().map_err(of_config)?;
    let config = folder.config().map_err(of_config)?;
    let name = global.context.clone().or_else(|| config.current_context.clone());
    let name = name.ok_or_else(|| Failure::new(Exit::Usage, "not logged in to any broker"))?;
    let context = config.contexts.get(&name).ok_or_else(|| no_context(&config, &name))?;
    let had_token = folder.delete_token(&name).map_err(of_config)?;
    let document = serde_json::json!({"context": name, "server": context.server, "logged_out": had_token});
    printer.done(&document, format!("context/{name}"), || {
        let server = &context.server;
        if had_token {
            format!("logged out of {server}; context {name} has no token now")
        } else {
            format!("context {name} had no stored token for {server}")
        }
    })?;
    if had_token {
        printer.note("the token stays valid until it expires: revoke it with `brokkr token revoke`");
    }
    if std::env::var_os("BROKKR_TOKEN").is_some() {
        printer.warn("BROKKR_TOKEN is set and is still used");
    }
    Ok(())
}

pub async fn whoami(client: &Client, printer: Printer) -> Result {
    let me = client.whoami().await.while_trying("read your identity")?;
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

fn name_of(url: &Url) -> Result<String> {
    let host = url.host_str().ok_or_else(|| Failure::new(Exit::Usage, format!("{url} has no host name")))?;
    Ok(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

async fn token(file: Option<&Path>, printer: Printer) -> Result<SecretString> {
    if let Some(path) = file {
        return token_from(path);
    }
    let token = match token_from_environment() {
        Some(token) => Some(token),
        None if std::io::stdin().is_terminal() => printer.prompt_secret("Token: ").await,
        None => Some(read_token(Ok(std::io::stdin()), "stdin")?),
    };
    token.filter(|token| !token.expose_secret().is_empty()).ok_or_else(|| {
        Failure::new(Exit::Usage, "no token was given").next("use --token-file FILE, BROKKR_TOKEN, or stdin")
    })
}

//! `brokkr token …`

use brokkr_api::TokenId;
use brokkr_api::tokens::{ApiToken, CreateApiToken, RotateApiToken};
use brokkr_client::Client;
use jiff::Timestamp;

use crate::args::{CreateToken, RotateToken, TokenCommand};
use crate::commands::agent::seconds;
use crate::commands::confirm::confirm;
use crate::failure::{Exit, Failure, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view::tokens::is_valid;
use crate::view::whole;

pub async fn run(args: TokenCommand, client: &Client, printer: Printer) -> Result {
    match args {
        TokenCommand::List => printer.show(&whole(all(client).await?)),
        TokenCommand::Show { token } => printer.show(&find(&token, client).await?),
        TokenCommand::Create(args) => create(args, client, printer).await,
        TokenCommand::Rotate(args) => rotate(args, client, printer).await,
        TokenCommand::Revoke { token, yes } => revoke(&token, yes, client, printer).await,
    }
}

async fn all(client: &Client) -> Result<Vec<ApiToken>> {
    client.api_tokens_all().await.while_trying("list the API tokens")
}

async fn create(args: CreateToken, client: &Client, printer: Printer) -> Result {
    let request =
        CreateApiToken { name: args.name.clone(), role: args.role, ttl_seconds: Some(seconds(args.ttl)?) };
    let made =
        client.create_api_token(&request).await.while_trying(&format!("create the token {}", args.name))?;
    printer.done(&made, format!("token/{}", made.info.id), || made.token.clone())?;
    printer.note(&shown_once(&made.info));
    Ok(())
}

fn shown_once(made: &ApiToken) -> String {
    let expires = made.expires_at.map_or_else(String::new, |at| format!(", until {at:.0}"));
    format!("{} in project {}{expires}; the token is not shown again", made.role, made.project)
}

async fn rotate(args: RotateToken, client: &Client, printer: Printer) -> Result {
    let old = find(&args.token, client).await?;
    let overlap_seconds = if args.overlap.is_zero() { 0 } else { seconds(args.overlap)? };
    let request = RotateApiToken {
        overlap_seconds: Some(overlap_seconds),
        ttl_seconds: args.ttl.map(seconds).transpose()?,
    };
    let made = client
        .rotate_api_token(old.id, &request)
        .await
        .while_trying(&format!("rotate the token {}", old.name))?;
    printer.done(&made, format!("token/{}", made.info.id), || made.token.clone())?;
    printer.note(&shown_once(&made.info));
    if let Some(at) = made.replaces.expires_at {
        printer.note(&format!("the old token ({}) is valid until {at:.0}", made.replaces.id));
    }
    Ok(())
}

async fn revoke(named: &str, yes: bool, client: &Client, printer: Printer) -> Result {
    let token = find(named, client).await?;
    if !yes {
        printer.warn(&format!("requests with the token {} ({}) will be refused", token.name, token.role));
        confirm(&format!("revoking {}", token.name), &token.name, printer).await?;
    }
    client.revoke_api_token(token.id).await.while_trying(&format!("revoke the token {}", token.name))?;
    let document = serde_json::json!({"id": token.id, "name": token.name, "revoked": true});
    printer.done(&document, format!("token/{}", token.id), || {
        format!("token {} ({}) is revoked; every replica refuses it within 5 seconds", token.name, token.id)
    })
}

/// Finds a token by id, or by name if only one valid token has it.
async fn find(named: &str, client: &Client) -> Result<ApiToken> {
    let named = named.strip_prefix("token/").unwrap_or(named);
    if let Ok(id) = named.parse::<TokenId>() {
        return client.api_token(id).await.while_trying(&format!("read the token {id}"));
    }
    choose(named, all(client).await?, Timestamp::now())
}

fn choose(name: &str, tokens: Vec<ApiToken>, now: Timestamp) -> Result<ApiToken> {
    let mut named: Vec<ApiToken> =
        tokens.into_iter().filter(|token| token.name == name && is_valid(token, now)).collect();
    if named.len() > 1 {
        let failure =
            Failure::new(Exit::Conflict, format!("{} valid tokens have the name {name}", named.len()));
        let lines = named
            .iter()
            .map(|token| format!("{} ({}), created {:.0}", token.id, token.role, token.created_at));
        return Err(lines.fold(failure, Failure::line).next("use the id instead"));
    }
    named.pop().ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("there is no valid token {name}")).next("brokkr token list")
    })
}

//! `brokkr webhook …`

use std::io::Read as _;

use brokkr_api::webhooks::{CreateWebhook, RotateSecret, WebhookPatch};
use brokkr_api::{DeliveryId, Name};
use brokkr_client::{Client, PageQuery};

use crate::args::{CreateWebhookArgs, Deliveries, RotateWebhookSecret, SetWebhook, WebhookCommand};
use crate::commands::agent::seconds;
use crate::commands::confirm::confirm;
use crate::failure::{Exit, Failure, Outcome, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view::webhooks::attempt;
use crate::view::whole;

/// Longer input is not an address.
const LONGEST_URL: u64 = 8192;

pub async fn run(args: WebhookCommand, client: &Client, printer: Printer) -> Result<Outcome> {
    match args {
        WebhookCommand::Test(args) => return test(&args.webhook, client, printer).await,
        WebhookCommand::List => {
            printer.show(&whole(client.webhooks_all().await.while_trying("list the webhooks")?))
        }
        WebhookCommand::Show(args) => {
            let action = format!("read the webhook {}", args.webhook);
            printer.show(&client.webhook(args.webhook.as_str()).await.while_trying(&action)?)
        }
        WebhookCommand::Create(args) => create(args, client, printer).await,
        WebhookCommand::Set(args) => set(args, client, printer).await,
        WebhookCommand::Enable(args) => switch(&args.webhook, true, client, printer).await,
        WebhookCommand::Disable(args) => switch(&args.webhook, false, client, printer).await,
        WebhookCommand::Delete { webhook, yes } => delete(&webhook, yes, client, printer).await,
        WebhookCommand::RotateSecret(args) => rotate(args, client, printer).await,
        WebhookCommand::Deliveries(args) => deliveries(args, client, printer).await,
        WebhookCommand::Resend { webhook, delivery } => resend(&webhook, delivery, client, printer).await,
    }
    .map(|()| Outcome::Success)
}

async fn create(args: CreateWebhookArgs, client: &Client, printer: Printer) -> Result {
    let request = CreateWebhook {
        name: args.name.clone(),
        url: address(args.url)?,
        format: args.format,
        filter: args.filter.to_api(),
    };
    let made =
        client.create_webhook(&request).await.while_trying(&format!("create the webhook {}", args.name))?;
    printer.done(&made, format!("webhook/{}", args.name), || made.secret.clone())?;
    printer.note("receivers verify signatures with this secret; it is not shown again");
    printer.note(&format!("next: brokkr webhook test {}", args.name));
    Ok(())
}

/// Reads the address from stdin for `-`: its path may be a secret, and flags are visible.
fn address(url: String) -> Result<String> {
    if url != "-" {
        return Ok(url);
    }
    let mut text = String::new();
    std::io::stdin()
        .take(LONGEST_URL)
        .read_to_string(&mut text)
        .map_err(|error| Failure::new(Exit::Usage, format!("cannot read the address from stdin: {error}")))?;
    Ok(text.trim().to_owned())
}

async fn set(args: SetWebhook, client: &Client, printer: Printer) -> Result {
    if args.url.is_none() && args.format.is_none() && args.filter.is_empty() {
        return Err(Failure::new(Exit::Usage, "no change was given").next("brokkr webhook set --help"));
    }
    let patch = WebhookPatch {
        url: args.url.map(address).transpose()?,
        format: args.format,
        filter: (!args.filter.is_empty()).then(|| args.filter.to_api()),
        enabled: None,
    };
    let action = format!("change the webhook {}", args.webhook);
    printer.show(&client.patch_webhook(args.webhook.as_str(), &patch).await.while_trying(&action)?)
}

async fn switch(webhook: &Name, on: bool, client: &Client, printer: Printer) -> Result {
    let patch = WebhookPatch { enabled: Some(on), ..WebhookPatch::default() };
    let action = format!("{} the webhook {webhook}", if on { "enable" } else { "disable" });
    let webhook = client.patch_webhook(webhook.as_str(), &patch).await.while_trying(&action)?;
    printer.done(&webhook, format!("webhook/{}", webhook.name), || {
        format!("webhook {} is {}", webhook.name, if webhook.enabled { "enabled" } else { "disabled" })
    })
}

async fn delete(webhook: &Name, yes: bool, client: &Client, printer: Printer) -> Result {
    let name = webhook.as_str();
    if !yes {
        confirm(&format!("deleting the webhook {name}"), name, printer).await?;
    }
    client.delete_webhook(name).await.while_trying(&format!("delete the webhook {name}"))?;
    let document = serde_json::json!({"name": name, "deleted": true});
    printer.done(&document, format!("webhook/{name}"), || format!("webhook {name} is deleted"))
}

async fn rotate(args: RotateWebhookSecret, client: &Client, printer: Printer) -> Result {
    let overlap_seconds = if args.overlap.is_zero() { 0 } else { seconds(args.overlap)? };
    let request = RotateSecret { overlap_seconds: Some(overlap_seconds) };
    let name = args.webhook.as_str();
    let made = client
        .rotate_webhook_secret(name, &request)
        .await
        .while_trying(&format!("rotate the secret of the webhook {name}"))?;
    printer.done(&made, format!("webhook/{name}"), || made.secret.clone())?;
    printer.note(&format!(
        "the secret is not shown again; messages are also signed with the old one for another {}",
        humantime::format_duration(args.overlap)
    ));
    Ok(())
}

async fn test(webhook: &Name, client: &Client, printer: Printer) -> Result<Outcome> {
    let request = client.test_webhook(webhook.as_str());
    let result = printer.with_spinner("waiting for the receiver", request).await;
    let result = result.while_trying(&format!("test the webhook {webhook}"))?;
    printer.done(&result, format!("webhook/{webhook}"), || {
        let verdict = if result.delivered { "delivered" } else { "not delivered" };
        format!("webhook {webhook}: {verdict}, {}", attempt(&result))
    })?;
    Ok(if result.delivered { Outcome::Success } else { Outcome::Negative })
}

async fn deliveries(args: Deliveries, client: &Client, printer: Printer) -> Result {
    let page = PageQuery { limit: Some(args.limit), after: None };
    let action = format!("list the messages to the webhook {}", args.webhook);
    let page = client.deliveries(args.webhook.as_str(), args.state, &page).await.while_trying(&action)?;
    printer.show(&page)?;
    if page.next.is_some() && printer.is_for_people() {
        printer.note("older messages are not shown; use --limit");
    }
    Ok(())
}

async fn resend(webhook: &Name, delivery: DeliveryId, client: &Client, printer: Printer) -> Result {
    client
        .resend_delivery(webhook.as_str(), delivery)
        .await
        .while_trying(&format!("resend {delivery} to the webhook {webhook}"))?;
    let document = serde_json::json!({"id": delivery, "resent": true});
    printer.done(&document, format!("delivery/{delivery}"), || format!("{delivery} will be sent again"))
}

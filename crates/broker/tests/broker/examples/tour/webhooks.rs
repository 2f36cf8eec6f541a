//! A webhook receives messages about the stack.

use anyhow::Result;
use brokkr_api::page::Page;
use brokkr_api::webhooks::{Delivery, DeliveryState};
use brokkr_testkit::{Attempt, eventually};
use reqwest::Method;
use serde_json::json;

use super::{SOON, Tour, manifest, submit};
use crate::harness::Caller;

pub async fn walk(tour: &Tour, owner: &Caller) -> Result<()> {
    let filter = json!({ "stacks": ["web"], "events": ["deployment_object.submitted", "alert.opened"] });
    let wanted = json!({ "name": "chat", "url": tour.receiver.url, "filter": filter });
    tour.post(owner, "webhooks", wanted).await?;
    tour.get(owner, "webhooks").await?;
    tour.get(owner, "webhooks/chat").await?;
    let filter = json!({ "stacks": ["web"] });
    tour.patch(owner, "webhooks/chat", json!({ "filter": filter })).await?;
    tour.recorder.ask(owner.request(Method::POST, "webhooks/chat/test")).await?;
    submit(owner, "web", &manifest("web", "1.5.1")).await?;
    let sent = delivered(owner).await?;
    tour.get(owner, "webhooks/chat/deliveries").await?;
    let resend = format!("webhooks/chat/deliveries/{}/resend", sent.id);
    tour.recorder.ask(owner.request(Method::POST, &resend)).await?;
    // The ping, the message, and the message once more.
    tour.receiver.got(3).await?;
    delivered(owner).await?;
    tour.post(owner, "webhooks/chat/rotate-secret", json!({ "overlap_seconds": 3600 })).await?;
    tour.delete(owner, "webhooks/chat").await?;
    Ok(())
}

async fn delivered(owner: &Caller) -> Result<Delivery> {
    eventually(SOON, "the message to be delivered", async || {
        match owner.get_json::<Page<Delivery>>("webhooks/chat/deliveries").await {
            Ok(page) => match page.items.into_iter().next() {
                Some(newest) if newest.state == DeliveryState::Delivered => Attempt::Done(newest),
                other => Attempt::NotYet(format!("{other:?}")),
            },
            Err(error) => Attempt::NotYet(format!("{error:#}")),
        }
    })
    .await
}

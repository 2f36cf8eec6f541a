//! Controls for tests that measure time, in the same run and on the same servers.

use std::sync::Arc;

use brokkr_testkit::Bystander;
use reqwest::Method;
use serde_json::json;

use crate::harness::{Harness, INDEX_DEADLINE, position};

impl Harness {
    /// Repeats a request that only reads.
    pub fn reading_bystander(&self) -> Bystander {
        let admin = self.admin.without_waiting();
        Bystander::start(move || {
            let request = admin.request(Method::GET, "whoami");
            async move { drop(request.send().await) }
        })
    }

    /// Repeats a write that affects no agent, and waits until it is in the index: other tests on the same PostgreSQL delay it
    /// as they delay any other write.
    pub fn writing_bystander(&self) -> Bystander {
        let (admin, broker) = (self.admin.without_waiting(), Arc::clone(&self.server.broker));
        let mut count = 0;
        Bystander::start(move || {
            count += 1;
            let labels = json!({ "labels": { "count": count.to_string() } });
            let request = admin.request(Method::PUT, "stacks/bystander").json(&labels);
            let broker = Arc::clone(&broker);
            async move {
                let Ok(answer) = request.send().await else { return };
                if let Some(written) = position(&answer) {
                    broker.index.reached(written.position, INDEX_DEADLINE).await;
                }
            }
        })
    }
}

//! Fields that need a capability are sent only to a broker that announced it.

use brokkr_api::AgentId;
use brokkr_api::reason::Reason;
use brokkr_api::report::{Report, ReportBatch};
use brokkr_client::Client;
use serde_json::{Value, json};

use crate::scripted::{Scripted, answer};

fn batch() -> ReportBatch {
    let mut report: Report = serde_json::from_value(json!({
        "id": "0190b5a4-0000-7000-8000-000000000001", "stack_id": "0190b5a4-0000-7000-8000-000000000002",
        "sequence_id": 7, "transition": "blocked", "at": "2026-01-01T00:00:00Z",
    }))
    .unwrap();
    report.reason = Reason::PruneNeedsApproval { delete: 60, total: 100 };
    report.message = report.reason.message();
    ReportBatch { reports: vec![report] }
}

#[tokio::test]
async fn details_of_reasons_are_sent_only_to_a_broker_that_reads_them() {
    let body = r#"{"accepted":[],"duplicates":[]}"#;
    let json_type = ("content-type", "application/json");
    let silent = answer("200 OK", &[json_type], body);
    let announcing =
        answer("200 OK", &[json_type, ("brokkr-capabilities", "time-travel,reason-details")], body);
    let broker = Scripted::start(vec![silent, announcing]).await;
    let client = Client::builder(broker.url.clone()).build().unwrap();
    for _ in 0..3 {
        client.report(AgentId::generate(), &batch()).await.unwrap();
    }
    let details: Vec<Option<Value>> = broker
        .asked()
        .iter()
        .map(|request| {
            let sent: Value = serde_json::from_str(request.split("\r\n\r\n").nth(1).unwrap()).unwrap();
            assert_eq!(sent["reports"][0]["reason"], "PruneNeedsApproval");
            sent["reports"][0].get("details").cloned()
        })
        .collect();
    assert_eq!(details, [None, None, Some(json!({"delete": 60, "total": 100}))]);
}

//! A client reads its own writes from any replica.

use brokkr_api::stacks::PutStack;
use brokkr_client::Client;

use crate::scripted::{Scripted, answer, header};

const POSITION: &str = "1.42.7.000102030405060708090a0b0c0d0e0f";
const STACK: &str = r#"{"project":"default","id":"0190b5a4-0000-7000-8000-000000000001","name":"web","labels":{},"annotations":{},
"targets":{},"sequence_id":null,"created_at":"2026-01-01T00:00:00Z","deleted_at":null}"#;

#[tokio::test]
async fn a_read_after_a_write_requires_at_least_the_position_of_the_write() {
    let stack =
        answer("200 OK", &[("content-type", "application/json"), ("brokkr-position", POSITION)], STACK);
    let broker = Scripted::start(vec![stack]).await;
    let client = Client::builder(broker.url.clone()).build().unwrap();
    client.stack("web").await.unwrap();
    client.put_stack("web", &PutStack::default()).await.unwrap();
    client.stack("web").await.unwrap();
    let positions: Vec<_> = broker.asked().iter().map(|request| header(request, "brokkr-position")).collect();
    assert_eq!(positions, [None, None, Some(POSITION.to_owned())]);
}

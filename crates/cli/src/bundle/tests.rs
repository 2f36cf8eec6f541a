//! The contents of an archive.

use std::collections::BTreeMap;
use std::io::Read as _;

use brokkr_api::Labels;
use brokkr_api::reason::Reason;
use brokkr_api::report::Transition;
use brokkr_api::status::{ErrorExample, ErrorGroup};
use flate2::read::GzDecoder;

use super::*;
use crate::preflight::{FetchError, Fleet, WebhookHealth};
use crate::view::samples::{agent, event, now, stack};
use crate::view::whole;

/// A value that must not be in the archive.
const HIDDEN: &str = "hunter2";

fn data() -> BundleData {
    let not_allowed = || FetchError::NotAllowed { why: "requires the role admin".into() };
    let example = ErrorExample {
        stack_id: crate::view::samples::STACK.parse().unwrap(),
        stack_name: "web".into(),
        agent_id: crate::view::samples::AGENT.parse().unwrap(),
        agent_name: "eu-1".into(),
        sequence_id: brokkr_api::SequenceId(42),
        message: format!("Invalid value: {HIDDEN}").into(),
        objects: Vec::new(),
    };
    let group = ErrorGroup {
        reason: Reason::Invalid { fields: Vec::new() },
        message: "Invalid value: …".into(),
        count: 1,
        stacks: 1,
        sequence_id: brokkr_api::SequenceId(42),
        examples: vec![example],
    };
    let mut failed = event(Transition::Failed, 3);
    failed.message = HIDDEN.into();
    failed.objects.iter_mut().for_each(|note| note.message = HIDDEN.into());
    let noted = Labels::from([("note".to_owned(), HIDDEN.to_owned())]);
    let mut agent = agent("eu-1");
    agent.annotations = noted.clone();
    let mut stack = stack("web", Some(42));
    stack.annotations = noted;
    let agents = Page { next: Some("eu-1".into()), ..whole(vec![agent.into()]) };
    BundleData {
        preflight: PreflightData {
            server: "https://brokkr.example/".into(),
            version: "0.1.0".into(),
            reached: Ok(()),
            caller: Err(not_allowed()),
            replicas: Vec::new(),
            system: Err(not_allowed()),
            fleet: Ok(Fleet::default()),
            pending_deletions: Ok(Vec::new()),
            errors: Ok(vec![group]),
            tokens: Err(not_allowed()),
            hooks: Ok(vec![WebhookHealth {
                name: "ops".into(),
                disabled_because: None,
                dead: 1,
                more: false,
            }]),
            audit: Err(not_allowed()),
        },
        proxy: None,
        agents: Ok(agents),
        stacks: Ok(whole(vec![BundledStack::new(stack, None)])),
        events: Ok(whole(vec![failed])),
        audit: Err(not_allowed()),
        metrics: vec![
            ("http://broker-0:8781".into(), Ok("brokkr_on_hold 0\n".into())),
            ("http://broker-1:8781".into(), Err(FetchError::Failed { why: "refused".into(), next: None })),
        ],
    }
}

#[test]
fn an_archive_contains_the_data_and_lists_what_is_missing() {
    let (files, missing) = files(&data(), now());
    let bytes = packed(&files, now()).unwrap();
    let mut found = BTreeMap::new();
    for entry in tar::Archive::new(GzDecoder::new(bytes.as_slice())).entries().unwrap() {
        let mut entry = entry.unwrap();
        assert_eq!(entry.header().mode().unwrap(), 0o600);
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        found.insert(entry.path().unwrap().display().to_string(), text);
    }
    let names: Vec<&str> = found.keys().map(|name| name.strip_prefix("brokkr-support/").unwrap()).collect();
    assert_eq!(
        names,
        [
            "README.txt",
            "agents.json",
            "context.json",
            "errors.json",
            "events.json",
            "metrics/http___broker_0_8781.txt",
            "missing.json",
            "preflight.json",
            "stacks.json",
            "versions.json",
            "webhooks.json",
        ]
    );
    let reasons: Vec<(&str, &str)> =
        missing.iter().map(|missing| (missing.what.as_str(), missing.why.as_str())).collect();
    assert_eq!(
        reasons,
        [
            ("system.json", "not allowed: requires the role admin"),
            ("agents.json", "truncated after 1"),
            ("audit.json", "not allowed: requires the role admin"),
            ("metrics/http___broker_1_8781.txt", "refused"),
        ]
    );
    assert!(found["brokkr-support/missing.json"].contains("requires the role admin"));
    assert!(found["brokkr-support/errors.json"].contains("Invalid value: …"));
}

#[test]
fn nothing_that_may_contain_a_secret_is_in_it() {
    let (files, _) = files(&data(), now());
    for file in files {
        assert!(!file.text.contains(HIDDEN), "{}: {}", file.name, file.text);
    }
}

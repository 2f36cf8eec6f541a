//! Manifests with the same meaning have the same digest, and others do not.

use std::collections::BTreeMap;

use brokkr_manifest::{Budget, Manifest, checksum, parse};
use proptest::prelude::*;
use serde_json::json;

fn read(text: &str) -> Manifest {
    parse(text.as_bytes(), &Budget::default()).unwrap()
}

#[test]
fn layout_and_comments_change_the_checksum_but_not_the_digest() {
    let block =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m # why\ndata:\n  b: x\n  a: 'y'\nstatus: {}\n";
    let flow = r#"{"data": {"a": "y", "b": "x"}, "kind": "ConfigMap", "metadata": {"name": "m"}, "apiVersion": "v1"}"#;
    assert_ne!(checksum(block.as_bytes()), checksum(flow.as_bytes()));
    assert_eq!(read(block).digest(), read(flow).digest());
    assert_eq!(read(block).objects[0].digest, read(flow).objects[0].digest);
    assert_ne!(read(block).digest(), read(&flow.replace('y', "z")).digest());
}

#[test]
fn string_data_and_data_of_a_secret_are_the_same() {
    let secret = |data: &str| format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n{data}\n");
    let plain = read(&secret("stringData: {password: hunter2}"));
    let encoded = read(&secret("data: {password: aHVudGVyMg==}"));
    assert_eq!(plain.digest(), encoded.digest());
    assert_eq!(plain.objects, encoded.objects);
}

#[test]
fn the_digest_is_sha256_of_the_canonical_array() {
    let manifest = read("{apiVersion: v1, kind: ConfigMap, metadata: {name: m}}");
    let written = br#"[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}]"#;
    assert_eq!(manifest.digest(), checksum(written));
    assert_eq!(manifest.objects[0].digest, checksum(&written[1..written.len() - 1]));
}

/// Generates documents with distinct names, and the same documents in another order.
fn documents() -> impl Strategy<Value = (Vec<String>, Vec<String>)> {
    let data = proptest::collection::btree_map("[a-z]{1,6}", "\\PC{0,12}", 0..4);
    let named = proptest::collection::btree_map("[a-z]{1,8}", data, 1..12);
    named
        .prop_map(|named: BTreeMap<String, BTreeMap<String, String>>| {
            named
                .into_iter()
                .map(|(name, data)| {
                    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data }).to_string()
                })
                .collect::<Vec<_>>()
        })
        .prop_flat_map(|documents| (Just(documents.clone()), Just(documents).prop_shuffle()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_order_of_documents_does_not_change_the_digest((documents, shuffled) in documents()) {
        let (one, other) = (read(&documents.join("\n---\n")), read(&shuffled.join("\n---\n")));
        prop_assert_eq!(one.digest(), other.digest());
        let listed = format!("{{apiVersion: v1, kind: List, items: [{}]}}", shuffled.join(", "));
        prop_assert_eq!(one.digest(), read(&listed).digest());
    }

    #[test]
    fn a_parsed_body_parses_to_the_same_object((documents, _) in documents()) {
        for object in read(&documents.join("\n---\n")).objects {
            prop_assert_eq!(&read(&object.body.to_string()).objects[0], &object);
        }
    }

    #[test]
    fn no_input_makes_the_parser_panic(text in "[-a-z0-9:{}\\[\\]&*!|>'\"%@` \n#,?<~.]{0,200}", bytes in any::<Vec<u8>>()) {
        let _ = parse(text.as_bytes(), &Budget::default());
        let _ = parse(&bytes, &Budget::default());
    }
}

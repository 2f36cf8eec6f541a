//! Canonical JSON (keys sorted by bytes, no whitespace) and its digests.
//!
//! Keys are sorted here, because any crate in the build may enable the feature with which `serde_json` does
//! not sort its maps.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::Object;

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// Returns the checksum of a manifest exactly as it was submitted.
pub fn checksum(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

/// Returns the digest of one object in its normal form.
pub fn digest(body: &Value) -> Digest {
    checksum(&to_bytes(body))
}

/// Returns the digest of all objects as one canonical array, ordered by key.
pub fn digest_of_all(objects: &[Object]) -> Digest {
    let mut sorted: Vec<_> = objects.iter().map(|object| (object.identity.key(), object)).collect();
    sorted.sort_by(|left, right| left.0.cmp(&right.0));

    let mut hasher = Sha256::new();
    for (position, (_, object)) in sorted.into_iter().enumerate() {
        hasher.update(if position == 0 { b"[" } else { b"," });
        hasher.update(to_bytes(&object.body));
    }
    hasher.update(if objects.is_empty() { &b"[]"[..] } else { &b"]"[..] });
    hasher.finalize().into()
}

/// Returns a value as canonical JSON.
pub fn to_bytes(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                write(item, out);
            }
            out.push(b']');
        }
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_unstable_by(|left, right| left.0.as_bytes().cmp(right.0.as_bytes()));
            out.push(b'{');
            for (position, (key, field)) in sorted.into_iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                write_string(key, out);
                out.push(b':');
                write(field, out);
            }
            out.push(b'}');
        }
    }
}

/// Escapes only what JSON requires, so that every string has exactly one encoding.
fn write_string(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            control @ 0x00..0x20 => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(control >> 4)]);
                out.push(HEX[usize::from(control & 0x0f)]);
            }
            other => out.push(other),
        }
    }
    out.push(b'"');
}

/// Returns a digest as 64 lower-case hexadecimal digits.
pub fn to_hex(digest: &Digest) -> String {
    digest
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 0x0f])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

/// Parses 64 hexadecimal digits, in either case; returns `None` for anything else.
pub fn from_hex(text: &str) -> Option<Digest> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted_and_no_whitespace_is_written() {
        let value = json!({ "b": [1, true, null], "a": { "ü": "x\u{1}\"\n", "B": 1.5 } });
        assert_eq!(
            String::from_utf8(to_bytes(&value)).unwrap(),
            r#"{"a":{"B":1.5,"ü":"x\u0001\"\n"},"b":[1,true,null]}"#
        );
    }

    #[test]
    fn a_checksum_is_plain_sha256_of_the_bytes() {
        assert_eq!(
            to_hex(&checksum(b"abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    proptest! {
        #[test]
        fn a_canonical_string_parses_to_the_same_string(text in any::<String>()) {
            let bytes = to_bytes(&Value::String(text.clone()));
            prop_assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), Value::String(text));
        }

        #[test]
        fn only_64_hexadecimal_digits_are_a_digest(digest in any::<[u8; 32]>(), junk in "[0-9a-fg]{0,70}") {
            prop_assert_eq!(from_hex(&to_hex(&digest)), Some(digest));
            prop_assert_eq!(from_hex(&junk).is_some(), junk.len() == 64 && !junk.contains('g'));
        }
    }
}

//! Errors of a whole fleet, grouped: the same mistake reads the same once names, numbers and values are taken out.
//!
//! "Deployment.apps "web-7f9c" is invalid: spec.selector: immutable" on three agents is one group of three. What
//! is taken out: what is quoted, uids, digests, addresses and numbers. Words stay, so that people can read it.

use brokkr_api::report::{ObjectNote, Report};
use sha2::{Digest as _, Sha256};

/// Longer ones say the same at their start.
const LONGEST: usize = 240;
/// Bytes of the digest that is stored: enough that no two reasons of a fleet meet.
const KEY_BYTES: usize = 16;

/// Which group of errors a report belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grouped {
    pub key: Vec<u8>,
    pub reason: String,
    pub message: String,
}

/// The group of a report: by its first object that says what is wrong, else by what it says itself.
#[must_use]
pub fn grouped(report: &Report) -> Grouped {
    let tells = |note: &&ObjectNote| !note.reason.is_empty() || !note.message.is_empty();
    let (reason, message) = match report.objects.iter().find(tells) {
        // What an object says is nearer to the cause than the sentence around it.
        Some(note) if note.message.is_empty() => (&note.reason, &report.message),
        Some(note) => (&note.reason, &note.message),
        None => (&report.reason, &report.message),
    };
    let reason = normalised(if reason.is_empty() { &report.reason } else { reason });
    let message = normalised(message);
    let mut hash = Sha256::new();
    hash.update(reason.as_bytes());
    hash.update([0]);
    hash.update(message.as_bytes());
    Grouped { key: hash.finalize()[..KEY_BYTES].to_vec(), reason, message }
}

/// The text with everything taken out that differs from agent to agent.
#[must_use]
pub fn normalised(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut left = LONGEST;
    for word in unquoted(text).split_whitespace() {
        let word = plain(word);
        // The same thing twice in a row is a list: how long it is, differs.
        if words.last() == Some(&word) && word.contains('…') {
            continue;
        }
        let Some(rest) = left.checked_sub(word.chars().count() + 1) else { break };
        left = rest;
        words.push(word);
    }
    words.join(" ")
}

/// What is in quotes becomes `…`. A quote that is never closed, or that is inside a word, stays.
fn unquoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let (_, after) = rest.split_at(character.len_utf8());
        let opens = matches!(character, '"' | '\'' | '`')
            && !out.chars().next_back().is_some_and(|before| before.is_alphanumeric() || before == '…');
        if opens && let Some(end) = after.find(character) {
            out.push('…');
            rest = &after[end + character.len_utf8()..];
        } else {
            out.push(character);
            rest = after;
        }
    }
    out
}

/// One word, its variable parts replaced.
fn plain(word: &str) -> String {
    let is_edge = |character: char| !character.is_alphanumeric() && character != '…';
    let start = word.find(|character| !is_edge(character)).unwrap_or(0);
    let end = word
        .rfind(|character| !is_edge(character))
        .map_or(word.len(), |at| at + word[at..].chars().next().map_or(0, char::len_utf8));
    if start >= end {
        return word.to_owned();
    }
    let (before, core, after) = (&word[..start], &word[start..end], &word[end..]);
    format!("{before}{}{after}", core_of(core))
}

fn core_of(core: &str) -> String {
    // `apps/v1`, `v1beta1`: a version is a word.
    if is_version(core) || core.chars().all(|character| !character.is_ascii_digit()) {
        return squeezed(core);
    }
    // A path or address: part by part. A name with an id at its end: all of it differs.
    let mut out = String::new();
    let mut part = String::new();
    for character in core.chars() {
        if matches!(character, '/' | ':' | '=' | ',' | '(' | ')' | '[' | ']' | '{' | '}') {
            out.push_str(&part_of(&part));
            part.clear();
            out.push(character);
        } else {
            part.push(character);
        }
    }
    out.push_str(&part_of(&part));
    squeezed(&out)
}

fn part_of(part: &str) -> String {
    if part.is_empty() || is_version(part) || !part.chars().any(|character| character.is_ascii_digit()) {
        return part.to_owned();
    }
    "…".to_owned()
}

/// Never two of them beside each other.
fn squeezed(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character != '…' || !out.ends_with('…') {
            out.push(character);
        }
    }
    out
}

/// `v1`, `v2beta1`.
fn is_version(word: &str) -> bool {
    let Some(rest) = word.strip_prefix('v') else { return false };
    let digits = rest.trim_start_matches(|character: char| character.is_ascii_digit());
    if digits.len() == rest.len() || rest.len() - digits.len() > 2 {
        return false;
    }
    let level = digits.strip_prefix("alpha").or_else(|| digits.strip_prefix("beta"));
    digits.is_empty()
        || level.is_some_and(|number| number.len() <= 2 && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_differs_from_agent_to_agent_is_taken_out() {
        for (text, expected) in [
            (
                "Deployment.apps \"web-7f9c\" is invalid: spec.selector: field is immutable",
                "Deployment.apps … is invalid: spec.selector: field is immutable",
            ),
            ("2/3 replicas ready", "…/… replicas ready"),
            ("pod web-7f9c5d-x2k4z: exit code 137", "pod …: exit code …"),
            (
                "dial tcp 10.0.12.7:443: connect: connection refused",
                "dial tcp …:…: connect: connection refused",
            ),
            (
                "no matches for kind \"Widget\" in version \"shop.io/v1\"",
                "no matches for kind … in version …",
            ),
            ("uid 3f2a9c1e-77aa-4c1b-9d3e-000000000001 differs", "uid … differs"),
            ("the server could not find apps/v1beta1", "the server could not find apps/v1beta1"),
            ("it's the agent's own", "it's the agent's own"),
            ("sha256:9f86d081884c7d65 is not there", "…:… is not there"),
            ("", ""),
        ] {
            assert_eq!(normalised(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn doing_it_again_changes_nothing_and_the_end_is_bounded(text in "\\PC{0,600}") {
            let once = normalised(&text);
            prop_assert!(once.chars().count() <= LONGEST);
            prop_assert_eq!(normalised(&once), once);
        }

        #[test]
        fn texts_like_those_of_an_api_server_keep_their_form(
            text in "([a-z]{1,8}|\"[a-z0-9-]{0,9}\"|'[a-z]{1,4}|[0-9]{1,5}|[a-z]{2,5}-[a-f0-9]{5}|v1|[a-z/:=.,()…`]{1,6}| ){0,60}"
        ) {
            let once = normalised(&text);
            prop_assert_eq!(normalised(&once), once);
        }

        #[test]
        fn numbers_and_names_in_quotes_do_not_part_groups(first in 0u32..99_999, other in 0u32..99_999, name in "[a-z0-9-]{1,20}") {
            let text = |number: u32, name: &str| format!("pod \"{name}\": exit code {number} after {number}s");
            prop_assert_eq!(normalised(&text(first, &name)), normalised(&text(other, "x")));
        }
    }
}

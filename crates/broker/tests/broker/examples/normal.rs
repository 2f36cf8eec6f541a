//! Normalizes values that differ between runs of the tour: each id, time, digest and secret is replaced by a
//! value of a fixed sequence. A value has the same replacement in the whole tour, so that an id in one
//! response is found again in another.
//!
//! Ids and digests are numbered as they appear; times keep their order, a second apart. Times far in the future, such
//! as the expiry of a token, keep their distance.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brokkr_api::ids::Checksum;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use super::recorder::Exchange;

/// When every tour begins: 2026-01-15T09:00:00Z.
const START: i64 = 1_768_467_600;
/// A time later than its response by more than this is in the future: no part of the tour takes that long.
const FUTURE: SignedDuration = SignedDuration::from_secs(150);
/// Times in the future are rounded to this many seconds.
const STEP: i64 = 300;
/// The normalized position in the outbox.
const HORIZON: i64 = 1042;
/// As long as a real signature, and clearly not one.
const EXAMPLE_SIGNATURE: &str =
    "EXAMPLE0000000000000000000000000000000000000000000000000000000000000000000000000000000";

#[derive(Debug, Default)]
pub struct Normal {
    /// Values of this run and their replacements.
    given: Vec<(String, String)>,
    /// Times of this run and their replacements.
    times: BTreeMap<Timestamp, Timestamp>,
    /// Digests of submitted contents: they are the same in every run.
    contents: HashSet<String>,
    /// Ids of entries in the audit log.
    numbers: BTreeSet<i64>,
    ids: HashMap<Uuid, String>,
    digests: HashMap<String, String>,
    keys: HashMap<String, String>,
}

/// The sequence that a time belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    /// Before the tour: created with the database.
    Before,
    During,
    /// In the future: this many steps after the response in which the time first appeared.
    After(i64),
}

impl Normal {
    pub fn of(exchanges: &[Exchange], started: Timestamp, given: Vec<(String, String)>) -> Self {
        let mut normal = Self { given, ..Self::default() };
        let mut eras: BTreeMap<Timestamp, Era> = BTreeMap::new();
        for exchange in exchanges {
            let mut visit = |key: &str, value: &Value| {
                // When a view was computed is not in order with what it shows.
                if key == "as_of" {
                    return;
                }
                if let ("checksum" | "parsed_digest", Value::String(digest)) = (key, value) {
                    normal.contents.insert(digest.clone());
                }
                // Ids of upgrades are from a sequence of their own, and the same in every run.
                let is_audit = exchange.route.contains("/audit");
                if let ("id", Some(number), true) = (key, value.as_i64(), is_audit) {
                    normal.numbers.insert(number);
                }
                for (_, found) in value.as_str().map(finds).unwrap_or_default() {
                    if let Found::Time(time) = found {
                        let era = || era(time, started, exchange.at);
                        eras.entry(time).or_insert_with(era);
                    }
                }
            };
            for body in [&exchange.request, &exchange.answer].into_iter().flatten() {
                each("", body, &mut visit);
            }
        }
        let (mut before, mut during) = (START - 24 * 3600.., START..);
        for (time, era) in eras {
            let second = match era {
                Era::Before => before.next(),
                Era::During => during.next(),
                // Rounded to steps: some times are truncated to the second, so two texts of the same moment
                // may differ.
                Era::After(steps) => Some(START + steps * STEP),
            };
            normal.times.insert(time, at(second.unwrap_or(START)));
        }
        normal
    }

    /// Normalizes the value of a key.
    pub fn rewrite(&mut self, key: &str, value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.rewrite(key, item)),
            Value::Object(fields) => {
                fields.iter_mut().for_each(|(key, field)| self.rewrite(key, field));
            }
            Value::Number(number) => {
                let number = number.as_i64().unwrap_or_default();
                match key {
                    "millis" => *value = json!(12),
                    // The epoch is the current time in seconds.
                    "epoch" | "epoch_before" if number > 1_000_000_000 => *value = json!(START),
                    "id" if self.numbers.contains(&number) => {
                        *value = json!(self.numbers.range(..=number).count());
                    }
                    _ => {}
                }
            }
            Value::String(text) => {
                *text = match key {
                    "position" => format!("{START}.{HORIZON}"),
                    "as_of" => at(START).to_string(),
                    "public_key" | "old_public_key" => self.key(text),
                    "signature" | "old_signature" => EXAMPLE_SIGNATURE.to_owned(),
                    _ => self.text(text),
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (word, instead) in &self.given {
            text = text.replace(word, instead);
        }
        let mut made = String::new();
        let mut done = 0;
        for (range, found) in finds(&text) {
            made.push_str(&text[done..range.start]);
            done = range.end;
            let word = &text[range];
            made.push_str(&match found {
                Found::Time(time) => self.times.get(&time).copied().unwrap_or(time).to_string(),
                Found::Id(id) => self.id(id),
                Found::Digest if self.contents.contains(word) => word.to_owned(),
                Found::Digest => self.digest(word),
                Found::Secret(prefix) => secret(prefix, word),
                Found::Age => "last seen 3 s ago".to_owned(),
                Found::MessageId => format!("id: 1.{HORIZON}.7"),
            });
        }
        made + &text[done..]
    }

    fn id(&mut self, id: Uuid) -> String {
        let number = self.ids.len() + 1;
        self.ids.entry(id).or_insert_with(|| numbered(id, number)).clone()
    }

    fn digest(&mut self, digest: &str) -> String {
        let number = self.digests.len() + 1;
        let made = || Checksum::of(format!("digest {number}").as_bytes()).to_string();
        self.digests.entry(digest.to_owned()).or_insert_with(made).clone()
    }

    fn key(&mut self, key: &str) -> String {
        let number = self.keys.len() + 1;
        let made = || URL_SAFE_NO_PAD.encode(Checksum::of(format!("key {number}").as_bytes()).0);
        self.keys.entry(key.to_owned()).or_insert_with(made).clone()
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time of today")
}

fn era(time: Timestamp, started: Timestamp, answered: Timestamp) -> Era {
    let ahead = time.duration_since(answered);
    match () {
        () if time < started => Era::Before,
        () if ahead > FUTURE => Era::After((ahead.as_secs() + STEP / 2) / STEP),
        () => Era::During,
    }
}

/// Returns an id of the same version.
fn numbered(id: Uuid, number: usize) -> String {
    let millis = format!("{:012x}", START.unsigned_abs() * 1000);
    format!("{}-{}-{}000-8000-{number:012}", &millis[..8], &millis[8..], id.get_version_num())
}

/// Returns a value as long as a real secret and clearly not one.
fn secret(prefix: &str, word: &str) -> String {
    let padding = word.matches('=').count();
    let zeros = word.len() - prefix.len() - "EXAMPLE".len() - padding;
    format!("{prefix}EXAMPLE{}{}", "0".repeat(zeros), "=".repeat(padding))
}

fn each(key: &str, value: &Value, visit: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| each(key, item, visit)),
        Value::Object(fields) => fields.iter().for_each(|(key, field)| each(key, field, visit)),
        _ => visit(key, value),
    }
}

/// A part of a text that differs between runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Time(Timestamp),
    Id(Uuid),
    Digest,
    Secret(&'static str),
    /// How long ago an agent was seen.
    Age,
    /// The id of a message in a stream.
    MessageId,
}

fn finds(text: &str) -> Vec<(Range<usize>, Found)> {
    let (mut found, mut at, mut inside) = (Vec::new(), 0, false);
    while let Some(next) = text[at..].chars().next() {
        let begins = if inside { None } else { begin(&text[at..]) };
        if let Some((length, what)) = begins {
            found.push((at..at + length, what));
            at += length;
        } else {
            at += next.len_utf8();
        }
        inside = begins.is_none() && next.is_alphanumeric();
    }
    found
}

/// Returns the varying value that the text begins with, and its length.
fn begin(text: &str) -> Option<(usize, Found)> {
    let run = |allowed: fn(char) -> bool| text.find(|c| !allowed(c)).unwrap_or(text.len());
    if let Some(id) = text.get(..36).and_then(|word| Uuid::try_parse(word).ok()) {
        return Some((36, Found::Id(id)));
    }
    if run(|c| c.is_ascii_hexdigit()) == 64 {
        return Some((64, Found::Digest));
    }
    if let Some(length) = text.find('Z').filter(|end| (19..30).contains(end)).map(|end| end + 1)
        && let Some(time) = text.get(..length).and_then(|word| word.parse::<Timestamp>().ok())
    {
        // The database stores microseconds.
        return Timestamp::from_microsecond(time.as_microsecond())
            .ok()
            .map(|time| (length, Found::Time(time)));
    }
    for prefix in ["brk_", "brj_", "brs_", "whsec_"] {
        let length = run(|c| c.is_ascii_alphanumeric() || "_-+/=".contains(c));
        if text.starts_with(prefix) && length >= 40 {
            return Some((length, Found::Secret(prefix)));
        }
    }
    if text.starts_with("last seen ") {
        return text.find(" ago").map(|end| (end + " ago".len(), Found::Age));
    }
    let length = text.strip_prefix("id: ")?.find('\n')?;
    Some(("id: ".len() + length, Found::MessageId))
}

#[test]
fn varying_values_are_found_in_any_text() {
    let id = Uuid::now_v7();
    let text =
        format!("token:{id} until 2026-01-15T09:00:00.123456789Z, brk_{}: /stacks/{id}", "x".repeat(49));
    let words: Vec<(&str, Found)> = finds(&text).into_iter().map(|(at, found)| (&text[at], found)).collect();
    let time = Found::Time("2026-01-15T09:00:00.123456Z".parse().unwrap());
    let token = format!("brk_{}", "x".repeat(49));
    let id_text = id.to_string();
    assert_eq!(
        words,
        [
            (id_text.as_str(), Found::Id(id)),
            ("2026-01-15T09:00:00.123456789Z", time),
            (token.as_str(), Found::Secret("brk_")),
            (id_text.as_str(), Found::Id(id)),
        ]
    );
    assert_eq!(secret("brk_", &token), format!("brk_EXAMPLE{}", "0".repeat(42)));
    assert!(finds("name: web, image: shop/web:1.4.0, 2026").is_empty());
}

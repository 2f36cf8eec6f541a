//! Label selectors: parsing, printing and parsing again gives the same selector.
#![no_main]

use brokkr_api::{Labels, Selector};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (selector, labels) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(read) = selector.parse::<Selector>() else { return };
    let again: Selector = read.to_string().parse().expect("it was written by us");
    assert_eq!(again.to_string(), read.to_string());
    let labels: Labels = labels
        .split(',')
        .filter_map(|label| label.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    assert_eq!(read.matches(&labels), again.matches(&labels));
});

//! Request heads: the broker takes a request only if hyper sees exactly the same one, and the result does not depend on how
//! the bytes are split into packets.
#![no_main]

#[path = "../../crates/broker/tests/broker/http_heads/reference.rs"]
mod reference;

use brokkr_broker::listener::head::{Head, parse_head};
use libfuzzer_sys::fuzz_target;
use reference::agrees_with_hyper;

fn kind(head: &Head) -> (u8, usize) {
    match head {
        Head::Incomplete => (0, 0),
        Head::Poll(_, used) => (1, *used),
        Head::Http2 => (2, 0),
        Head::Other => (3, 0),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let whole = parse_head(bytes, 0);
    assert_eq!(agrees_with_hyper(bytes), matches!(whole, Head::Poll(..)));
    // As if it had arrived in two packets.
    let first = bytes.len() / 2;
    if matches!(parse_head(&bytes[..first], 0), Head::Incomplete) {
        assert_eq!(kind(&parse_head(bytes, first)), kind(&whole));
    }
});

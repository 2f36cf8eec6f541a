//! Request heads: the result does not depend on how they are split into packets.
#![no_main]

use brokkr_broker::listener::head::{Head, parse_head};
use libfuzzer_sys::fuzz_target;

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
    if let Head::Poll(request, used) = &whole {
        assert!(*used <= bytes.len() && bytes.starts_with(b"GET "));
        assert!(request.uri().path().ends_with("/target-state"));
        assert!(!request.headers().contains_key("content-length"));
    }
    // As if it had arrived in two packets.
    let first = bytes.len() / 2;
    if matches!(parse_head(&bytes[..first], 0), Head::Incomplete) {
        assert_eq!(kind(&parse_head(bytes, first)), kind(&whole));
    }
});

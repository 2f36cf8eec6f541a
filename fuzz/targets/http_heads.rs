//! Request heads: the result does not depend on how they are split into packets.
#![no_main]

use brokkr_broker::listener::head::{Visit, visit};
use libfuzzer_sys::fuzz_target;

fn kind(visit: &Visit) -> (u8, usize) {
    match visit {
        Visit::Incomplete => (0, 0),
        Visit::Poll(_, used) => (1, *used),
        Visit::Http2 => (2, 0),
        Visit::Other => (3, 0),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let whole = visit(bytes, 0);
    if let Visit::Poll(request, used) = &whole {
        assert!(*used <= bytes.len() && bytes.starts_with(b"GET "));
        assert!(request.uri().path().ends_with("/target-state"));
        assert!(!request.headers().contains_key("content-length"));
    }
// As if it had arrived in two packets.
    let first = bytes.len() / 2;
    if matches!(visit(&bytes[..first], 0), Visit::Incomplete) {
        assert_eq!(kind(&visit(bytes, first)), kind(&whole));
    }
});

//! The broker's own parser of heads takes a request only if hyper sees exactly the same one.
//!
//! The fuzz target `http_heads` searches for exceptions; here are a few thousand inputs near a poll, always the same.

mod reference;

use std::cell::Cell;

use brokkr_broker::listener::head::HEAD_BYTES;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use reference::agrees_with_hyper;

const CASES: u32 = 6000;

const PATH: &str = "/api/v1/agents/0198c0de-1111-7000-8000-000000000000/target-state";

fn request_line() -> impl Strategy<Value = String> {
    let odd = [
        "GET  PATH HTTP/1.1",
        "GET PATH  HTTP/1.1",
        "GET PATH HTTP/1.1 ",
        "GET\tPATH HTTP/1.1",
        "GET PATH HTTP/1.0",
        "GET PATH HTTP/2.0",
        "GET PATH",
        "get PATH HTTP/1.1",
        "HEAD PATH HTTP/1.1",
        "GET http://broker PATH HTTP/1.1",
        "GET http://brokerPATH HTTP/1.1",
        "GET PATH?wait=1 HTTP/1.1",
        "GET PATH#top HTTP/1.1",
        "GET PATH/ HTTP/1.1",
        "GET PATH%20 HTTP/1.1",
        "GET /PATH HTTP/1.1",
        "GET PATH HTTP/1.1\r\n",
        "\r\nGET PATH HTTP/1.1",
    ];
    prop_oneof![12 => Just("GET PATH HTTP/1.1"), 1 => select(odd.to_vec())]
        .prop_map(|line| line.replace("PATH", PATH))
}

fn header() -> impl Strategy<Value = String> {
    let usual = [
        "accept: application/vnd.brokkr.target-state.v1+json",
        "Prefer: wait=30",
        "if-none-match: \"abc\"",
        "authorization: Bearer a.b.c",
        "x-empty:",
        "x-spaces:  \t a b \t ",
        "x-twice: one",
        "x-twice: two",
        "x-latin: \u{e9}",
        "cookie: a=b; c=d",
        "!#$%&'*+-.^_`|~: token",
    ];
    let odd = [
        "content-length: 0",
        "content-length: 5",
        "Content-Length: 5, 5",
        "content-length: +5",
        "content-length : 5",
        "transfer-encoding: chunked",
        "Transfer-Encoding: identity",
        "transfer-encoding : chunked",
        "connection: close",
        "Connection: keep-alive",
        "connection: upgrade",
        "upgrade: h2c",
        "expect: 100-continue",
        "te: trailers",
        "host: again",
        ": no name",
        "no colon",
        " folded: yes",
        "\tfolded",
        "sp ace: a",
        "x-null: a\0b",
        "x-delete: \u{7f}",
        "x-return: a\rb",
        "x-feed: a\nb",
    ];
    prop_oneof![8 => select(usual.to_vec()), 1 => select(odd.to_vec())].prop_map(str::to_owned)
}

fn line_end() -> impl Strategy<Value = &'static str> {
    prop_oneof![60 => Just("\r\n"), 1 => select(&["\n", "\r", "\r\r\n", "\n\r\n", " \r\n", ""][..])]
}

/// A request near a poll: a few odd lines, line ends and bytes, and something that follows.
fn input() -> impl Strategy<Value = Vec<u8>> {
    let host = prop_oneof![20 => Just("host: broker".to_owned()), 1 => header()];
    let lines = (request_line(), host, prop::collection::vec(header(), 0..12));
    let lines = lines.prop_map(|(first, host, others)| [vec![first, host], others].concat());
    // Nearly all are small; one may be just at a limit.
    let padding = prop_oneof![
        30 => Just(0),
        1 => HEAD_BYTES - 1200..HEAD_BYTES + 200,
    ];
    let ends = prop::collection::vec(line_end(), 16);
    let changed = prop::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u8>()));
    let follows = select(vec!["", "GET / HTTP/1.1\r\n\r\n", "hello", "0\r\n\r\n", "\r\n", "\n"]);
    (lines, padding, ends, changed, follows).prop_map(|(mut lines, padding, ends, changed, follows)| {
        if padding > 0 {
            lines.push(format!("x-padding: {}", "x".repeat(padding)));
        }
        lines.push(String::new());
        let mut bytes: Vec<u8> = lines
            .iter()
            .zip(ends)
            .flat_map(|(line, end)| [line.as_bytes(), end.as_bytes()].concat())
            .collect();
        if let Some((index, byte)) = changed {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        bytes.extend_from_slice(follows.as_bytes());
        bytes
    })
}

#[test]
fn the_broker_takes_only_requests_that_hyper_sees_alike() {
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let taken = Cell::new(0);
    let result = runner.run(&input(), |bytes| {
        taken.set(taken.get() + u32::from(agrees_with_hyper(&bytes)));
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, bytes)) => {
            panic!("{reason}\nfor {:?}", String::from_utf8_lossy(&bytes))
        }
        Err(other) => panic!("{other}"),
    }
    let taken = taken.get();
    assert!((CASES / 10..CASES * 9 / 10).contains(&taken), "{taken} of {CASES} test little");
}

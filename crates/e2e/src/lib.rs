//! End-to-end tests and the fault matrix. This library holds only what several suites share.
//!
//! ```text
//! tests/e2e/              one promise per test: broker, agents and command line as real processes
//! tests/real/             on real nodes: what only real Pods show, and Brokkr itself in Pods
//! tests/console/          the web console in a real browser
//! tests/faults/           the agent's fault matrix, through fault proxies
//! tests/broker_faults/    the broker's fault matrix, on two replicas
//! tests/agent_storage.rs  what the agent stores in its cluster, on a real API server
//! tests/simulator.rs      the simulated API server, compared with the real one
//! bugs/                   deliberate bugs as patch files; each names the tests that must find it
//! ```

/// Returns whether rows of the fault matrix run in full, however long that takes (`BROKKR_FAULTS=all`).
pub fn runs_in_full() -> bool {
    std::env::var("BROKKR_FAULTS").is_ok_and(|value| value == "all")
}

/// Returns the number of rounds of a row: `full` if rows run in full, else `sample`.
pub fn rounds(sample: usize, full: usize) -> usize {
    if runs_in_full() { full } else { sample }
}

/// Returns whether a text is as a page shows it. `…` in the page matches any text.
#[must_use]
pub fn fits(pattern: &str, text: &str) -> bool {
    let mut rest = text;
    let pieces: Vec<&str> = pattern.split('…').collect();
    for (index, piece) in pieces.iter().enumerate() {
        let found = match index {
            0 => rest.starts_with(piece).then_some(0),
            last if last + 1 == pieces.len() && !piece.is_empty() => {
                rest.ends_with(piece).then(|| rest.len() - piece.len())
            }
            _ => rest.find(piece),
        };
        let Some(at) = found else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.is_empty() || pattern.ends_with('…')
}

//! End-to-end tests and the fault matrix. This library holds only what several suites share.
//!
//! ```text
//! tests/e2e/              one promise per test: broker, agents and command line as real processes
//! tests/real/             on real nodes: what only real Pods show, and Brokkr itself in Pods
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

//! The web console in a real browser: Playwright drives Debian's Chromium against a broker with TLS, PostgreSQL and two clusters with
//! real Pods. The specs are in `console/e2e`; this suite starts what they look at, and stops it for them.
//!
//! ```text
//! lab.rs      two clusters, a broker behind a proxy, stacks in several states, a token for each role
//! screens.rs  which specs run here, and which in .ci/nightly
//! ```

mod lab;
mod screens;

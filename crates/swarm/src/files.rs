//! The limit of open files, which limits connections.

use anyhow::{Context as _, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// More than a fleet on one machine needs.
const PLENTY: u64 = 1_000_000;

/// Raises the limit for this process and its future children as far as allowed, and returns it.
pub fn raise() -> Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the limit of open files")?;
    if soft.max(hard) < PLENTY && setrlimit(Resource::RLIMIT_NOFILE, PLENTY, PLENTY).is_ok() {
        return Ok(PLENTY);
    }
    // Only the administrator of the machine may raise the hard limit.
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("cannot raise the limit of open files")?;
    }
    Ok(hard)
}

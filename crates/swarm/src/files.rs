//! The limit of open files: a connection is one.

use anyhow::{Context as _, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// More than a fleet on one machine needs.
const PLENTY: u64 = 1_000_000;

/// Raises the limit for this process and the children that it starts from now on, as far as is allowed; answers it.
pub fn raise() -> Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("read the limit of open files")?;
    if soft.max(hard) < PLENTY && setrlimit(Resource::RLIMIT_NOFILE, PLENTY, PLENTY).is_ok() {
        return Ok(PLENTY);
    }
    // Only the administrator of the machine may raise the hard limit.
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("raise the limit of open files")?;
    }
    Ok(hard)
}

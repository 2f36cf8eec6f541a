//! Free ports on the loopback address, leased so that tests running at the same time never draw the same.
//!
//! They are drawn from below the range that the kernel hands out to outgoing connections: an engine that is
//! killed and started again finds its port still free.

use std::fs::{self, File};
use std::net::TcpListener;

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;

const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// A port that nobody else in this machine's test runs will draw for as long as this lives.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lease: File,
}

impl Port {
    /// Draws a port that nobody leases and nobody listens on.
    pub fn free() -> Result<Self> {
        // Per user: nobody can lock the files of somebody else.
        let leases = std::env::temp_dir().join(format!("brokkr-ports-{}", Uid::effective()));
        fs::create_dir_all(&leases).context("cannot make the folder of port leases")?;
        for _ in 0..1_000 {
            let number = rand::random_range(RANGE);
            let lease = File::create(leases.join(number.to_string()))?;
            if lease.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", number)).is_ok() {
                return Ok(Self { number, _lease: lease });
            }
        }
        bail!("found no free port in {RANGE:?}")
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.number)
    }
}

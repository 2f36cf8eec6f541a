//! Free ports on the loopback address, leased so that two concurrent tests never use the same port.
//!
//! They are below the range that the kernel uses for outgoing connections, so that an engine that is killed and started
//! again finds its port free.

use std::fs::{self, File};
use std::net::TcpListener;

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;

const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// A port that no other test on this machine uses for as long as this value lives.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lease: File,
}

impl Port {
    /// Leases a free port.
    pub fn free() -> Result<Self> {
        // Per user, because a user cannot lock the files of another.
        let leases = std::env::temp_dir().join(format!("brokkr-ports-{}", Uid::effective()));
        fs::create_dir_all(&leases).context("cannot create the folder of port leases")?;
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

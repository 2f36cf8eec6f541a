//! A wrong clock for one process: a small preloaded library.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::process::{Launch, run};
use crate::scratch::Scratch;

const SOURCE: &str = include_str!("clock.c");
const COMPILE_TIMEOUT: Duration = Duration::from_secs(60);

/// A library compiled by this machine's C compiler. Processes that use it must not outlive it.
#[derive(Debug)]
pub struct Clock {
    library: PathBuf,
    _scratch: Scratch,
}

impl Clock {
    pub async fn make() -> Result<Self> {
        let scratch = Scratch::new("clock")?;
        let (source, library) = (scratch.write("clock.c", SOURCE)?, scratch.join("clock.so"));
        let compile =
            Launch::new("cc", "cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
        run(compile, COMPILE_TIMEOUT).await?.ok().context("a C compiler is needed")?;
        Ok(Self { library, _scratch: scratch })
    }

    /// Returns the environment that shifts a process's time of day by this many seconds.
    #[must_use]
    pub fn shifted(&self, seconds: i64) -> Vec<(String, String)> {
        vec![
            ("LD_PRELOAD".into(), self.library.display().to_string()),
            ("BROKKR_CLOCK_SHIFT".into(), seconds.to_string()),
        ]
    }
}

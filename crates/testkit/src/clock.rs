//! A wrong clock for one process: a small preloaded library.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::process::{Launch, run};
use crate::scratch::Scratch;

const SOURCE: &str = include_str!("clock.c");
/// The file with the shift of processes that the clock is set for while they run.
const SHIFT: &str = "shift";
const COMPILE_TIMEOUT: Duration = Duration::from_secs(60);

/// A library compiled by this machine's C compiler. Processes that use it must not outlive it.
#[derive(Debug)]
pub struct Clock {
    library: PathBuf,
    scratch: Scratch,
}

impl Clock {
    pub async fn make() -> Result<Self> {
        let scratch = Scratch::new("clock")?;
        let (source, library) = (scratch.write("clock.c", SOURCE)?, scratch.join("clock.so"));
        let compile =
            Launch::new("cc", "cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
        run(compile, COMPILE_TIMEOUT).await?.ok().context("a C compiler is needed")?;
        Ok(Self { library, scratch })
    }

    /// Returns the environment that shifts a process's time of day by this many seconds.
    #[must_use]
    pub fn shifted(&self, seconds: i64) -> Vec<(String, String)> {
        vec![
            ("LD_PRELOAD".into(), self.library.display().to_string()),
            ("BROKKR_CLOCK_SHIFT".into(), seconds.to_string()),
        ]
    }

    /// Returns the environment of processes that the clock is set for while they run, with [`Self::step`].
    pub fn steppable(&self) -> Result<Vec<(String, String)>> {
        let file = self.scratch.write(SHIFT, "0")?;
        Ok(vec![
            ("LD_PRELOAD".into(), self.library.display().to_string()),
            ("BROKKR_CLOCK_SHIFT".into(), file.display().to_string()),
        ])
    }

    /// Sets the clock of these processes: from now on, it differs by this many seconds from the real one.
    pub fn step(&self, seconds: i64) -> Result<()> {
        self.scratch.write(SHIFT, seconds.to_string()).map(|_| ())
    }
}

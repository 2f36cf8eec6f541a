//! Engines that all tests of a run share.
//!
//! A run has many processes (cargo-nextest starts one per test), so a separate process owns the engines: `cargo xtask test` and
//! `cargo xtask e2e` start them once, write their addresses to a file, and pass its path in [`VARIABLE`]. A test process
//! without such a file starts engines of its own, shares them among its tests, and stops them after the last one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::cluster::{self, Cluster};
use crate::postgres::{self, Postgres};

/// The environment variable with the path of the file.
pub const VARIABLE: &str = "BROKKR_TEST_ENGINES";

/// The addresses of the engines of this run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Directory {
    pub postgres: postgres::Facts,
    pub cluster: cluster::Facts,
    /// A cluster with real nodes, if the run has one.
    pub real_cluster: Option<cluster::Facts>,
}

impl Directory {
    pub fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, serde_json::to_vec_pretty(self)?)?;
        Ok(())
    }

    fn read() -> Result<Option<Self>> {
        let Some(path) = std::env::var_os(VARIABLE).map(PathBuf::from) else { return Ok(None) };
        let bytes = fs::read(&path).with_context(|| format!("{VARIABLE}: cannot read {}", path.display()))?;
        Ok(Some(serde_json::from_slice(&bytes)?))
    }
}

pub(crate) async fn postgres() -> Result<Arc<Postgres>> {
    static IN_USE: Mutex<Weak<Postgres>> = Mutex::const_new(Weak::new());
    let found = |directory: Directory| Ok(Some(Postgres::found(directory.postgres)));
    shared(&IN_USE, found, Postgres::start).await
}

pub(crate) async fn cluster() -> Result<Arc<Cluster>> {
    static IN_USE: Mutex<Weak<Cluster>> = Mutex::const_new(Weak::new());
    let found = |directory: Directory| Cluster::found(directory.cluster).map(Some);
    shared(&IN_USE, found, Cluster::with_workloads).await
}

pub(crate) async fn real_cluster() -> Result<Arc<Cluster>> {
    static IN_USE: Mutex<Weak<Cluster>> = Mutex::const_new(Weak::new());
    let found = |directory: Directory| directory.real_cluster.map(Cluster::found).transpose();
    shared(&IN_USE, found, || Cluster::with_real_nodes(1)).await
}

/// Returns the engine that is in use, or the one of the directory, or a new one.
async fn shared<T, Starting: Future<Output = Result<T>>>(
    in_use: &Mutex<Weak<T>>,
    found: impl FnOnce(Directory) -> Result<Option<T>>,
    start: impl FnOnce() -> Starting,
) -> Result<Arc<T>> {
    let mut in_use = in_use.lock().await;
    if let Some(engine) = in_use.upgrade() {
        return Ok(engine);
    }
    let found = match Directory::read()? {
        Some(directory) => found(directory)?,
        None => None,
    };
    let engine = Arc::new(match found {
        Some(engine) => engine,
        None => start().await?,
    });
    *in_use = Arc::downgrade(&engine);
    Ok(engine)
}

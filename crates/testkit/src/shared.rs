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
    let mut in_use = IN_USE.lock().await;
    if let Some(postgres) = in_use.upgrade() {
        return Ok(postgres);
    }
    let postgres = Arc::new(match Directory::read()? {
        Some(directory) => Postgres::found(directory.postgres),
        None => Postgres::start().await?,
    });
    *in_use = Arc::downgrade(&postgres);
    Ok(postgres)
}

pub(crate) async fn cluster() -> Result<Arc<Cluster>> {
    static IN_USE: Mutex<Weak<Cluster>> = Mutex::const_new(Weak::new());
    let mut in_use = IN_USE.lock().await;
    if let Some(cluster) = in_use.upgrade() {
        return Ok(cluster);
    }
    let cluster = Arc::new(match Directory::read()? {
        Some(directory) => Cluster::found(directory.cluster)?,
        None => Cluster::with_workloads().await?,
    });
    *in_use = Arc::downgrade(&cluster);
    Ok(cluster)
}

pub(crate) async fn real_cluster() -> Result<Arc<Cluster>> {
    static IN_USE: Mutex<Weak<Cluster>> = Mutex::const_new(Weak::new());
    let mut in_use = IN_USE.lock().await;
    if let Some(cluster) = in_use.upgrade() {
        return Ok(cluster);
    }
    let cluster = Arc::new(match Directory::read()?.and_then(|directory| directory.real_cluster) {
        Some(facts) => Cluster::found(facts)?,
        None => Cluster::with_real_nodes(1).await?,
    });
    *in_use = Arc::downgrade(&cluster);
    Ok(cluster)
}

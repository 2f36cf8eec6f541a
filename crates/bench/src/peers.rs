//! The peers: Flux's apply engine, and kubectl.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brokkr_testkit::process::run;
use brokkr_testkit::{Cluster, Launch};
use serde::Deserialize;

const DEADLINE: Duration = Duration::from_secs(900);

/// Flux's `ApplyAllStaged`, in the program `bench/flux`.
pub struct Flux {
    program: PathBuf,
}

#[derive(Deserialize)]
struct FluxResult {
    seconds: f64,
}

impl Flux {
    pub fn locate() -> Result<Self> {
        let program = brokkr_engines::locate_peer(&brokkr_engines::FLUX);
        Ok(Self { program: program.context("Flux's engine is built by `cargo xtask bench agent`")? })
    }

    /// Applies the file; returns the seconds that the engine took.
    pub async fn apply(&self, cluster: &Cluster, file: &Path, concurrency: usize) -> Result<f64> {
        let launch = Launch::new("flux-apply", &self.program)
            .flag("kubeconfig", cluster.kubeconfig())
            .flag("file", file)
            .flag("concurrency", concurrency.to_string());
        Ok(run(launch, DEADLINE).await?.ok()?.json::<FluxResult>()?.seconds)
    }
}

/// Runs `kubectl apply --server-side`; returns its seconds.
pub async fn kubectl_apply(cluster: &Cluster, file: &Path) -> Result<f64> {
    let started = Instant::now();
    let arguments = ["apply", "--server-side", "-f"].map(AsRef::as_ref);
    cluster.kubectl(arguments.into_iter().chain([file.as_os_str()])).await?.ok()?;
    Ok(started.elapsed().as_secs_f64())
}

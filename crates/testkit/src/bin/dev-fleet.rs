//! `dev-fleet` runs a complete Brokkr on this machine until Ctrl-C: PostgreSQL, a broker, and clusters with an agent each.
//! `cargo xtask dev` builds and runs it.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use brokkr_testkit::broker::policy_set;
use brokkr_testkit::cluster::kubeconfig;
use brokkr_testkit::{Agent, AgentOptions, Cluster, Fleet, Postgres, ShowLog, nodes, programs};
use clap::Parser;
use futures::future::try_join_all;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

/// Run PostgreSQL, a broker and clusters with agents until Ctrl-C.
#[derive(Parser)]
struct Args {
    /// Start this many clusters, each with an agent.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=20))]
    clusters: u32,
    /// Give each cluster this many real nodes, on which Pods really run, instead of a simulated one. Needs root.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=6))]
    real_nodes: u8,
    /// Write the settings to this folder, which is removed at the end.
    #[arg(long, default_value = "target/dev")]
    folder: PathBuf,
}

/// A cluster of the fleet and the agent in it.
struct Site {
    name: String,
    labels: [(&'static str, &'static str); 2],
    agent: Agent,
    cluster: Cluster,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let started = Instant::now();
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let settings = Settings::new(&args.folder)?;

    let running = tokio::select! {
        up = start(args.clusters, args.real_nodes.into()) => Some(up?),
        _ = interrupted.recv() => None,
        _ = terminated.recv() => None,
    };
    if let Some((fleet, sites)) = &running {
        settings.write(fleet, sites)?;
        print_welcome(&settings, fleet, sites, started);
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
    }
    eprintln!("\nStopping everything.");
    // Everything that was started is dropped here and ends.
    Ok(())
}

async fn start(clusters: u32, real_nodes: usize) -> Result<(Fleet, Vec<Site>)> {
    if let Some(obstacle) = nodes::obstacle().filter(|_| real_nodes > 0) {
        bail!(obstacle);
    }
    eprintln!("Starting PostgreSQL, a broker and {clusters} clusters …");
    let broker = async {
        let postgres = Arc::new(Postgres::start().await?);
        let fleet = Fleet::start_on(postgres, ShowLog::OnPanic).await?;
        // New versions begin on shop-1, and do not wait.
        let waves = json!([{ "match": "tier=canary", "size": "100%" }]);
        policy_set(&fleet.database().url(), &json!({ "waves": waves, "soak_seconds": 0 })).await?;
        Ok(fleet)
    };
    let clusters = try_join_all((0..clusters).map(async |_| match real_nodes {
        0 => Cluster::with_workloads().await,
        nodes => Cluster::with_real_nodes(nodes).await,
    }));
    let (fleet, clusters) = tokio::try_join!(Box::pin(broker), clusters)?;
    let mut sites = Vec::new();
    for (number, cluster) in (1..).zip(clusters) {
        let name = format!("shop-{number}");
        let labels = [("env", "dev"), ("tier", if number == 1 { "canary" } else { "stable" })];
        // Each agent has a cluster of its own and uses the namespace of a production install.
        let options = AgentOptions { namespace: Some("brokkr-system".into()), ..AgentOptions::default() };
        let agent = fleet.join_with(&name, &labels, &cluster, &options).await?;
        sites.push(Site { name, labels, agent, cluster });
    }
    Ok((fleet, sites))
}

fn print_welcome(settings: &Settings, fleet: &Fleet, sites: &[Site], started: Instant) {
    println!("\nBrokkr is up after {:.0} s.\n", started.elapsed().as_secs_f32());
    println!("  broker    {}", fleet.broker.url());
    for site in sites {
        let labels = site.labels.map(|(key, value)| format!("{key}={value}")).join(",");
        println!("  {:<9} {labels:<24} kubectl --context {}", site.name, site.name);
    }
    println!("  kubeconfig {}", settings.kubeconfig().display());
    println!("\nIn another terminal, in this folder:\n");
    println!("  . {}", settings.environment().display());
    println!("  brokkr status\n");
    println!("Press Ctrl-C here to stop and remove everything.");
}

/// The folder with the user's settings, removed at the end.
struct Settings {
    folder: PathBuf,
    _lock: File,
}

impl Settings {
    fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let lock = File::create(folder.join("lock"))?;
        if lock.try_lock().is_err() {
            bail!("a fleet is already running here; its settings are in {}", folder.display());
        }
        Ok(Self { folder: folder.to_owned(), _lock: lock })
    }

    fn environment(&self) -> PathBuf {
        self.folder.join("env")
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Writes a shell file to source: `brokkr` logged in, `kubectl` with one context per cluster, and the
    /// commands `unplug` and `replug`, which freeze and resume the agent of a cluster, as if its connection
    /// were lost.
    fn write(&self, fleet: &Fleet, sites: &[Site]) -> Result<()> {
        let folder = self.folder.canonicalize()?;
        let own = folder.join("bin");
        fs::create_dir_all(&own)?;
        for site in sites {
            let pid = site.agent.process().pid().context("the agent has ended")?;
            fs::write(folder.join(format!("{}.pid", site.name)), pid.to_string())?;
        }
        for (name, signal) in [("unplug", "STOP"), ("replug", "CONT")] {
            let script =
                format!("#!/bin/sh -eu\nkill -{signal} \"$(cat '{}'/\"$1\".pid)\"\n", folder.display());
            fs::write(own.join(name), script)?;
            fs::set_permissions(own.join(name), Permissions::from_mode(0o755))?;
        }
        let all = folder.join("kubeconfig");
        let contexts: Vec<_> = sites.iter().map(|site| site.cluster.admin_context(&site.name)).collect();
        kubeconfig::write(&all, &contexts)?;
        let text = format!(
            "# Source this file: `brokkr` and `kubectl` then talk to the fleet of `cargo xtask dev`.\n\
             export PATH='{}':'{}':'{}':\"$PATH\"\n\
             export XDG_CONFIG_HOME='{}'\n\
             export KUBECONFIG='{}'\n",
            own.display(),
            programs::folder()?.display(),
            programs::kubectl_folder()?.display(),
            fleet.cli.config_home().display(),
            all.display(),
        );
        fs::write(self.environment(), text)?;
        Ok(())
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

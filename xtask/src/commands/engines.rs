//! `cargo xtask engines`: builds missing engines, and lists their paths.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use brokkr_engines::{Built, build_all, build_older_kubernetes};
use serde_json::json;

/// Build etcd, Kubernetes, containerd, CoreDNS, kwok and Helm into a cache outside the clone (takes minutes the first time).
#[derive(clap::Args)]
pub struct Args {
    /// Also build the older versions of Kubernetes, which `BROKKR_KUBERNETES=1.30` and `1.33` select.
    #[arg(long)]
    all: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let started = Instant::now();
    let built = if args.all { ensure_all()? } else { ensure()? };
    if args.json {
        print_json(&built, started.elapsed())
    } else {
        print_text(&built, started.elapsed());
        Ok(())
    }
}

/// Builds missing engines; commands that start engines call it first.
pub fn ensure() -> Result<Vec<Built>> {
    build_all(|name| eprintln!("building {name} …")).context("cannot build the engines")
}

/// Builds missing engines, and the older versions of Kubernetes.
pub fn ensure_all() -> Result<Vec<Built>> {
    let older = build_older_kubernetes(|name| eprintln!("building {name} …"));
    let older = older.context("cannot build the older versions of Kubernetes")?;
    Ok(ensure()?.into_iter().chain(older).collect())
}

fn print_text(built: &[Built], took: Duration) {
    for engine in built {
        let what =
            engine.took.map_or("found".to_owned(), |took| format!("built in {:.0} s", took.as_secs_f32()));
        println!("{:<24} {what:<15} {}", engine.name, engine.path.display());
    }
    println!("{} engines in {:.2} s", built.len(), took.as_secs_f32());
}

fn print_json(built: &[Built], took: Duration) -> Result<()> {
    let engines: Vec<_> = built
        .iter()
        .map(|engine| {
            json!({
                "name": engine.name,
                "path": engine.path,
                "built": engine.took.is_some(),
                "seconds": engine.took.unwrap_or_default().as_secs_f32(),
            })
        })
        .collect();
    let document = json!({"engines": engines, "seconds": took.as_secs_f32()});
    println!("{}", serde_json::to_string_pretty(&document)?);
    Ok(())
}

//! `cargo xtask image`: builds static programs, and images of the broker and the agent, without a container engine.
//!
//! The programs are statically linked, so an image contains only the program and the certificates that it trusts: there is
//! nothing else that could have a vulnerability or help an attacker. Names are resolved by glibc, which since
//! 2.34 can read /etc/hosts and ask DNS even if it is linked statically. A resolver of our own would not be
//! enough, because the clients of PostgreSQL and Kubernetes use that of the system. `image/proof.rs` runs the
//! program of an image in a sandbox: without a network, on a read-only root, as an unprivileged user.

mod proof;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use brokkr_image::{Compression, NEXT_VERSION};

use crate::runner::{build_static, root};

/// The programs with an image; the command line has none.
const IMAGES: [&str; 2] = ["brokkr-broker", "brokkr-agent"];
const OUT: &str = "target/images";
const PROGRAMS: [&str; 3] = ["brokkr-broker", "brokkr-agent", "brokkr"];

/// Build static programs, and OCI images of the broker and the agent (takes minutes, longest in a release build).
#[derive(clap::Args)]
pub struct Args {
    /// Write the programs and the image layouts to this folder.
    #[arg(long, default_value = OUT)]
    out: PathBuf,
    /// Build with this profile: release, measure (optimised, without link-time optimisation), or dev (for tests on real nodes).
    #[arg(long, default_value = "release")]
    profile: String,
    /// Run the program of each layout in a sandbox: no network, read-only, unprivileged user. Needs Linux.
    #[arg(long)]
    check: bool,
}

/// Makes the images that tests on real nodes import, and the agent once more, under the version to which they upgrade it.
pub fn run_dev() -> Result<()> {
    run(&Args { out: OUT.into(), profile: "dev".into(), check: false })?;
    let agent = "brokkr-agent";
    let program = build_static("dev", &[agent], Some(NEXT_VERSION))?.join(agent);
    let folder = root().join(OUT).join(format!("{agent}-{NEXT_VERSION}"));
    let image =
        brokkr_image::write_version(&folder, agent, NEXT_VERSION, &fs::read(program)?, Compression::fast())?;
    println!("{:<40} {}   {}", display(&folder), megabytes(image.size), image.digest);
    Ok(())
}

pub fn run(args: &Args) -> Result<()> {
    if !root().join("console/dist/index.html").exists() {
        eprintln!("the broker gets no web console; build it before with `cargo xtask console`");
    }
    let built = build_static(&args.profile, &PROGRAMS, None)?;
    let level = if args.profile == "release" { Compression::best() } else { Compression::fast() };
    let out = root().join(&args.out);
    fs::create_dir_all(out.join("bin"))?;
    for name in PROGRAMS {
        let program = out.join("bin").join(name);
        fs::copy(built.join(name), &program).with_context(|| format!("cannot copy {name}"))?;
        println!("{:<40} {}", display(&program), megabytes(fs::metadata(&program)?.len()));
    }
    for name in IMAGES {
        let folder = out.join(name);
        let image = brokkr_image::write(&folder, name, &fs::read(built.join(name))?, level)?;
        println!("{:<40} {}   {}", display(&folder), megabytes(image.size), image.digest);
    }
    if args.check {
        for name in IMAGES {
            proof::run(&out.join(name), name)?;
        }
    }
    Ok(())
}

fn display(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn megabytes(bytes: u64) -> String {
    format!("{:>7.1} MB", bytes as f64 / 1e6)
}

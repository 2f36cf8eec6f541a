//! `cargo xtask image`: the programs on their own, and images of the broker and the agent, without a container engine.
//!
//! The programs are linked with everything they need, so an image is one file and the certificates that it trusts: nothing
//! else is there that could have a hole, or be run by whoever gets in. glibc carries what looks names up, in /etc/hosts and by DNS,
//! inside since 2.34; a resolver of our own would serve only some of the clients (PostgreSQL's and Kubernetes' use the
//! system's). What comes out is an OCI image layout, byte for byte the same from the same sources:
//!
//! ```text
//! image/layer.rs    the files of an image, as a compressed archive
//! image/layout.rs   blobs, manifest and index
//! image/proof.rs    runs what is in the layout: no network, read-only, nobody's user
//! ```

mod layer;
mod layout;
mod proof;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::runner::{build_static, root};

/// What has an image; the command line is only a program.
const IMAGES: [&str; 2] = ["brokkr-broker", "brokkr-agent"];
const PROGRAMS: [&str; 3] = ["brokkr-broker", "brokkr-agent", "brokkr"];

/// Build self-contained programs, and OCI images of broker and agent (minutes; a release build takes longest).
#[derive(clap::Args)]
pub struct Args {
    /// Where the programs and the image layouts go.
    #[arg(long, default_value = "target/images")]
    out: PathBuf,
    /// How the programs are built: release, measure (optimised, without the last step), or dev.
    #[arg(long, default_value = "release")]
    profile: String,
    /// Run what is in each layout in a closed room: no network, read-only, nobody's user. Needs Linux.
    #[arg(long)]
    check: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let built = build_static(&args.profile, &PROGRAMS)?;
    let out = root().join(&args.out);
    fs::create_dir_all(out.join("bin"))?;
    for name in PROGRAMS {
        let program = out.join("bin").join(name);
        fs::copy(built.join(name), &program).with_context(|| format!("cannot copy {name}"))?;
        println!("{:<40} {}", display(&program), megabytes(fs::metadata(&program)?.len()));
    }
    for name in IMAGES {
        let folder = out.join(name);
        let image = layout::write(&folder, name, &fs::read(built.join(name))?)?;
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

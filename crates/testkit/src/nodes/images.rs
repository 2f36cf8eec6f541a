//! Images for real nodes. No registry is in reach, so the images are imported from archives.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use brokkr_engines::Engines;
use brokkr_image::{Compression, NEXT_VERSION, VERSION};

use crate::names::unique;
use crate::scratch::Scratch;

/// The image of the container that holds the namespaces of a Pod. containerd's configuration names it.
pub(super) const SANDBOX: &str = concat!("brokkr.test/sandbox:", env!("CARGO_PKG_VERSION"));
/// The image of the test program, for manifests. Its flags are in `engines/testpod/main.go`.
pub const TEST_PROGRAM: &str = concat!("brokkr.test/testpod:", env!("CARGO_PKG_VERSION"));
/// The repository of the agent's images on the nodes.
pub const AGENT_REPOSITORY: &str = "docker.io/library/brokkr-agent";
/// The version of [`Image::next_agent`].
pub const NEXT_AGENT_VERSION: &str = NEXT_VERSION;
pub(super) const DNS: &str = concat!("brokkr.test/coredns:", env!("CARGO_PKG_VERSION"));

/// An image that nodes can import.
#[derive(Debug)]
pub struct Image {
    /// Without a tag, which is the version.
    repository: String,
    source: Source,
    /// Its name by tag and by digest, if Pods name it by digest.
    digest: Option<(String, String)>,
}

#[derive(Debug)]
enum Source {
    /// A static program, which becomes the only one of the image.
    Program(PathBuf),
    /// A layout that was made before.
    Layout(PathBuf),
}

impl Image {
    /// Returns the image of a program that `cargo xtask image --profile dev` made.
    pub fn brokkr(name: &str) -> Result<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/images").join(name);
        if !folder.is_dir() {
            bail!("there is no image of {name}; run `cargo xtask e2e real`, which makes it");
        }
        Ok(Self {
            repository: format!("docker.io/library/{name}"),
            source: Source::Layout(folder),
            digest: None,
        })
    }

    /// Returns the image of this build of the agent under the next version, and its name by digest.
    pub fn next_agent() -> Result<(Self, String)> {
        let Self { source, .. } = Self::brokkr(&format!("brokkr-agent-{NEXT_VERSION}"))?;
        let Source::Layout(folder) = &source else { bail!("this image is made from a program") };
        let repository = AGENT_REPOSITORY.to_owned();
        let name = format!("{repository}@{}", brokkr_image::digest_of(folder)?);
        let digest = Some((format!("{repository}:{NEXT_VERSION}"), name.clone()));
        Ok((Self { repository, source, digest }, name))
    }

    pub(super) fn digest(&self) -> Option<(&str, &str)> {
        self.digest.as_ref().map(|(tag, digest)| (tag.as_str(), digest.as_str()))
    }

    pub(super) fn repository(&self) -> &str {
        &self.repository
    }

    /// Writes the image as an archive.
    pub(super) fn write(&self, scratch: &Scratch) -> Result<PathBuf> {
        let archive = scratch.join(format!("{}.tar", unique("image")));
        match &self.source {
            Source::Layout(folder) => brokkr_image::archive(folder, &archive)?,
            Source::Program(program) => {
                let folder = scratch.join(unique("layout"));
                let name = program.file_name().context("a program without a name")?.to_string_lossy();
                brokkr_image::write(&folder, &name, &fs::read(program)?, Compression::fast())?;
                brokkr_image::archive(&folder, &archive)?;
            }
        }
        Ok(archive)
    }
}

pub(super) fn sandbox(engines: &Engines) -> Image {
    of_engine(engines, SANDBOX, "testpod")
}

pub(super) fn test_program(engines: &Engines) -> Image {
    of_engine(engines, TEST_PROGRAM, "testpod")
}

pub(super) fn dns(engines: &Engines) -> Image {
    of_engine(engines, DNS, "coredns")
}

fn of_engine(engines: &Engines, name: &str, program: &str) -> Image {
    let repository = name.trim_end_matches(VERSION).trim_end_matches(':').to_owned();
    Image { repository, source: Source::Program(engines.binary(program).to_owned()), digest: None }
}

//! An OCI image layout: blobs by their digests, a manifest that names them, and an index that names the manifest.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use flate2::Compression;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::layer;

/// The unprivileged user, as in distroless images.
const USER: &str = "65532:65532";
/// The version of the workspace, which is the tag of every image.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The version under which tests build the agent a second time, to upgrade it.
pub const NEXT_VERSION: &str = "99.0.0";

/// A written image.
#[derive(Debug)]
pub struct Image {
    /// The digest of the manifest, which a deployment can be pinned to.
    pub digest: String,
    /// The size of a pull.
    pub size: u64,
}

/// Writes the layout of an image with one program into a folder, and replaces an earlier one.
pub fn write(folder: &Path, name: &str, program: &[u8], level: Compression) -> Result<Image> {
    write_version(folder, name, VERSION, program, level)
}

/// Like [`write`], for a program with another version than that of the workspace.
pub fn write_version(
    folder: &Path,
    name: &str,
    version: &str,
    program: &[u8],
    level: Compression,
) -> Result<Image> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot replace {}", folder.display()))?;
    }
    let blobs = Blobs { folder };
    fs::create_dir_all(folder.join("blobs/sha256"))?;
    let archive = layer::archive(name, program)?;
    let layer =
        blobs.put("application/vnd.oci.image.layer.v1.tar+gzip", &layer::compressed(&archive, level)?)?;
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {
            "User": USER,
            "Entrypoint": [format!("/{name}")],
            "WorkingDir": "/",
            "Env": ["PATH=/", format!("SSL_CERT_FILE=/{}", layer::CERTIFICATES)],
            "Labels": labels(name, version),
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(&archive)]},
    });
    let config = blobs.put_json("application/vnd.oci.image.config.v1+json", &config)?;
    let size = layer["size"].as_u64().unwrap_or_default() + config["size"].as_u64().unwrap_or_default();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
        "annotations": labels(name, version),
    });
    let mut manifest = blobs.put_json("application/vnd.oci.image.manifest.v1+json", &manifest)?;
    let digest = manifest["digest"].as_str().unwrap_or_default().to_owned();
    manifest["platform"] = json!({"architecture": architecture(), "os": "linux"});
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": version});
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    fs::write(folder.join("index.json"), index.to_string())?;
    fs::write(folder.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string())?;
    Ok(Image { digest, size })
}

/// Writes a layout as one file, which container runtimes import.
pub fn archive(folder: &Path, file: &Path) -> Result<()> {
    let mut archive = tar::Builder::new(fs::File::create(file)?);
    archive.append_dir_all("", folder).with_context(|| format!("cannot archive {}", folder.display()))?;
    archive.finish()?;
    Ok(())
}

fn labels(name: &str, version: &str) -> Value {
    json!({
        "org.opencontainers.image.title": name,
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
    })
}

/// Returns the architecture's name in Go, which images use.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

struct Blobs<'a> {
    folder: &'a Path,
}

impl Blobs<'_> {
    fn put_json(&self, kind: &str, document: &Value) -> Result<Value> {
        self.put(kind, document.to_string().as_bytes())
    }

    /// Writes a blob and returns a reference to it.
    fn put(&self, kind: &str, bytes: &[u8]) -> Result<Value> {
        let digest = digest(bytes);
        fs::write(self.folder.join("blobs").join(digest.replace(':', "/")), bytes)
            .with_context(|| format!("cannot write {digest}"))?;
        Ok(json!({"mediaType": kind, "digest": digest, "size": bytes.len()}))
    }
}

/// Returns a blob of a layout, and checks its digest.
pub fn blob(folder: &Path, reference: &Value) -> Result<Vec<u8>> {
    let named = reference["digest"].as_str().context("a reference without a digest")?;
    let bytes = fs::read(folder.join("blobs").join(named.replace(':', "/")))
        .with_context(|| format!("cannot read {named}"))?;
    anyhow::ensure!(digest(&bytes) == named, "the contents of {named} do not match its digest");
    Ok(bytes)
}

/// Returns the digest of the image of a layout.
pub fn digest_of(folder: &Path) -> Result<String> {
    let index: Value = serde_json::from_slice(&fs::read(folder.join("index.json"))?)?;
    index["manifests"][0]["digest"].as_str().map(ToOwned::to_owned).context("a layout without a manifest")
}

/// Returns the manifest and the configuration of a layout.
pub fn read(folder: &Path) -> Result<(Value, Value)> {
    let index: Value = serde_json::from_slice(&fs::read(folder.join("index.json"))?)?;
    let manifest: Value = serde_json::from_slice(&blob(folder, &index["manifests"][0])?)?;
    let config = serde_json::from_slice(&blob(folder, &manifest["config"])?)?;
    Ok((manifest, config))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Returns a folder of this test alone, below the target folder.
    fn folder(name: &str) -> PathBuf {
        let this = std::env::current_exe().unwrap();
        this.with_file_name(format!("image-test-{name}-{}", std::process::id()))
    }

    #[test]
    fn the_same_program_makes_the_same_image_and_another_program_another_image() {
        let folder = folder("same");
        let images = [b"one".as_slice(), b"one", b"other"].map(|program| {
            let image = write(&folder, "brokkr-agent", program, Compression::best()).unwrap();
            assert_eq!(digest_of(&folder).unwrap(), image.digest);
            (image.digest, fs::read(folder.join("index.json")).unwrap())
        });
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(images[0], images[1]);
        assert_ne!(images[0], images[2]);
    }

    #[test]
    fn an_image_has_its_program_and_certificates_and_runs_unprivileged() {
        let folder = folder("whole");
        write(&folder, "brokkr-agent", b"the program", Compression::fast()).unwrap();
        let (manifest, config) = read(&folder).unwrap();
        let layer = blob(&folder, &manifest["layers"][0]).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(config["config"]["User"], USER);
        assert_eq!(config["config"]["Entrypoint"], json!(["/brokkr-agent"]));
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(layer.as_slice()));
        let mut files = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.mtime().unwrap()), (0, 0));
            files.push((entry.path().unwrap().display().to_string(), header.mode().unwrap()));
        }
        let files: Vec<(&str, u32)> = files.iter().map(|(path, mode)| (path.as_str(), *mode)).collect();
        assert_eq!(
            files,
            [
                ("etc/", 0o755),
                ("etc/ssl/", 0o755),
                ("etc/ssl/certs/", 0o755),
                ("etc/ssl/certs/ca-certificates.crt", 0o644),
                ("brokkr-agent", 0o755),
            ]
        );
    }
}

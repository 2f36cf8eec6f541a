//! The files of an image: a program, and the certificates that it trusts. The result is reproducible.

use std::io::Write as _;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// Where Linux programs look for certificates.
pub const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";

/// Returns the uncompressed layer.
pub fn archive(name: &str, program: &[u8]) -> Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    for folder in ["etc/", "etc/ssl/", "etc/ssl/certs/"] {
        add(&mut archive, EntryType::Directory, folder, 0o755, &[])?;
    }
    add(&mut archive, EntryType::Regular, CERTIFICATES, 0o644, certificates().as_bytes())?;
    add(&mut archive, EntryType::Regular, name, 0o755, program)?;
    archive.into_inner().context("cannot finish the layer")
}

/// Adds an entry that belongs to root and has no time, so that the result does not depend on the machine.
fn add(
    archive: &mut Builder<Vec<u8>>,
    kind: EntryType,
    path: &str,
    mode: u32,
    contents: &[u8],
) -> Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(contents.len() as u64);
    archive.append_data(&mut header, path, contents).with_context(|| format!("cannot add {path}"))
}

pub fn compressed(archive: &[u8], level: Compression) -> Result<Vec<u8>> {
    // Without time and system in the header.
    let mut encoder = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), level);
    encoder.write_all(archive)?;
    Ok(encoder.finish()?)
}

/// Returns the authorities that Mozilla trusts, as PEM: those of the crate, not those of the build machine.
fn certificates() -> String {
    let mut text = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = STANDARD.encode(certificate);
        for start in (0..encoded.len()).step_by(64) {
            text.push_str(&encoded[start..encoded.len().min(start + 64)]);
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

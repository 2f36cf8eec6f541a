//! Writes the table of the files of the console: everything that `cargo xtask console` has put into `console/dist`. Without this
//! folder the table is empty, so that the workspace builds without Node.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use sha2::{Digest as _, Sha256};

/// The extension of the compressed variants, which are beside the files.
const BROTLI: &str = ".br";

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo sets CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    // Cargo would run this script, and compile the broker, each time if a path that does not exist were named. So without the
    // folder only this file is watched, and `cargo xtask console` changes its time.
    println!("cargo:rerun-if-changed=build.rs");
    let mut paths = Vec::new();
    if let Ok(dist) = here.join("../../console/dist").canonicalize() {
        println!("cargo:rerun-if-changed={}", dist.display());
        if dist.join("index.html").is_file() {
            list(&dist, &dist, &mut paths)?;
        } else {
            println!("cargo:warning=console/dist has no index.html; the broker is built without the console");
        }
    }
    // The table is searched by path.
    paths.sort();
    let mut table = "pub static FILES: &[File] = &[\n".to_owned();
    for (path, file) in &paths {
        if !path.ends_with(BROTLI) {
            let media_type =
                media_type(path).ok_or_else(|| format!("{path}: add its media type to build.rs"))?;
            writeln!(
                table,
                "File {{ path: {path:?}, media_type: {media_type:?}, plain: {},",
                encoded(file)?
            )?;
            let variant = paths.iter().find(|(other, _)| other.strip_suffix(BROTLI) == Some(path.as_str()));
            match variant {
                Some((_, file)) => writeln!(table, "brotli: Some({}),", encoded(file)?)?,
                None => table.push_str("brotli: None,"),
            }
            table.push_str("},\n");
        }
    }
    table.push_str("];\n");
    Ok(fs::write(out.join("files.rs"), table)?)
}

/// Lists the files in a folder by their path in the console.
fn list(root: &Path, folder: &Path, paths: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if is_left_out(&path) {
            continue;
        }
        if path.is_dir() {
            list(root, &path, paths)?;
        } else {
            let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            paths.push((relative, path));
        }
    }
    Ok(())
}

/// Hidden files and source maps are not served.
fn is_left_out(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with('.') || [".map", ".map.br"].iter().any(|end| name.ends_with(end))
}

/// Returns the code of a variant of a file.
fn encoded(file: &Path) -> io::Result<String> {
    let mut digest = String::new();
    for byte in Sha256::digest(fs::read(file)?) {
        digest.push_str(&format!("{byte:02x}"));
    }
    let (path, etag) = (file.to_string_lossy(), format!("\"{digest}\""));
    Ok(format!("Encoded {{ bytes: include_bytes!({path:?}), etag: {etag:?} }}"))
}

fn media_type(path: &str) -> Option<&'static str> {
    let (_, extension) = path.rsplit_once('.')?;
    Some(match extension {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/vnd.microsoft.icon",
        "txt" => "text/plain; charset=utf-8",
        _ => return None,
    })
}

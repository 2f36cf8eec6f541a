//! OCI images of one static program, made without a container engine.
//!
//! The result is an OCI image layout, byte for byte reproducible from the same program:
//!
//! ```text
//! layer.rs    the files of an image, as a compressed archive
//! layout.rs   blobs, manifest and index
//! ```
//!
//! `cargo xtask image` makes the images of a release with it, and the test kit those of test Pods.

mod layer;
mod layout;

pub use flate2::Compression;
pub use layout::{Image, NEXT_VERSION, VERSION, archive, blob, digest_of, read, write, write_version};

//! The real engines that tests run on: which there are, where their binaries live, how they are built.
//!
//! `engines/<module>/` in the repository holds one `go.mod` and `go.sum` each; `bench/flux/` has a small program
//! beside them. The binaries made from them
//! live in a cache outside the clone, in a folder named by a digest of everything that went into them, so
//! they are built once per machine and found at once afterwards:
//!
//! ```text
//! catalog.rs   the modules, the binaries of each and the flags they are built with
//! cache.rs     from go.mod, go.sum, sources and the Go version to a folder; what is in it
//! compile.rs   builds what is missing, under a temporary name first
//! ```
//!
//! Both `cargo xtask engines` (which builds) and the test kit (which only looks) come here, so that they
//! cannot disagree about the place.

mod cache;
mod catalog;
mod compile;

pub use cache::{Engines, Missing, locate, locate_peer};
pub use catalog::{Binary, FLUX, MODULES, Module};
pub use compile::{Built, build_all, build_module};

//! The engines that tests run on: their catalog, the cache of their binaries, and how they are built.
//!
//! `engines/<module>/` in the repository has one `go.mod` and `go.sum` each; some also have a small program. The
//! binaries are in a cache outside the clone, in a folder named by a digest of their sources, so they are built once per
//! machine:
//!
//! ```text
//! catalog.rs   the modules, the binaries of each and the flags they are built with
//! cache.rs     the cache folder of each module, and the binaries in it
//! compile.rs   builds missing engines, under a temporary name first
//! node.rs      Node, for the web console
//! ```
//!
//! `cargo xtask engines`, which builds the engines, and the test kit, which only uses them, share this crate, so that they
//! agree on the paths.

mod cache;
mod catalog;
mod compile;
mod node;

pub use cache::{Engines, Missing, locate, locate_peer};
pub use catalog::{Binary, FLUX, MODULES, Module, OLDER_KUBERNETES};
pub use compile::{Built, build_all, build_module, build_older_kubernetes};
pub use node::{NODE, install_node, locate_node};

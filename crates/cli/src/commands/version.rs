//! `brokkr version`

use brokkr_api::protocol::PROTOCOL_VERSION;
use serde::Serialize;

use crate::failure::Failure;
use crate::printer::Printer;

#[derive(Serialize)]
struct Version {
    version: &'static str,
    protocol: u32,
}

pub fn run(printer: Printer) -> Result<(), Failure> {
    let version = Version { version: env!("CARGO_PKG_VERSION"), protocol: PROTOCOL_VERSION };
    let name = format!("version/{}", version.version);
    printer.done(&version, name, || format!("brokkr {} (protocol {})", version.version, version.protocol))
}

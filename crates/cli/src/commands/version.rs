//! `brokkr version`

use brokkr_api::protocol::PROTOCOL_VERSION;
use serde::Serialize;
use url::Url;

use crate::args::{Global, Version};
use crate::connect::connect_at_once;
use crate::failure::{Failure, Result, WhileTrying as _};
use crate::printer::Printer;

#[derive(Serialize)]
struct Versions {
    version: &'static str,
    protocol: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<ServerVersion>,
}

#[derive(Serialize)]
struct ServerVersion {
    url: Url,
    version: String,
}

pub async fn run(args: Version, global: &Global, printer: Printer) -> Result {
    let server = if args.client { None } else { server(global, printer).await };
    let versions = Versions { version: env!("CARGO_PKG_VERSION"), protocol: PROTOCOL_VERSION, server };
    let name = format!("version/{}", versions.version);
    printer.done(&versions, name, || {
        let own = format!("brokkr {} (protocol {})", versions.version, versions.protocol);
        match &versions.server {
            Some(server) => format!("{own}\nbroker {} ({})", server.version, server.url),
            None => own,
        }
    })
}

/// Returns the version of the broker. If it cannot be read, prints a note and does not fail.
async fn server(global: &Global, printer: Printer) -> Option<ServerVersion> {
    let read = async {
        let client = connect_at_once(global, printer)?;
        let me = client.whoami().await.while_trying("read the version of the broker")?;
        Ok::<_, Failure>((client.base().clone(), me.server_version))
    };
    match read.await {
        Ok((url, version)) if !version.is_empty() => Some(ServerVersion { url, version }),
        Ok(_) => None,
        Err(failure) => {
            printer.note(&format!("the version of the broker is unknown: {failure}"));
            None
        }
    }
}

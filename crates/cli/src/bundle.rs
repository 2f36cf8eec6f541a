//! The files of a support bundle, built from fetched data without I/O.
//!
//! Responses of the broker are not copied: each field is listed, so that a new field does not end up in the bundle by
//! accident. Messages of an API server can quote a manifest, and annotations and webhook addresses can contain secrets; they
//! are left out.

use brokkr_api::audit::AuditEntry;
use brokkr_api::events::Event;
use brokkr_api::page::Page;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use tar::{Builder, Header};

use crate::preflight::{Fetched, PreflightData, checks};

mod entries;

pub use entries::{BundledAgent, BundledStack};

/// The data of the bundle.
#[derive(Debug)]
pub struct BundleData {
    pub preflight: PreflightData,
    /// Host and port of the proxy from the environment.
    pub proxy: Option<String>,
    pub agents: Fetched<Page<BundledAgent>>,
    pub stacks: Fetched<Page<BundledStack>>,
    pub events: Fetched<Page<Event>>,
    pub audit: Fetched<Page<AuditEntry>>,
    /// The address and metrics of each replica.
    pub metrics: Vec<(String, Fetched<String>)>,
}

/// One file of the archive.
#[derive(Debug, PartialEq, Eq)]
pub struct File {
    pub name: String,
    pub text: String,
}

/// Data that is missing or incomplete in the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    pub what: String,
    pub why: String,
}

const README: &str = "\
Diagnostic data of a Brokkr installation, written by `brokkr admin support-bundle` with the permissions of its user.

preflight.json   results of `brokkr admin preflight`
versions.json    versions of the broker and of the command line
context.json     address of the broker, and the user
system.json      the installation: epoch, hold, state after a restore
agents.json      agents with labels, status and presence
stacks.json      stacks with targets and the progress of their newest version
errors.json      current errors, grouped
events.json      latest events of agents, newest first
audit.json       latest audit entries of the project, newest first
webhooks.json    webhooks with their number of dead letters
metrics/         metrics of each replica given with --metrics
missing.json     data that could not be read, and why

Not included: manifests, messages of API servers about an object, Secret values, annotations, tokens, join tokens,
secrets and addresses of webhooks.
";

/// Returns the files, and what is missing.
pub fn files(data: &BundleData, now: Timestamp) -> (Vec<File>, Vec<Missing>) {
    let mut archive = Archive::default();
    let preflight = &data.preflight;
    archive.text("README.txt", README.to_owned());
    archive.json("preflight.json", &checks(preflight, now));
    archive.json("versions.json", &versions(preflight));
    archive.json("context.json", &context(data, now));
    match &preflight.system {
        Ok(system) => archive.json("system.json", system),
        Err(error) => archive.miss("system.json", &error.why()),
    }
    archive.paged("agents.json", &data.agents, |agent| agent);
    archive.paged("stacks.json", &data.stacks, |stack| stack);
    archive.listed("errors.json", &preflight.errors, entries::error);
    archive.paged("events.json", &data.events, entries::event);
    archive.paged("audit.json", &data.audit, |entry| entry);
    archive.listed("webhooks.json", &preflight.hooks, entries::hook);
    if data.metrics.is_empty() {
        archive.miss(
            "metrics",
            "no replica was given; use --metrics http://HOST:PORT with its --admin-listen address",
        );
    }
    for (address, metrics) in &data.metrics {
        let name = format!("metrics/{}.txt", address.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
        match metrics {
            Ok(text) => archive.text(&name, text.clone()),
            Err(error) => archive.miss(&name, &error.why()),
        }
    }
    let missing = archive.missing.clone();
    archive.json("missing.json", &missing);
    (archive.files, missing)
}

fn versions(preflight: &PreflightData) -> Value {
    let broker = preflight.system.as_ref().ok().map(|system| {
        json!({"version": system.version, "protocol": system.protocol, "oldest_protocol": system.oldest_protocol})
    });
    json!({
        "brokkr": {"version": preflight.version, "system": std::env::consts::OS, "machine": std::env::consts::ARCH},
        "broker": broker,
    })
}

fn context(data: &BundleData, now: Timestamp) -> Value {
    let caller = data.preflight.caller.as_ref().ok();
    let replicas = data.preflight.replicas.iter().map(|replica| &replica.address);
    json!({
        "made_at": now,
        "server": data.preflight.server,
        "addresses": replicas.collect::<Vec<_>>(),
        "proxy": data.proxy,
        "project": caller.map(|caller| &caller.project),
        "caller": caller.map(|caller| json!({"name": caller.name, "role": caller.role})),
    })
}

#[derive(Default)]
struct Archive {
    files: Vec<File>,
    missing: Vec<Missing>,
}

impl Archive {
    fn text(&mut self, name: &str, text: String) {
        self.files.push(File { name: name.to_owned(), text });
    }

    fn json(&mut self, name: &str, document: &impl Serialize) {
        match serde_json::to_string_pretty(document) {
            Ok(text) => self.text(name, text + "\n"),
            Err(error) => self.miss(name, &format!("cannot be written as JSON: {error}")),
        }
    }

    fn miss(&mut self, what: &str, why: &str) {
        self.missing.push(Missing { what: what.to_owned(), why: why.to_owned() });
    }

    fn listed<T, U: Serialize>(&mut self, name: &str, fetched: &Fetched<Vec<T>>, entry: impl Fn(&T) -> U) {
        match fetched {
            Ok(items) => self.json(name, &items.iter().map(entry).collect::<Vec<_>>()),
            Err(error) => self.miss(name, &error.why()),
        }
    }

    fn paged<'a, T, U: Serialize>(
        &mut self,
        name: &str,
        fetched: &'a Fetched<Page<T>>,
        entry: impl Fn(&'a T) -> U,
    ) {
        match fetched {
            Ok(page) => {
                self.json(name, &page.items.iter().map(entry).collect::<Vec<_>>());
                if page.next.is_some() {
                    self.miss(name, &format!("truncated after {}", page.items.len()));
                }
            }
            Err(error) => self.miss(name, &error.why()),
        }
    }
}

/// Returns the archive. Its files are readable only by their owner.
pub fn packed(files: &[File], now: Timestamp) -> std::io::Result<Vec<u8>> {
    let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for file in files {
        let mut header = Header::new_ustar();
        header.set_mode(0o600);
        header.set_mtime(now.as_second().cast_unsigned());
        header.set_size(file.text.len() as u64);
        archive.append_data(&mut header, format!("brokkr-support/{}", file.name), file.text.as_bytes())?;
    }
    archive.into_inner()?.finish()
}

#[cfg(test)]
mod tests;

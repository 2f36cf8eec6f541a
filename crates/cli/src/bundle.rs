//! What somebody who helps gets to see: pure, from what was answered to the files of an archive.
//!
//! Answers of the broker are not copied but told anew, field by field, so that nothing comes in that nobody thought of.
//! What an API server says of an object can quote its manifest, and an annotation or the address of a webhook can hold
//! anything: none of these is in here.

use brokkr_api::audit::AuditEntry;
use brokkr_api::events::Event;
use brokkr_api::page::Page;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use tar::{Builder, Header};

use crate::preflight::{Answers, Asked, checks};

mod told;

pub use told::{AgentTold, StackTold};

/// Everything that was read for it.
#[derive(Debug)]
pub struct Gathered {
    pub answers: Answers,
    /// Host and port of the proxy that the environment names.
    pub proxy: Option<String>,
    pub agents: Asked<Page<AgentTold>>,
    pub stacks: Asked<Page<StackTold>>,
    pub events: Asked<Page<Event>>,
    pub audit: Asked<Page<AuditEntry>>,
    /// By the place where they were asked for.
    pub metrics: Vec<(String, Asked<String>)>,
}

/// One file of the archive.
#[derive(Debug, PartialEq, Eq)]
pub struct File {
    pub name: String,
    pub text: String,
}

/// Something that is not in the archive, or not whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    pub what: String,
    pub why: String,
}

const README: &str = "\
What `brokkr admin support-bundle` read from a broker, as far as whoever made it may see it.

preflight.json   what was checked, what was found, and what to do next
versions.json    of the broker and of the command line
context.json     where the broker is, and who asked
system.json      the installation: epoch, hold, what a restore left to settle
agents.json      by name, with labels, status and presence
stacks.json      by name, with targets, and how far their newest version is
errors.json      each mistake once, with how often it is there
events.json      the last that agents reported, the newest first
audit.json       the last of the project's audit log, the newest first
webhooks.json    by name, with how many messages were given up
metrics/         of each replica that was named with --metrics
missing.json     what could not be had, and why

Not in here: manifests, what API servers said of an object, values of Secrets, annotations, tokens, join tokens,
secrets and addresses of webhooks.
";

/// The files, and what is missing among them.
pub fn files(gathered: &Gathered, now: Timestamp) -> (Vec<File>, Vec<Missing>) {
    let mut archive = Archive::default();
    let answers = &gathered.answers;
    archive.text("README.txt", README.to_owned());
    archive.json("preflight.json", &checks(answers, now));
    archive.json("versions.json", &versions(answers));
    archive.json("context.json", &context(gathered, now));
    match &answers.system {
        Ok(system) => archive.json("system.json", system),
        Err(unanswered) => archive.misses("system.json", &unanswered.why()),
    }
    archive.paged("agents.json", &gathered.agents, |agent| agent);
    archive.paged("stacks.json", &gathered.stacks, |stack| stack);
    archive.listed("errors.json", &answers.errors, told::error);
    archive.paged("events.json", &gathered.events, told::event);
    archive.paged("audit.json", &gathered.audit, |entry| entry);
    archive.listed("webhooks.json", &answers.hooks, told::hook);
    if gathered.metrics.is_empty() {
        archive.misses(
            "metrics",
            "no replica was named: --metrics http://HOST:PORT, as its --admin-listen says",
        );
    }
    for (place, metrics) in &gathered.metrics {
        let name = format!("metrics/{}.txt", place.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
        match metrics {
            Ok(text) => archive.text(&name, text.clone()),
            Err(unanswered) => archive.misses(&name, &unanswered.why()),
        }
    }
    let missing = archive.missing.clone();
    archive.json("missing.json", &missing);
    (archive.files, missing)
}

fn versions(answers: &Answers) -> Value {
    let broker = answers.system.as_ref().ok().map(|system| {
        json!({"version": system.version, "protocol": system.protocol, "oldest_protocol": system.oldest_protocol})
    });
    json!({
        "brokkr": {"version": answers.version, "system": std::env::consts::OS, "machine": std::env::consts::ARCH},
        "broker": broker,
    })
}

fn context(gathered: &Gathered, now: Timestamp) -> Value {
    let caller = gathered.answers.caller.as_ref().ok();
    let replicas = gathered.answers.replicas.iter().map(|replica| &replica.address);
    json!({
        "made_at": now,
        "server": gathered.answers.server,
        "addresses": replicas.collect::<Vec<_>>(),
        "proxy": gathered.proxy,
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
            Err(error) => self.misses(name, &format!("it cannot be written as JSON: {error}")),
        }
    }

    fn misses(&mut self, what: &str, why: &str) {
        self.missing.push(Missing { what: what.to_owned(), why: why.to_owned() });
    }

    fn listed<T, U: Serialize>(&mut self, name: &str, asked: &Asked<Vec<T>>, told: impl Fn(&T) -> U) {
        match asked {
            Ok(items) => self.json(name, &items.iter().map(told).collect::<Vec<_>>()),
            Err(unanswered) => self.misses(name, &unanswered.why()),
        }
    }

    fn paged<'a, T, U: Serialize>(
        &mut self,
        name: &str,
        asked: &'a Asked<Page<T>>,
        told: impl Fn(&'a T) -> U,
    ) {
        match asked {
            Ok(page) => {
                self.json(name, &page.items.iter().map(told).collect::<Vec<_>>());
                if page.next.is_some() {
                    self.misses(name, &format!("there are more than the {} in it", page.items.len()));
                }
            }
            Err(unanswered) => self.misses(name, &unanswered.why()),
        }
    }
}

/// The archive itself, readable by whoever unpacks it and by nobody else.
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

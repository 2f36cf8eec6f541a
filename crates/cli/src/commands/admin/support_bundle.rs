//! `brokkr admin support-bundle`: fetches the data for `crate::bundle`, and writes the archive.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use brokkr_api::page::Page;
use brokkr_api::stacks::Stack;
use brokkr_client::{AuditQuery, Client, ClientError, EventQuery, PageQuery};
use jiff::Timestamp;
use serde_json::json;
use url::Url;

use super::preflight::{each, fetch};
use crate::args::{Global, SupportBundle};
use crate::bundle::{BundleData, BundledAgent, BundledStack, Missing, files, packed};
use crate::connect::{Replicas, connect_to_replicas};
use crate::failure::{Exit, Failure, Result};
use crate::preflight::{FetchError, Fetched};
use crate::printer::Printer;

const MOST_EVENTS: u32 = 500;
const MOST_AUDIT_ENTRIES: u32 = 200;
/// Pages of agents; each has 500.
const MOST_AGENT_PAGES: usize = 10;
/// Stacks whose progress is read.
const MOST_WITH_SUMMARY: usize = 200;

pub async fn run(args: SupportBundle, global: &Global, printer: Printer) -> Result {
    let mut metrics_clients = Vec::new();
    for url in &args.metrics {
        metrics_clients.push(metrics_client(url)?);
    }
    let now = Timestamp::now();
    let file = args
        .file
        .unwrap_or_else(|| PathBuf::from(now.strftime("brokkr-support-%Y%m%dT%H%M%SZ.tar.gz").to_string()));
    let is_stdout = file.as_os_str() == "-";
    if is_stdout && printer.prints_to_terminal() {
        return Err(
            Failure::new(Exit::Usage, "refusing to print an archive to a terminal").next("use --file FILE")
        );
    }
    let replicas = connect_to_replicas(global).await?;
    let data = printer.with_spinner("reading", Box::pin(fetch_all(&replicas, metrics_clients))).await;
    let (files, missing) = files(&data, now);
    let bytes = packed(&files, now)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot create the archive: {error}")))?;
    note_missing(&missing, printer);
    if is_stdout {
        return printer.bytes(&bytes);
    }
    write(&file, &bytes)?;
    let shown = file.display().to_string();
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    let document = json!({"file": shown, "files": names, "missing": missing});
    printer
        .done(&document, format!("file/{shown}"), || format!("{shown} written with {} files", names.len()))?;
    printer.note(&format!("review it before you share it: tar -xzf {shown}"));
    Ok(())
}

fn note_missing(missing: &[Missing], printer: Printer) {
    for missing in missing {
        printer.note(&format!("missing: {}: {}", missing.what, missing.why));
    }
}

async fn fetch_all(replicas: &Replicas, metrics_clients: Vec<(String, Client)>) -> BundleData {
    let client = &replicas.client;
    let preflight = Box::pin(fetch(replicas)).await;
    let metrics = each(metrics_clients, metrics);
    let proxy = client.proxy_hint();
    if matches!(preflight.system, Err(FetchError::Skipped)) {
        let (agents, stacks) = (Err(FetchError::Skipped), Err(FetchError::Skipped));
        let (events, audit) = (Err(FetchError::Skipped), Err(FetchError::Skipped));
        return BundleData { preflight, proxy, agents, stacks, events, audit, metrics: metrics.await };
    }
    let (query, latest) = (EventQuery::default(), PageQuery { limit: Some(MOST_EVENTS), after: None });
    let (entries, newest) =
        (AuditQuery::default(), PageQuery { limit: Some(MOST_AUDIT_ENTRIES), after: None });
    let (agents, stacks, events, audit, metrics) = tokio::join!(
        agents(client),
        stacks(client),
        client.events(&query, &latest),
        client.audit(&entries, &newest),
        metrics,
    );
    BundleData {
        preflight,
        proxy,
        agents: agents.map_err(FetchError::from),
        stacks: stacks.map_err(FetchError::from),
        // Older events and entries are left out on purpose.
        events: events.map(|page| Page::whole(page.items)).map_err(FetchError::from),
        audit: audit.map(|page| Page::whole(page.items)).map_err(FetchError::from),
        metrics,
    }
}

async fn agents(client: &Client) -> Result<Page<BundledAgent>, ClientError> {
    let mut query = PageQuery::largest();
    let mut all = Vec::new();
    for _ in 0..MOST_AGENT_PAGES {
        let page = client.agents(&query).await?;
        all.extend(page.items.into_iter().map(BundledAgent::from));
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    Ok(Page { items: all, next: query.after, total: None })
}

/// Reads one page of stacks, and the progress of the first ones.
async fn stacks(client: &Client) -> Result<Page<BundledStack>, ClientError> {
    let page = client.stacks(&PageQuery::largest()).await?;
    let requests =
        page.items.iter().take(MOST_WITH_SUMMARY).map(|stack| (stack.id.to_string(), client.clone()));
    let summary = |(stack, client): (String, Client)| async move { client.stack_summary(&stack).await.ok() };
    let mut summaries = each(requests.collect(), summary).await.into_iter();
    Ok(page.map(|stack: Stack| BundledStack::new(stack, summaries.next().flatten())))
}

async fn metrics((address, client): (String, Client)) -> (String, Fetched<String>) {
    let text = client.metrics().await.map_err(FetchError::from);
    (address, text)
}

/// The metrics listener needs no credentials.
fn metrics_client(url: &Url) -> Result<(String, Client)> {
    let mut base = url.clone();
    let path = base.path().trim_end_matches('/').trim_end_matches("/metrics").to_owned();
    base.set_path(&path);
    base.set_query(None);
    let client = Client::builder(base).user_agent(concat!("brokkr/", env!("CARGO_PKG_VERSION"))).build();
    let client = client.map_err(|error| Failure::new(Exit::Usage, format!("--metrics: {error}")))?;
    Ok((url.origin().ascii_serialization(), client))
}

/// Writes a new file that only its owner can read; an existing file is not replaced.
fn write(path: &Path, bytes: &[u8]) -> Result {
    let open = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    open.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot write {}: {error}", path.display())))
}

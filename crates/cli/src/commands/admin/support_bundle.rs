//! `brokkr admin support-bundle`: reads what `crate::bundle` makes an archive of, and writes it.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use brokkr_api::page::Page;
use brokkr_api::stacks::Stack;
use brokkr_client::{AuditQuery, Client, ClientError, EventQuery, PageQuery};
use jiff::Timestamp;
use serde_json::json;
use url::Url;

use super::preflight::{ask, each};
use crate::args::{Global, SupportBundle};
use crate::bundle::{AgentTold, Gathered, Missing, StackTold, files, packed};
use crate::connect::{Replicas, connect_to_replicas};
use crate::failure::{Exit, Failure};
use crate::preflight::{Asked, Unanswered};
use crate::printer::Printer;

const EVENTS: u32 = 500;
const ENTRIES: u32 = 200;
/// Pages of agents; each has five hundred.
const PAGES: usize = 10;
/// Stacks that are asked about one by one.
const ASKED_EACH: usize = 200;

pub async fn run(args: SupportBundle, global: &Global, printer: Printer) -> Result<(), Failure> {
    let mut places = Vec::new();
    for place in &args.metrics {
        places.push(metrics_client(place)?);
    }
    let now = Timestamp::now();
    let file = args
        .file
        .unwrap_or_else(|| PathBuf::from(now.strftime("brokkr-support-%Y%m%dT%H%M%SZ.tar.gz").to_string()));
    let is_stdout = file.as_os_str() == "-";
    if is_stdout && printer.prints_to_terminal() {
        return Err(Failure::new(Exit::Usage, "an archive is nothing for a terminal")
            .next("write it into a file: --file FILE"));
    }
    let replicas = connect_to_replicas(global).await?;
    let gathered = printer.patiently("reading", Box::pin(gather(&replicas, places))).await;
    let (files, missing) = files(&gathered, now);
    let bytes = packed(&files, now)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot make the archive: {error}")))?;
    tell(&missing, printer);
    if is_stdout {
        return printer.bytes(&bytes);
    }
    write(&file, &bytes)?;
    let shown = file.display().to_string();
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    let document = json!({"file": shown, "files": names, "missing": missing});
    printer.done(&document, format!("file/{shown}"), || {
        format!("{shown} is written, with {} files", names.len())
    })?;
    printer.note(&format!("look through it before you send it on: tar -xzf {shown}"));
    Ok(())
}

fn tell(missing: &[Missing], printer: Printer) {
    for missing in missing {
        printer.note(&format!("missing: {}: {}", missing.what, missing.why));
    }
}

async fn gather(replicas: &Replicas, places: Vec<(String, Client)>) -> Gathered {
    let client = &replicas.client;
    let answers = Box::pin(ask(replicas)).await;
    let metrics = each(places, metrics);
    let proxy = client.proxy_hint();
    if matches!(answers.system, Err(Unanswered::NotAsked)) {
        let (agents, stacks) = (Err(Unanswered::NotAsked), Err(Unanswered::NotAsked));
        let (events, audit) = (Err(Unanswered::NotAsked), Err(Unanswered::NotAsked));
        return Gathered { answers, proxy, agents, stacks, events, audit, metrics: metrics.await };
    }
    let (query, latest) = (EventQuery::default(), PageQuery { limit: Some(EVENTS), after: None });
    let (entries, newest) = (AuditQuery::default(), PageQuery { limit: Some(ENTRIES), after: None });
    let (agents, stacks, events, audit, metrics) = tokio::join!(
        agents(client),
        stacks(client),
        client.events(&query, &latest),
        client.audit(&entries, &newest),
        metrics,
    );
    Gathered {
        answers,
        proxy,
        agents: agents.map_err(Unanswered::from),
        stacks: stacks.map_err(Unanswered::from),
        // That there are older ones is no news.
        events: events.map(|page| Page::whole(page.items)).map_err(Unanswered::from),
        audit: audit.map(|page| Page::whole(page.items)).map_err(Unanswered::from),
        metrics,
    }
}

async fn agents(client: &Client) -> Result<Page<AgentTold>, ClientError> {
    let mut query = PageQuery::largest();
    let mut all = Vec::new();
    for _ in 0..PAGES {
        let page = client.agents(&query).await?;
        all.extend(page.items.into_iter().map(AgentTold::from));
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    Ok(Page { items: all, next: query.after, total: None })
}

/// One page of them, and how far the first of those are.
async fn stacks(client: &Client) -> Result<Page<StackTold>, ClientError> {
    let page = client.stacks(&PageQuery::largest()).await?;
    let asked = page.items.iter().take(ASKED_EACH).map(|stack| (stack.id.to_string(), client.clone()));
    let summary = |(stack, client): (String, Client)| async move { client.stack_summary(&stack).await.ok() };
    let mut summaries = each(asked.collect(), summary).await.into_iter();
    Ok(page.map(|stack: Stack| StackTold::new(stack, summaries.next().flatten())))
}

async fn metrics((place, client): (String, Client)) -> (String, Asked<String>) {
    let text = client.metrics().await.map_err(Unanswered::from);
    (place, text)
}

/// That listener wants no credentials, and gets none.
fn metrics_client(place: &Url) -> Result<(String, Client), Failure> {
    let mut base = place.clone();
    let path = base.path().trim_end_matches('/').trim_end_matches("/metrics").to_owned();
    base.set_path(&path);
    base.set_query(None);
    let client = Client::builder(base).user_agent(concat!("brokkr/", env!("CARGO_PKG_VERSION"))).build();
    let client = client.map_err(|error| Failure::new(Exit::Usage, format!("--metrics: {error}")))?;
    Ok((place.origin().ascii_serialization(), client))
}

/// For the eyes of whoever made it; a file that is there already stays as it is.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let open = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    open.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot write {}: {error}", path.display())))
}

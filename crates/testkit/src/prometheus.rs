//! A real Prometheus: the installed package, with a data folder and a port of its own.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::port::Port;
use crate::process::{Launch, Output, Process, run};
use crate::scratch::Scratch;

const START_DEADLINE: Duration = Duration::from_secs(60);

/// A scrape target.
#[derive(Clone, Debug)]
pub struct Target {
    pub job: &'static str,
    pub address: String,
    /// Labels of all its series.
    pub labels: Vec<(&'static str, String)>,
}

/// A Prometheus that scrapes every second.
#[derive(Debug)]
pub struct Prometheus {
    // Dropped first: the process must be gone before its folder is.
    _process: Process,
    port: Port,
    http: reqwest::Client,
    started: f64,
    _scratch: Scratch,
}

impl Prometheus {
    /// Starts it with these rules, and waits until it answers.
    pub async fn start(targets: &[Target], rules: &Path) -> Result<Self> {
        let (scratch, port) = (Scratch::new("prometheus")?, Port::free()?);
        let config = scratch.write("prometheus.yaml", config(targets, rules))?;
        let launch = Launch::new("prometheus", program("prometheus")?)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", scratch.join("data").display()))
            .arg(format!("--web.listen-address={}", port.address()))
            .folder(scratch.path());
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build()?;
        let started = now()?;
        let process = Process::start(launch, scratch.path())?;
        let ready = format!("http://{}/-/ready", port.address());
        let is_ready =
            async || http.get(&ready).send().await.is_ok_and(|answer| answer.status().is_success());
        process.ready_when(START_DEADLINE, is_ready).await.context("Prometheus did not become ready")?;
        Ok(Self { _process: process, port, http, started, _scratch: scratch })
    }

    /// Returns the series that an expression had at any time since the start, without NaN values.
    pub async fn ever(&self, expression: &str) -> Result<Vec<Value>> {
        let (start, end) = (format!("{:.3}", self.started), format!("{:.3}", now()?));
        let parameters = [("query", expression), ("start", &start), ("end", &end), ("step", "1")];
        let answer = self.get("query_range", &parameters).await?;
        let mut series = answer["data"]["result"].as_array().cloned().unwrap_or_default();
        for one in &mut series {
            let values = one["values"].as_array_mut().context("values of a series")?;
            values.retain(|value| value[1].as_str().is_some_and(|value| value != "NaN"));
        }
        series.retain(|one| one["values"].as_array().is_some_and(|values| !values.is_empty()));
        Ok(series)
    }

    /// Returns the loaded rules with their state.
    pub async fn rules(&self) -> Result<Vec<Value>> {
        let answer = self.get("rules", &[]).await?;
        let groups = answer["data"]["groups"].as_array().cloned().unwrap_or_default();
        Ok(groups.iter().filter_map(|group| group["rules"].as_array()).flatten().cloned().collect())
    }

    async fn get(&self, what: &str, parameters: &[(&str, &str)]) -> Result<Value> {
        let url = format!("http://{}/api/v1/{what}", self.port.address());
        let answer = self.http.get(url).query(parameters).send().await?.text().await?;
        let answer: Value = serde_json::from_str(&answer).with_context(|| answer.clone())?;
        if answer["status"] != "success" {
            bail!("Prometheus returned {answer} for {parameters:?}");
        }
        Ok(answer)
    }
}

/// Runs promtool in a folder.
pub async fn promtool(folder: &Path, arguments: &[&str]) -> Result<Output> {
    let launch = Launch::new("promtool", program("promtool")?).args(arguments).folder(folder);
    run(launch, START_DEADLINE).await
}

fn config(targets: &[Target], rules: &Path) -> String {
    let mut text = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [\"{}\"]\nscrape_configs:\n",
        rules.display()
    );
    let mut jobs: Vec<&str> = targets.iter().map(|target| target.job).collect();
    jobs.sort_unstable();
    jobs.dedup();
    for job in jobs {
        text.push_str(&format!("- job_name: {job}\n  static_configs:\n"));
        for target in targets.iter().filter(|target| target.job == job) {
            let labels: Vec<String> =
                target.labels.iter().map(|(key, value)| format!("{key}: \"{value}\"")).collect();
            text.push_str(&format!(
                "  - {{targets: [\"{}\"], labels: {{{}}}}}\n",
                target.address,
                labels.join(", ")
            ));
        }
    }
    text
}

fn program(name: &str) -> Result<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.with_context(|| format!("{name} is not on the PATH: Debian's package `prometheus` has it"))
}

fn now() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

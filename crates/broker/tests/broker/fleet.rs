//! A broker process with TLS and many agents in its database, for tests of the cost per agent.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::protocol::{ENVELOPE_MEDIA_TYPE, header};
use brokkr_api::{AgentId, InstallationId};
use brokkr_broker::store::schema::schema_migrate;
use brokkr_testkit::tls::{Authority, Identity};
use brokkr_testkit::{Database, Launch, Port, Postgres, Process, Scratch};
use reqwest::{Certificate, Client, ClientBuilder, RequestBuilder, StatusCode};
use serde_json::json;

use crate::harness::Key;

const PROGRAM: &str = env!("CARGO_BIN_EXE_brokkr-broker");
const SOON: Duration = Duration::from_secs(60);

pub struct Fleet {
    pub process: Process,
    pub members: Vec<AgentId>,
    pub port: Port,
    pub admin: Port,
    pub database: Database,
    pub authority: Authority,
    pub identity: Identity,
    installation: InstallationId,
    key: Key,
    _scratch: Scratch,
    _postgres: Arc<Postgres>,
}

impl Fleet {
    /// Adds agents that all have the same key, because joining is not measured.
    pub async fn start(agents: usize, arguments: &[&str]) -> Result<Self> {
        Self::launch(Launch::new("brokkr-broker", PROGRAM), agents, arguments).await
    }

    /// Starts a broker that may open only so many files.
    pub async fn start_with_files(files: u32, arguments: &[&str]) -> Result<Self> {
        let limited = format!("ulimit -n {files}; exec \"$@\"");
        let launch = Launch::new("brokkr-broker", "/bin/sh").args(["-c", &limited, "sh", PROGRAM]);
        Self::launch(launch, 1, arguments).await
    }

    async fn launch(launch: Launch, agents: usize, arguments: &[&str]) -> Result<Self> {
        // Fails if it is already installed.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let postgres = Postgres::shared().await?;
        let database =
            postgres.database_like("broker_schema", async |url| Ok(schema_migrate(url).await?)).await?;
        let (key, members) = (Key::generate()?, members(&database, agents).await?);
        let mut connection = database.connect().await?;
        sqlx::query("UPDATE agents SET public_key = $1").bind(key.bytes()?).execute(&mut connection).await?;
        let installation: uuid::Uuid =
            sqlx::query_scalar("SELECT id FROM installation").fetch_one(&mut connection).await?;
        let (authority, scratch) = (Authority::new("fleet")?, Scratch::new("fleet")?);
        let (port, admin) = (Port::free()?, Port::free()?);
        let identity = authority.server(&scratch, "broker", &[])?;
        let launch = launch
            .args(["serve", "--listen", &port.address(), "--database-url", &database.url()])
            .args(["--admin-listen", &admin.address()])
            .arg("--tls-cert")
            .arg(&identity.certificate)
            .arg("--tls-key")
            .arg(&identity.key)
            .args(arguments);
        let process = Process::start(launch, scratch.path())?;
        let fleet = Self {
            process,
            members,
            port,
            admin,
            database,
            authority,
            identity,
            installation: InstallationId(installation),
            key,
            _scratch: scratch,
            _postgres: postgres,
        };
        fleet.ready().await?;
        Ok(fleet)
    }

    pub async fn ready(&self) -> Result<()> {
        let (client, url) = (self.client(false)?, self.url("/readyz"));
        let ready = async || client.get(&url).send().await.is_ok_and(|answer| answer.status().is_success());
        self.process.ready_when(SOON, ready).await
    }

    /// Returns the response of the admin listener.
    pub async fn asked(&self, path: &str) -> Result<(StatusCode, String)> {
        let client = Client::builder().no_proxy().build()?;
        let answer = client.get(format!("http://{}{path}", self.admin.address())).send().await?;
        Ok((answer.status(), answer.text().await?))
    }

    /// Returns the value of a metric, by its name and labels.
    pub async fn figure(&self, name: &str) -> Result<f64> {
        let (_, text) = self.asked("/metrics").await?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.with_context(|| format!("no {name} in {text}"))?.parse()?)
    }

    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.port.address())
    }

    pub fn client_builder(&self) -> Result<ClientBuilder> {
        let trusted = Certificate::from_pem(self.authority.pem().as_bytes())?;
        Ok(Client::builder().tls_certs_only([trusted]).no_proxy())
    }

    /// Returns a client with its own connections.
    pub fn client(&self, http2: bool) -> Result<Client> {
        let builder = self.client_builder()?;
        Ok(if http2 { builder } else { builder.http1_only() }.build()?)
    }

    pub fn credential(&self, agent: AgentId) -> Result<String> {
        let now = jiff::Timestamp::now().as_second();
        let audience = self.installation;
        self.key.sign(&json!({ "iss": agent, "sub": agent, "aud": audience, "iat": now, "exp": now + 300 }))
    }

    pub fn poll(&self, client: &Client, agent: AgentId) -> Result<RequestBuilder> {
        Ok(client
            .get(self.url(&format!("/api/v1/agents/{agent}/target-state")))
            .bearer_auth(self.credential(agent)?)
            .header("accept", ENVELOPE_MEDIA_TYPE)
            .header(header::PROTOCOL, "1"))
    }

    /// Returns the resident memory of the process, in bytes.
    pub fn resident(&self) -> Result<usize> {
        let status = self.of_process("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("a figure")?;
        let kilobytes: usize = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kilobytes * 1024)
    }

    fn of_process(&self, file: &str) -> Result<String> {
        let pid = self.process.pid().context("it runs")?;
        Ok(std::fs::read_to_string(format!("/proc/{pid}/{file}"))?)
    }
}

async fn members(database: &Database, agents: usize) -> Result<Vec<AgentId>> {
    let ids: Vec<uuid::Uuid> = (0..agents).map(|_| uuid::Uuid::now_v7()).collect();
    let mut connection = database.connect().await?;
    sqlx::query(
        "INSERT INTO agents (id, name, status, labels, public_key) \
         SELECT id, 'shop-' || number, 'ACTIVE', '{\"env\": \"prod\"}', decode(repeat('00', 32), 'hex') \
         FROM unnest($1::uuid[]) WITH ORDINALITY AS given (id, number)",
    )
    .bind(&ids)
    .execute(&mut connection)
    .await?;
    Ok(ids.into_iter().map(AgentId).collect())
}

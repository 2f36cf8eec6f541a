//! A broker beside clusters with real nodes, as in demo/compose.yaml: their Pods reach it at the address of the host.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use brokkr_testkit::{Cluster, Database, Launch, Port, Postgres, Process, Scratch, programs};
use tokio::net::TcpStream;

use crate::installation::{DEADLINE, Terminal};

pub struct BrokerBeside {
    // Dropped in this order: the broker before its database, the database before its server.
    _process: Process,
    _database: Database,
    _postgres: Arc<Postgres>,
    url: String,
    folder: PathBuf,
    _port: Port,
}

impl BrokerBeside {
    /// Starts a broker that is set up for evaluation.
    pub async fn start(cluster: &Cluster, scratch: &Scratch) -> Result<Self> {
        let postgres = Postgres::shared().await?;
        let (database, host, port) = (postgres.database().await?, cluster.host_address()?, Port::free()?);
        let (address, folder) = (format!("{host}:{}", port.number()), scratch.join("evaluation"));
        let up = Launch::new("brokkr-broker", programs::program("brokkr-broker")?)
            .args(["up", "--listen", &address, "--name", &host.to_string(), "--folder"])
            .arg(&folder)
            .env("BROKKR_DATABASE_URL", database.url());
        let process = Process::start(up, scratch.path())?;
        process.ready_when(DEADLINE, async || TcpStream::connect(&address).await.is_ok()).await?;
        let url = format!("https://{address}");
        Ok(Self { _process: process, _database: database, _postgres: postgres, url, folder, _port: port })
    }

    /// Types a command in this terminal, logged in as the administrator.
    pub async fn types(&self, terminal: &Terminal, command: &str) -> Result<String> {
        let exports: String =
            self.login().iter().map(|(name, value)| format!("export {name}='{value}'\n")).collect();
        Ok(terminal.types(&format!("{exports}{command}")).await?.stdout)
    }

    /// Returns the environment in which `brokkr` is logged in as the administrator.
    pub fn login(&self) -> [(&'static str, String); 3] {
        let file = |name: &str| self.folder.join(name).display().to_string();
        [
            ("BROKKR_SERVER", self.url.clone()),
            ("BROKKR_CA_FILE", file("ca.pem")),
            ("BROKKR_TOKEN_FILE", file("admin-token")),
        ]
    }
}

//! The server process: initdb, start, kill, restart.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};
use sqlx::{Connection, PgConnection};

use super::Facts;
use crate::eventually::eventually;
use crate::names::unique;
use crate::port::Port;
use crate::process::{Launch, Process, is_alive, run};
use crate::scratch::Scratch;

const START_DEADLINE: Duration = Duration::from_secs(60);

/// Whether a commit waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// For servers that are not killed: a kill may lose the last commits, a power failure the whole database.
    None,
    /// As in production.
    Full,
}

/// A private PostgreSQL server.
#[derive(Debug)]
pub struct Server {
    // Dropped first: the process must be gone before its folder is.
    process: Process,
    port: Port,
    scratch: Scratch,
}

/// A base backup of a server, beside its data.
#[derive(Debug)]
pub struct Backup {
    folder: PathBuf,
}

impl Server {
    pub(super) async fn start(durability: Durability, settings: &[&str]) -> Result<Self> {
        let programs = programs()?;
        let scratch = Scratch::new("postgres")?;
        let data = scratch.join("data");
        fs::create_dir(&data)?;
        let user = unprivileged_user()?;
        if let Some((user, group)) = user {
            chown(&data, Some(user), Some(group))?;
        }

        let initdb = Launch::new("initdb", programs.join("initdb"))
            .args(["--no-sync", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(&data)
            .folder(scratch.path())
            .user(user);
        run(initdb, START_DEADLINE).await?.ok()?;

        Self::start_on(scratch, durability, settings).await
    }

    /// Starts a standby of this server, which follows it asynchronously.
    pub async fn standby(&self) -> Result<super::Postgres> {
        let scratch = Scratch::new("standby")?;
        let data = scratch.join("data");
        self.base_backup(&data, &["--write-recovery-conf"]).await?;
        Ok(super::Postgres::private(Self::start_on(scratch, Durability::Full, &[]).await?))
    }

    /// Makes commits wait until a standby has confirmed them.
    pub async fn replicate_synchronously(&self) -> Result<()> {
        let mut direct = PgConnection::connect(&self.facts().url("postgres")).await?;
        sqlx::query("ALTER SYSTEM SET synchronous_standby_names = '*'").execute(&mut direct).await?;
        sqlx::query("SELECT pg_reload_conf()").execute(&mut direct).await?;
        eventually(START_DEADLINE, "a standby to be synchronous", async || {
            let synchronous = "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')";
            sqlx::query_scalar::<_, bool>(synchronous).fetch_one(&mut direct).await.is_ok_and(|found| found)
        })
        .await
    }

    /// Makes a standby receive nothing more from its primary.
    pub async fn stop_following(&self) -> Result<()> {
        let mut direct = PgConnection::connect(&self.facts().url("postgres")).await?;
        sqlx::query("ALTER SYSTEM SET primary_conninfo = ''").execute(&mut direct).await?;
        sqlx::query("SELECT pg_reload_conf()").execute(&mut direct).await?;
        eventually(START_DEADLINE, "the standby to stop receiving", async || {
            let receiving = "SELECT EXISTS (SELECT FROM pg_stat_wal_receiver)";
            sqlx::query_scalar::<_, bool>(receiving).fetch_one(&mut direct).await.is_ok_and(|found| !found)
        })
        .await
    }

    /// Makes a standby a primary, and waits until it is one.
    pub async fn promote(&self) -> Result<()> {
        let mut direct = PgConnection::connect(&self.facts().url("postgres")).await?;
        let promoted: bool = sqlx::query_scalar("SELECT pg_promote()").fetch_one(&mut direct).await?;
        anyhow::ensure!(promoted, "the standby was not promoted in time");
        Ok(())
    }

    /// Starts a server on the folder `data`.
    async fn start_on(scratch: Scratch, durability: Durability, settings: &[&str]) -> Result<Self> {
        let port = Port::free()?;
        let on_off = if durability == Durability::Full { "on" } else { "off" };
        let postgres = Launch::new("postgres", programs()?.join("postgres"))
            .arg("-D")
            .arg(scratch.join("data"))
            .folder(scratch.path())
            .user(unprivileged_user()?)
            // SIGKILL would leave shared memory in the kernel.
            .last_signal(Signal::SIGQUIT)
            .args(
                [
                    format!("port={}", port.number()),
                    "listen_addresses=127.0.0.1".into(),
                    "unix_socket_directories=".into(),
                    "max_connections=500".into(),
                    "shared_buffers=128MB".into(),
                    // Files in the data folder instead of /dev/shm, where they would remain after SIGKILL.
                    "dynamic_shared_memory_type=mmap".into(),
                    "timezone=UTC".into(),
                    format!("fsync={on_off}"),
                    format!("synchronous_commit={on_off}"),
                    format!("full_page_writes={on_off}"),
                ]
                .iter()
                .flat_map(|setting| ["-c", setting]),
            )
            .args(settings.iter().flat_map(|setting| ["-c", setting]));
        let server = Self { process: Process::start(postgres, scratch.path())?, port, scratch };
        server.ready().await?;
        Ok(server)
    }

    pub(super) fn facts(&self) -> Facts {
        Facts { port: self.port.number() }
    }

    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Kills it, and every process that it started, without warning.
    pub async fn kill9(&self) -> Result<()> {
        // Its children have their own process groups and notice its death only after a moment. Until then a new
        // server refuses to start, because they still use the shared memory.
        let children = self.process.pid().map(children).unwrap_or_default();
        self.process.kill9();
        for &child in &children {
            if let Ok(child) = i32::try_from(child) {
                let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
            }
        }
        let what = "the processes of PostgreSQL to be gone";
        eventually(START_DEADLINE, what, async || !children.iter().any(|&child| is_alive(child))).await
    }

    /// Starts it again after it was killed; with [`Durability::Full`], it recovers all commits.
    pub async fn start_again(&self) -> Result<()> {
        self.process.start_again()?;
        self.ready().await
    }

    /// Takes a base backup while the server runs.
    pub async fn back_up(&self) -> Result<Backup> {
        let folder = self.scratch.join(unique("backup"));
        self.base_backup(&folder, &[]).await?;
        Ok(Backup { folder })
    }

    async fn base_backup(&self, folder: &Path, options: &[&str]) -> Result<()> {
        fs::create_dir(folder)?;
        // PostgreSQL refuses a data folder that others may read.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
        let user = unprivileged_user()?;
        if let Some((user, group)) = user {
            chown(folder, Some(user), Some(group))?;
        }
        let launch = Launch::new("pg_basebackup", programs()?.join("pg_basebackup"))
            .args(["--host=127.0.0.1", "--username=postgres", "--checkpoint=fast", "--wal-method=stream"])
            .args(["--no-sync".to_owned(), format!("--port={}", self.port.number())])
            .args(options)
            .arg("-D")
            .arg(folder)
            .folder(self.scratch.path())
            .user(user);
        run(launch, START_DEADLINE).await?.ok()?;
        Ok(())
    }

    /// Restores the backup: kills the server, replaces its data, and starts it again.
    pub async fn restore(&self, backup: &Backup) -> Result<()> {
        self.kill9().await?;
        let data = self.scratch.join("data");
        fs::rename(&data, self.scratch.join(unique("lost")))?;
        let copy = Launch::new("cp", "/bin/cp").arg("-a").arg(&backup.folder).arg(&data);
        run(copy, START_DEADLINE).await?.ok()?;
        self.start_again().await
    }

    async fn ready(&self) -> Result<()> {
        let url = self.facts().url("postgres");
        self.process.ready_when(START_DEADLINE, async || PgConnection::connect(&url).await.is_ok()).await
    }
}

fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Returns the folder with `postgres` and `initdb`: that of the newest installed package, or else one on the
/// PATH.
fn programs() -> Result<PathBuf> {
    let packaged = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = packaged
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort();
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<PathBuf> = std::env::split_paths(&on_path).collect();
    let newest_first = versions.into_iter().rev().map(|(_, folder)| folder);
    match newest_first.chain(on_path).find(|folder| has_server(folder)) {
        Some(folder) => Ok(folder),
        None => bail!("PostgreSQL is not installed: neither in /usr/lib/postgresql nor on the PATH"),
    }
}

fn has_server(folder: &Path) -> bool {
    folder.join("postgres").is_file() && folder.join("initdb").is_file()
}

/// Returns the user to run PostgreSQL and its pooler as, because they refuse to run as root; none if this process is not root.
pub(super) fn unprivileged_user() -> Result<Option<(u32, u32)>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let Some(user) = User::from_name(name).context("cannot read the list of users")? {
            return Ok(Some((user.uid.as_raw(), user.gid.as_raw())));
        }
    }
    bail!("PostgreSQL cannot run as root, and there is neither a user postgres nor nobody")
}

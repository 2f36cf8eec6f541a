//! `brokkr-broker up`: a broker for evaluation, from a database and one command.
//!
//! Not for production: one process, its own certificate authority, an admin token in a file. But no credential is a
//! known default, and it uses TLS: the evaluation uses the same code paths as production.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Parser as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use secrecy::ExposeSecret as _;

use crate::args::{Args, Command, ServeArgs, UpArgs};
use crate::store::schema;

/// Longer than an evaluation takes.
const TOKEN_VALID_FOR: Duration = Duration::from_secs(90 * 24 * 3600);
const AUTHORITY: &str = "ca.pem";
const CERTIFICATE: &str = "broker.pem";
const KEY: &str = "broker.key";
const TOKEN: &str = "admin-token";
const SECRET_KEY: &str = "secret-key";

pub async fn run(args: UpArgs) -> Result<()> {
    let folder = &args.folder;
    fs::create_dir_all(folder)
        .with_context(|| format!("failed to create the directory {}", folder.display()))?;
    schema::schema_migrate(args.database.database_url.expose_secret()).await?;
    if !folder.join(KEY).exists() {
        certify(folder, &args.name).context("failed to create certificates")?;
    }
    if !folder.join(SECRET_KEY).exists() {
        write_private(folder, SECRET_KEY, &STANDARD.encode(rand::random::<[u8; 32]>()))?;
    }
    if !folder.join(TOKEN).exists() {
        let made =
            super::first_admin_token(args.database.database_url.expose_secret(), TOKEN_VALID_FOR).await;
        let token = made.with_context(|| {
            format!(
                "{} contains no {TOKEN}; use the directory of the first start, or an empty database",
                folder.display()
            )
        })?;
        write_private(folder, TOKEN, token.expose())?;
    }
    let serve = serve_args(&args)?;
    // A closed pipe must not end the broker.
    let _ = writeln!(std::io::stdout(), "{}", instructions(&args));
    super::serve(serve).await
}

/// Returns the arguments for `serve`; settings that are not named here come from the environment as usual.
fn serve_args(args: &UpArgs) -> Result<ServeArgs> {
    let file = |name: &str| args.folder.join(name);
    let parsed = Args::try_parse_from([
        "brokkr-broker".into(),
        "serve".into(),
        "--database-url".into(),
        args.database.database_url.expose_secret().into(),
        "--listen".into(),
        args.listen.to_string().into(),
        "--tls-cert".into(),
        file(CERTIFICATE).into_os_string(),
        "--tls-key".into(),
        file(KEY).into_os_string(),
    ])?;
    let Command::Serve(mut serve) = parsed.command else {
        bail!("the arguments of serve were not recognised")
    };
    let key = fs::read_to_string(file(SECRET_KEY)).with_context(|| format!("failed to read {SECRET_KEY}"))?;
    serve.webhooks.secret_key.get_or_insert_with(|| key.trim().into());
    // Ctrl-C should end it at once.
    serve.drain_grace = Duration::ZERO;
    serve.drain = Duration::from_secs(2);
    Ok(*serve)
}

fn instructions(args: &UpArgs) -> String {
    let folder = args.folder.display();
    let host = args.name.first().cloned().unwrap_or_else(|| host(args.listen));
    format!(
        "Brokkr for evaluation; its files are in {folder}. Press Ctrl-C to stop. Now log in:\n\n  \
         brokkr login https://{host}:{} --token-file {folder}/{TOKEN} --ca-file {folder}/{AUTHORITY}\n",
        args.listen.port()
    )
}

fn host(listen: SocketAddr) -> String {
    let address = listen.ip();
    if address.is_loopback() || address.is_unspecified() {
        "localhost".to_owned()
    } else {
        address.to_string()
    }
}

/// Creates an authority that signs one certificate; the key of the authority is not stored.
fn certify(folder: &Path, names: &[String]) -> Result<()> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    authority.distinguished_name.push(DnType::CommonName, "Brokkr evaluation");
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

    let mut subjects = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    subjects.extend(names.iter().cloned());
    let mut broker = CertificateParams::new(subjects)?;
    broker.distinguished_name.push(DnType::CommonName, "brokkr-broker");
    broker.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    broker.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = broker.signed_by(&key, &authority)?;

    write_private(folder, AUTHORITY, &authority.pem())?;
    write_private(folder, CERTIFICATE, &certificate.pem())?;
    // Written last: if the key exists, the other files exist, too.
    write_private(folder, KEY, &key.serialize_pem())
}

/// Writes a file atomically, readable by its owner only.
fn write_private(folder: &Path, name: &str, text: &str) -> Result<()> {
    let (file, unfinished) = (folder.join(name), folder.join(format!(".{name}.unfinished")));
    let write = || -> std::io::Result<()> {
        let mut open =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        open.write_all(text.trim_end().as_bytes())?;
        open.write_all(b"\n")?;
        fs::rename(&unfinished, &file)
    };
    write().with_context(|| format!("failed to write {}", file.display()))
}

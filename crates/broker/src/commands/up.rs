//! `brokkr-broker up`: a broker to try out, from a database and one command.
//!
//! Nothing here is what one would run in earnest: one process, an authority of its own, an admin token in a file. But
//! nothing is a default that everybody knows, either, and it speaks TLS: what is tried is what is used later.

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

/// An evaluation is over by then.
const TOKEN_VALID_FOR: Duration = Duration::from_secs(90 * 24 * 3600);
const AUTHORITY: &str = "ca.pem";
const CERTIFICATE: &str = "broker.pem";
const KEY: &str = "broker.key";
const TOKEN: &str = "admin-token";
const SECRET_KEY: &str = "secret-key";

pub async fn run(args: UpArgs) -> Result<()> {
    let folder = &args.folder;
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    schema::schema_migrate(args.database.database_url.expose_secret()).await?;
    if !folder.join(KEY).exists() {
        certify(folder, &args.name).context("cannot make certificates")?;
    }
    if !folder.join(SECRET_KEY).exists() {
        keep(folder, SECRET_KEY, &STANDARD.encode(rand::random::<[u8; 32]>()))?;
    }
    if !folder.join(TOKEN).exists() {
        let made =
            super::first_admin_token(args.database.database_url.expose_secret(), TOKEN_VALID_FOR).await;
        let token = made.with_context(|| {
            format!(
                "{} holds no {TOKEN}: use the folder of the first time, or an empty database",
                folder.display()
            )
        })?;
        keep(folder, TOKEN, token.expose())?;
    }
    let serve = serve_args(&args)?;
    let told = told(&args);
    // Somebody who does not read it needs no broker that ends for it.
    let _ = writeln!(std::io::stdout(), "{told}");
    super::serve(serve).await
}

/// What `serve` would be given by hand; settings that are not named here come from the environment as ever.
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
    let Command::Serve(mut serve) = parsed.command else { bail!("these are the arguments of serve") };
    let key = fs::read_to_string(file(SECRET_KEY)).with_context(|| format!("cannot read {SECRET_KEY}"))?;
    serve.webhooks.secret_key.get_or_insert_with(|| key.trim().into());
    // Whoever presses Ctrl-C wants it to end.
    serve.drain_grace = Duration::ZERO;
    serve.drain = Duration::from_secs(2);
    Ok(*serve)
}

fn told(args: &UpArgs) -> String {
    let folder = args.folder.display();
    let host = args.name.first().cloned().unwrap_or_else(|| host(args.listen));
    format!(
        "Brokkr to try out; what it made is in {folder}. Ctrl-C ends it. Now log in:\n\n  \
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

/// An authority that signs one certificate; its key is kept by nobody.
fn certify(folder: &Path, names: &[String]) -> Result<()> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    authority.distinguished_name.push(DnType::CommonName, "Brokkr to try out");
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

    let mut subjects = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    subjects.extend(names.iter().cloned());
    let mut broker = CertificateParams::new(subjects)?;
    broker.distinguished_name.push(DnType::CommonName, "brokkr-broker");
    broker.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    broker.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = broker.signed_by(&key, &authority)?;

    keep(folder, AUTHORITY, &authority.pem())?;
    keep(folder, CERTIFICATE, &certificate.pem())?;
    // Last: where it is, the others are, too.
    keep(folder, KEY, &key.serialize_pem())
}

/// For the owner's eyes, and whole or not at all.
fn keep(folder: &Path, name: &str, text: &str) -> Result<()> {
    let (file, unfinished) = (folder.join(name), folder.join(format!(".{name}.unfinished")));
    let write = || -> std::io::Result<()> {
        let mut open =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        open.write_all(text.trim_end().as_bytes())?;
        open.write_all(b"\n")?;
        fs::rename(&unfinished, &file)
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

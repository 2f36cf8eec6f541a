//! A certificate authority for tests, and the certificates it signs, so that clients verify their servers as in production.

use std::path::PathBuf;

use anyhow::{Context, Result};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::scratch::Scratch;

/// A certificate authority that lives as long as the test.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// The first and the last day of its certificates; none for certificates that do not expire.
    term: Option<(Date, Date)>,
}

/// A certificate and its key as files.
#[derive(Clone, Debug)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)
            .with_context(|| format!("cannot make the certificate authority {name}"))?;
        Ok(Self { issuer, term: None })
    }

    /// Returns an authority with certificates that are valid for a month from today.
    pub fn for_a_month(name: &str) -> Result<Self> {
        let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
        Ok(Self { term: Some((today, today.checked_add(1.month())?)), ..Self::new(name)? })
    }

    /// Returns the certificate of the authority itself.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Signs a certificate for a server on the loopback address and writes it into the folder.
    pub fn server(&self, scratch: &Scratch, name: &str, names: &[&str]) -> Result<Identity> {
        let mut subjects = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        subjects.extend(names.iter().map(|&name| name.to_owned()));
        let mut params = CertificateParams::new(subjects)?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        if let Some((first, last)) = self.term {
            let midnight = |day: Date| {
                rcgen::date_time_ymd(day.year().into(), day.month().unsigned_abs(), day.day().unsigned_abs())
            };
            (params.not_before, params.not_after) = (midnight(first), midnight(last));
        }
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity {
            certificate: scratch.write(&format!("{name}.crt"), certificate.pem())?,
            key: scratch.write(&format!("{name}.key"), key.serialize_pem())?,
        })
    }
}

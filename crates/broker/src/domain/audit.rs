//! Entries of the audit log and the hash chain over them.

use brokkr_api::audit::{AuditEntry, AuditHead, AuditKind, RefusalReason};
use brokkr_api::ids::Checksum;
use brokkr_api::names::DEFAULT_PROJECT;
use sha2::{Digest as _, Sha256};

/// An entry that is not written yet.
#[derive(Clone, Debug)]
pub struct AuditRecord {
    pub kind: AuditKind,
    pub project: String,
    pub principal: String,
    pub name: String,
    pub method: String,
    pub route: String,
    pub path: String,
    pub address: String,
    pub status: u16,
    pub request_id: String,
    pub refusal: Option<RefusalReason>,
    pub count: u64,
    /// The reason that the caller gave.
    pub reason: String,
    pub before: Option<Checksum>,
    pub after: Option<Checksum>,
}

impl AuditRecord {
    /// Returns the entry that records the floor of a chain: up to this link, entries may be missing.
    #[must_use]
    pub fn floor(last: &AuditHead, audit_id: i64) -> Self {
        Self {
            project: last.project.clone(),
            principal: "broker".to_owned(),
            route: FLOOR.to_owned(),
            path: last.number.to_string(),
            reason: format!("entries up to {audit_id} are dropped at the end of their retention"),
            after: Some(last.hash),
            ..Self::by_operator("", "")
        }
    }

    /// Returns the entry for a command of the broker that works on the database directly.
    #[must_use]
    pub fn by_operator(name: &str, command: &str) -> Self {
        Self {
            kind: AuditKind::Change,
            project: DEFAULT_PROJECT.to_owned(),
            principal: "operator".to_owned(),
            name: name.to_owned(),
            method: String::new(),
            route: format!("brokkr-broker {command}"),
            path: String::new(),
            address: String::new(),
            status: 200,
            request_id: String::new(),
            refusal: None,
            count: 1,
            reason: String::new(),
            before: None,
            after: None,
        }
    }
}

/// The route of entries that record the floor of a chain. No request has it.
pub const FLOOR: &str = "audit.floor";

/// Returns the floor that the entry records: the last link whose entry may be missing.
#[must_use]
pub fn floor_of(entry: &AuditEntry) -> Option<AuditHead> {
    if entry.route != FLOOR {
        return None;
    }
    let (project, number) = (entry.project.clone(), entry.path.parse().ok()?);
    entry.after.map(|hash| AuditHead { project, number, hash })
}

/// The predecessor of the first link of a chain.
pub const ROOT: Checksum = Checksum([0; 32]);

/// Returns the link of an entry that follows `previous`. Each field is hashed with its length, so that
/// different entries never hash the same bytes.
#[must_use]
pub fn link(previous: Checksum, entry: &AuditEntry) -> Checksum {
    let mut hash = Sha256::new();
    hash.update(b"brokkr audit 1\0");
    hash.update(previous.0);
    hash.update(entry.id.to_be_bytes());
    hash.update(entry.at.as_microsecond().to_be_bytes());
    hash.update(entry.status.to_be_bytes());
    hash.update(entry.count.to_be_bytes());
    let kind = entry.kind.to_string();
    let refusal = entry.refusal.map(|refusal| refusal.to_string()).unwrap_or_default();
    for text in [
        &entry.project,
        &kind,
        &entry.principal,
        &entry.name,
        &entry.method,
        &entry.route,
        &entry.path,
        &entry.address,
        &entry.request_id,
        &refusal,
        &entry.reason,
    ] {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text.as_bytes());
    }
    for digest in [entry.before, entry.after] {
        hash.update([u8::from(digest.is_some())]);
        hash.update(digest.map_or([0; 32], |digest| digest.0));
    }
    Checksum(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> AuditEntry {
        AuditEntry {
            id: 7,
            at: jiff::Timestamp::from_second(1_700_000_000).unwrap(),
            project: "default".into(),
            kind: AuditKind::Change,
            principal: "token:1".into(),
            name: "ci".into(),
            method: "PUT".into(),
            route: "/api/v1/stacks/{stack}".into(),
            path: "/api/v1/stacks/web".into(),
            address: "192.0.2.1".into(),
            status: 200,
            request_id: "r".into(),
            refusal: None,
            count: 1,
            reason: String::new(),
            before: None,
            after: Some(Checksum([1; 32])),
        }
    }

    #[test]
    fn every_field_is_in_the_link() {
        let link_of = |change: &dyn Fn(&mut AuditEntry)| {
            let mut entry = entry();
            change(&mut entry);
            link(ROOT, &entry)
        };
        let changes: [&dyn Fn(&mut AuditEntry); 18] = [
            &|_| {},
            &|entry| entry.id = 8,
            &|entry| entry.at = jiff::Timestamp::UNIX_EPOCH,
            &|entry| entry.project = "shop".into(),
            &|entry| entry.kind = AuditKind::Refused,
            &|entry| entry.principal = "token:2".into(),
            &|entry| entry.name = "cj".into(),
            &|entry| entry.method = "PUTT".into(),
            &|entry| entry.route = "/".into(),
            &|entry| entry.path = "/".into(),
            &|entry| entry.address = String::new(),
            &|entry| entry.status = 201,
            &|entry| entry.request_id = "s".into(),
            &|entry| entry.refusal = Some(RefusalReason::NotTargeted),
            &|entry| entry.reason = "asked by legal".into(),
            &|entry| entry.count = 2,
            &|entry| entry.before = Some(Checksum([1; 32])),
            &|entry| entry.after = None,
        ];
        let links: std::collections::HashSet<Checksum> =
            changes.iter().map(|change| link_of(change)).collect();
        assert_eq!(links.len(), changes.len());
        // Moving a letter from one field to the next changes the link.
        let moved = link_of(&|entry| {
            entry.principal = "token:1c".into();
            entry.name = "i".into();
        });
        assert!(!links.contains(&moved));
        assert_ne!(link(Checksum([9; 32]), &entry()), link(ROOT, &entry()));
    }

    #[test]
    fn only_the_entry_of_a_floor_is_one() {
        assert_eq!(floor_of(&entry()), None);
        let head = AuditHead { project: "shop".into(), number: 7, hash: Checksum([3; 32]) };
        let record = AuditRecord::floor(&head, 90);
        let recorded = AuditEntry {
            project: record.project,
            route: record.route,
            path: record.path,
            after: record.after,
            ..entry()
        };
        assert_eq!(floor_of(&recorded), Some(head));
        assert_eq!(floor_of(&AuditEntry { after: None, ..recorded }), None);
    }
}

//! Splits inventories: small ones stay in the record, larger ones are stored in shards.
//!
//! The shard of an entry depends only on its key. So a small change leaves most shards unchanged, and these
//! are not written again.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use brokkr_api::ids::Checksum;
use brokkr_manifest::Key;
use serde::{Deserialize, Serialize};

use super::pack::{PackError, pack, unpack};
use crate::model::Entry;

/// The maximum size of an inventory in the record, so that `kubectl describe` stays readable.
const INLINE: usize = 16 * 1024;
/// The approximate number of entries in a shard. An entry has about 100 packed bytes; a ConfigMap may have 1
/// MiB.
const ENTRIES: usize = 1024;

/// The inventory as the record holds it: either the text itself, or the names of the shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    pub entries: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<Shard>,
}

/// One ConfigMap with a part of the inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    pub name: String,
    pub digest: Checksum,
}

/// The content of a shard.
pub struct Part {
    pub digest: Checksum,
    pub bytes: Vec<u8>,
}

pub enum Cut {
    Inline(Header),
    Parts(Vec<Part>),
}

pub fn cut(inventory: &BTreeMap<Key, Entry>) -> Result<Cut, PackError> {
    let entries = inventory.len();
    if entries <= ENTRIES {
        let packed = STANDARD.encode(pack(inventory)?);
        if packed.len() <= INLINE {
            return Ok(Cut::Inline(Header { entries, packed: Some(packed), shards: Vec::new() }));
        }
    }
    let count = entries.div_ceil(ENTRIES).next_power_of_two();
    let mut parts = vec![Vec::new(); count];
    for line in inventory {
        parts[bucket(line.0) % count].push(line);
    }
    let packed = parts.into_iter().filter(|part| !part.is_empty()).map(|part| {
        let bytes = pack(part)?;
        Ok(Part { digest: Checksum::of(&bytes), bytes })
    });
    Ok(Cut::Parts(packed.collect::<Result<_, PackError>>()?))
}

fn bucket(key: &Key) -> usize {
    let digest = Checksum::of(key.to_string().as_bytes()).0;
    usize::from(u16::from_be_bytes([digest[0], digest[1]]))
}

impl Header {
    /// Returns the inventory, given the contents of the shards.
    pub fn join(&self, parts: &[Vec<u8>]) -> Result<BTreeMap<Key, Entry>, PackError> {
        let mut inventory = match &self.packed {
            Some(text) => unpack(&STANDARD.decode(text).map_err(|_| PackError::Base64)?)?,
            None => BTreeMap::new(),
        };
        for part in parts {
            inventory.extend(unpack(part)?);
        }
        // A record that lost its text or its shards must never look like one with an empty inventory.
        if inventory.len() != self.entries {
            return Err(PackError::Incomplete { counted: self.entries, found: inventory.len() });
        }
        Ok(inventory)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::{Fingerprint, Origin};
    use crate::resource::{Kind, Served};

    /// Returns an inventory with random uids and digests, because a regular one would compress too well.
    fn inventory(entries: u32) -> BTreeMap<Key, Entry> {
        let kind = |group: &str, kind: &str, plural: &str| {
            Kind::from(Served {
                group: group.into(),
                version: "v1".into(),
                kind: kind.into(),
                plural: plural.into(),
                namespaced: true,
            })
        };
        let kinds = [kind("apps", "Deployment", "deployments"), kind("", "ConfigMap", "configmaps")];
        let line = |number: u32| {
            let kind = &kinds[number as usize % 2];
            let key = format!("{}/{}/shop-{}/web-{number}", kind.group, kind.kind, number % 100);
            let noise = Checksum::of(&number.to_be_bytes()).to_string();
            let entry = Entry {
                kind: kind.clone(),
                origin: if number.is_multiple_of(3) { Origin::Adopted } else { Origin::Created },
                uid: Some(uuid::Uuid::new_v4().to_string().into()),
                digest: Some(Checksum::of(noise.as_bytes())),
                fields: (!number.is_multiple_of(5)).then(|| Fingerprint::of(&noise)),
                completed: number.is_multiple_of(7),
                wave: i64::from(number % 11) - 5,
            };
            (key.parse().unwrap(), entry)
        };
        (0..entries).map(line).collect()
    }

    fn parts(inventory: &BTreeMap<Key, Entry>) -> Vec<Part> {
        match cut(inventory).unwrap() {
            Cut::Parts(parts) => parts,
            Cut::Inline(_) => panic!("{} entries are inline", inventory.len()),
        }
    }

    fn digests(inventory: &BTreeMap<Key, Entry>) -> BTreeSet<Checksum> {
        parts(inventory).iter().map(|part| part.digest).collect()
    }

    #[test]
    fn small_inventories_stay_in_the_record() {
        for entries in [0, 1, 100] {
            let inventory = inventory(entries);
            let Cut::Inline(header) = cut(&inventory).unwrap() else { panic!("{entries} are sharded") };
            assert_eq!(header.join(&[]).unwrap(), inventory);
        }
    }

    #[test]
    fn thirty_thousand_entries_fit_into_shards_and_are_joined_again() {
        for entries in [1_000, 10_000, 30_000] {
            let inventory = inventory(entries);
            let parts = parts(&inventory);
            assert!(parts.len() <= 32, "{} shards", parts.len());
            let largest = parts.iter().map(|part| part.bytes.len()).max().unwrap();
            assert!(largest < 200_000, "{largest} bytes");
            let header = Header { entries: inventory.len(), packed: None, shards: Vec::new() };
            let bytes: Vec<_> = parts.into_iter().map(|part| part.bytes).collect();
            assert_eq!(header.join(&bytes).unwrap(), inventory);
            assert!(header.join(&bytes[1..]).is_err(), "one shard is missing");
        }
    }

    #[test]
    fn one_changed_entry_changes_one_shard() {
        let mut inventory = inventory(10_000);
        let before = digests(&inventory);
        inventory.values_mut().nth(4_321).unwrap().uid = Some("another".into());
        assert_eq!(digests(&inventory).difference(&before).count(), 1);
        let removed = inventory.keys().next().unwrap().clone();
        let before = digests(&inventory);
        inventory.remove(&removed);
        assert_eq!(digests(&inventory).difference(&before).count(), 1);
    }

    #[test]
    fn a_header_that_lost_its_text_is_an_error_and_not_empty() {
        let header = Header { entries: 3, packed: None, shards: Vec::new() };
        assert!(matches!(header.join(&[]), Err(PackError::Incomplete { counted: 3, found: 0 })));
    }
}

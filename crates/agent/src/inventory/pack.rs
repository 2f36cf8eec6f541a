//! An inventory, or a part of one, as bytes: JSON with a table of kinds, compressed with zstd. It is not
//! meant for people: they read the columns that `kubectl get stacks.brokkr.io` shows.

use std::collections::{BTreeMap, BTreeSet};

use brokkr_api::ids::Checksum;
use brokkr_manifest::Key;
use serde::{Deserialize, Serialize};

use crate::model::{Entry, Fingerprint, Origin, Uid};
use crate::resource::Kind;

/// The maximum size of an unpacked inventory: far above any real one.
const LARGEST: usize = 64 * 1024 * 1024;
const LEVEL: i32 = 3;

#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error("the inventory is not base64")]
    Base64,
    #[error("failed to compress or decompress the inventory")]
    Compression(#[source] std::io::Error),
    #[error("failed to parse the record")]
    Json(#[from] serde_json::Error),
    #[error("the inventory refers to a kind that is not in its table of kinds")]
    Kind,
    #[error("the record counts {counted} inventory entries, but contains {found}")]
    Incomplete { counted: usize, found: usize },
}

#[derive(Serialize, Deserialize)]
struct Packed<Row> {
    kinds: Vec<Kind>,
    entries: Vec<Row>,
    /// The positions of the few entries that are completed Jobs.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    completed: BTreeSet<usize>,
    /// The waves of the entries that have one, by their positions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    waves: BTreeMap<usize, i64>,
}

/// Kind (by its index in the table), namespace, name, origin, uid, digest, fields.
type Row<Text, Id, Fields> =
    (usize, Option<Text>, Text, Origin, Option<Id>, Option<Checksum>, Option<Fields>);

pub fn pack<'a>(entries: impl IntoIterator<Item = (&'a Key, &'a Entry)>) -> Result<Vec<u8>, PackError> {
    let mut indexes: BTreeMap<&Kind, usize> = BTreeMap::new();
    let mut packed = Packed {
        kinds: Vec::new(),
        entries: Vec::<Row<&str, &Uid, &Fingerprint>>::new(),
        completed: BTreeSet::new(),
        waves: BTreeMap::new(),
    };
    for (key, entry) in entries {
        let index = *indexes.entry(&entry.kind).or_insert_with(|| {
            packed.kinds.push(entry.kind.clone());
            packed.kinds.len() - 1
        });
        packed.completed.extend(entry.completed.then_some(packed.entries.len()));
        packed.waves.extend((entry.wave != 0).then_some((packed.entries.len(), entry.wave)));
        packed.entries.push((
            index,
            key.namespace.as_deref(),
            &key.name,
            entry.origin,
            entry.uid.as_ref(),
            entry.digest,
            entry.fields.as_ref(),
        ));
    }
    zstd::bulk::compress(&serde_json::to_vec(&packed)?, LEVEL).map_err(PackError::Compression)
}

pub fn unpack(bytes: &[u8]) -> Result<BTreeMap<Key, Entry>, PackError> {
    let json = zstd::bulk::decompress(bytes, LARGEST).map_err(PackError::Compression)?;
    let packed: Packed<Row<String, Uid, Fingerprint>> = serde_json::from_slice(&json)?;
    let entry = |(at, (index, namespace, name, origin, uid, digest, fields))| {
        let kind: &Kind = packed.kinds.get(index).ok_or(PackError::Kind)?;
        let key = Key { group: kind.group.clone(), kind: kind.kind.clone(), namespace, name };
        Ok((
            key,
            Entry {
                kind: kind.clone(),
                origin,
                uid,
                digest,
                fields,
                completed: packed.completed.contains(&at),
                wave: packed.waves.get(&at).copied().unwrap_or_default(),
            },
        ))
    };
    packed.entries.into_iter().enumerate().map(entry).collect()
}

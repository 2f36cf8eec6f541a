//! The inventory as one text: JSON, zstd, base64. Opaque to people, who have the columns of the record.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use brokkr_manifest::Key;

use crate::plan::types::Entry;

/// What a packed inventory may unpack to: far above 10,000 entries, far below what would hurt.
const LARGEST: usize = 64 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error("the inventory is not base64")]
    Base64,
    #[error("the inventory cannot be unpacked")]
    Compression(#[source] std::io::Error),
    #[error("the inventory cannot be read")]
    Json(#[from] serde_json::Error),
}

pub fn pack(inventory: &BTreeMap<Key, Entry>) -> Result<String, PackError> {
    let json = serde_json::to_vec(inventory)?;
    let packed = zstd::bulk::compress(&json, 3).map_err(PackError::Compression)?;
    Ok(STANDARD.encode(packed))
}

pub fn unpack(text: &str) -> Result<BTreeMap<Key, Entry>, PackError> {
    if text.is_empty() {
        return Ok(BTreeMap::new());
    }
    let packed = STANDARD.decode(text).map_err(|_| PackError::Base64)?;
    let json = zstd::bulk::decompress(&packed, LARGEST).map_err(PackError::Compression)?;
    Ok(serde_json::from_slice(&json)?)
}

#[cfg(test)]
mod tests {
    use brokkr_api::ids::Checksum;

    use super::*;
    use crate::plan::types::{Fingerprint, Origin};
    use crate::resource::{Kind, Served};

    #[test]
    fn ten_thousand_entries_survive_and_fit_into_one_object() {
        let inventory: BTreeMap<Key, Entry> = (0..10_000u32)
            .map(|number| {
                let key = format!("apps/Deployment/shop-{}/web-{number}", number % 100).parse().unwrap();
                let noise = Checksum::of(&number.to_be_bytes()).to_string();
                let entry = Entry {
                    kind: Kind::from(Served {
                        group: "apps".into(),
                        version: "v1".into(),
                        kind: "Deployment".into(),
                        plural: "deployments".into(),
                        namespaced: true,
                    }),
                    origin: Origin::Created,
                    // As random as real ones: regular ones would pack better than the truth.
                    uid: Some(uuid::Uuid::new_v4().to_string().into()),
                    digest: Some(Checksum::of(noise.as_bytes())),
                    fields: Some(Fingerprint::of(&format!("apps/v1:{}", &noise[..32]))),
                };
                (key, entry)
            })
            .collect();
        let packed = pack(&inventory).unwrap();
        assert_eq!(unpack(&packed).unwrap(), inventory);
        assert!(packed.len() < 1_200_000, "{} bytes", packed.len());
    }
}

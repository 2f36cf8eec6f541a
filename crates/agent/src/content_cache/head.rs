//! Splits content into Secrets: the first part is in the head, which names the others.

use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, SequenceId, StackId};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::own_objects::{labels, tail};

/// The label with the id of the stack.
pub const CONTENT_OF: &str = "brokkr.io/content-of";
/// The label with the sequence id of the content. Only heads have it.
pub const SEQUENCE: &str = "brokkr.io/sequence";
/// The list of parts. An annotation of the head, so that eviction needs only metadata.
const CONTENT: &str = "brokkr.io/content";
const SECRET_TYPE: &str = "brokkr.io/content";
const PART: &str = "part";
/// A Secret may hold 1 MiB of data.
const PART_BYTES: usize = 900 * 1024;
/// The maximum size of unpacked content: far above what the broker accepts.
const LARGEST: usize = 64 * 1024 * 1024;
const LEVEL: i32 = 3;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    pub checksum: Checksum,
    pub parsed_digest: Checksum,
    /// The size of the content as submitted.
    bytes: usize,
    /// The digest of the part in the head itself.
    first: Checksum,
    /// The Secrets with the other parts, in order. Their names contain the digest of the part.
    pub shards: Vec<Shard>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    pub name: String,
    digest: Checksum,
}

/// Content that was split: the shards are written first, the head last.
pub struct Cut {
    pub head: Secret,
    pub shards: Vec<Secret>,
}

/// The names of the Secrets with the content of a stack.
#[derive(Clone, Copy)]
pub struct ContentNames {
    pub agent: AgentId,
    pub stack: StackId,
}

impl ContentNames {
    #[must_use]
    pub fn head_name(self, sequence: SequenceId) -> String {
        format!("brokkr-content-{}-{sequence}", tail(self.stack))
    }

    fn shard_name(self, digest: Checksum) -> String {
        format!("brokkr-content-{}-part-{}", tail(self.stack), &digest.to_string()[..20])
    }

    fn secret(self, name: String, part: &[u8]) -> Secret {
        Secret {
            metadata: ObjectMeta {
                name: Some(name),
                labels: Some(labels(self.agent, CONTENT_OF, self.stack)),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some([(PART.to_owned(), ByteString(part.to_vec()))].into()),
            ..Secret::default()
        }
    }

    pub fn cut(
        self,
        sequence: SequenceId,
        checksum: Checksum,
        parsed_digest: Checksum,
        content: &[u8],
    ) -> std::io::Result<Cut> {
        let packed = zstd::bulk::compress(content, LEVEL)?;
        let (first, rest) = packed.split_at(packed.len().min(PART_BYTES));
        let mut head = Head {
            checksum,
            parsed_digest,
            bytes: content.len(),
            first: Checksum::of(first),
            shards: Vec::new(),
        };
        let mut shards = Vec::new();
        for part in rest.chunks(PART_BYTES) {
            let digest = Checksum::of(part);
            let name = self.shard_name(digest);
            shards.push(self.secret(name.clone(), part));
            head.shards.push(Shard { name, digest });
        }
        let mut secret = self.secret(self.head_name(sequence), first);
        secret.metadata.labels.get_or_insert_default().insert(SEQUENCE.to_owned(), sequence.to_string());
        secret.metadata.annotations = Some([(CONTENT.to_owned(), serde_json::to_string(&head)?)].into());
        Ok(Cut { head: secret, shards })
    }
}

impl Head {
    /// Reads the head; `None` if it is not a readable head.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        serde_json::from_str(metadata.annotations.as_ref()?.get(CONTENT)?).ok()
    }

    /// Joins the content, if all parts are complete and unchanged.
    #[must_use]
    pub fn join(&self, first: Secret, shards: Vec<Secret>) -> Option<Vec<u8>> {
        let mut packed = part(first, self.first)?;
        if shards.len() != self.shards.len() {
            return None;
        }
        for (shard, found) in self.shards.iter().zip(shards) {
            packed.extend(part(found, shard.digest)?);
        }
        let content = zstd::bulk::decompress(&packed, self.bytes.min(LARGEST)).ok()?;
        (Checksum::of(&content) == self.checksum).then_some(content)
    }
}

fn part(secret: Secret, digest: Checksum) -> Option<Vec<u8>> {
    let part = secret.data?.remove(PART)?.0;
    (Checksum::of(&part) == digest).then_some(part)
}

#[cfg(test)]
mod tests {
    use rand::RngExt as _;

    use super::*;

    const SEQUENCE_ID: SequenceId = SequenceId(7);

    fn cut(content: &[u8]) -> (Head, Cut) {
        let names = ContentNames { agent: AgentId::generate(), stack: StackId::generate() };
        let cut = names.cut(SEQUENCE_ID, Checksum::of(content), Checksum::of(b"parsed"), content).unwrap();
        (Head::of(&cut.head.metadata).unwrap(), cut)
    }

    /// Returns random bytes, which cannot be compressed, so that there are shards.
    fn large() -> Vec<u8> {
        let mut bytes = vec![0; 2_500_000];
        rand::rng().fill(bytes.as_mut_slice());
        bytes
    }

    #[test]
    fn contents_of_any_size_are_split_and_joined() {
        for content in [b"".to_vec(), b"kind: ConfigMap".to_vec(), large()] {
            let (head, Cut { head: first, shards }) = cut(&content);
            assert_eq!(shards.len(), content.len() / PART_BYTES);
            assert_eq!(head.join(first, shards), Some(content));
        }
    }

    #[test]
    fn a_damaged_or_incomplete_content_counts_as_absent() {
        let (head, Cut { head: first, shards }) = cut(&large());
        assert_eq!(head.join(first.clone(), shards[..1].to_vec()), None);
        let swapped = vec![shards[1].clone(), shards[0].clone()];
        assert_eq!(head.join(first.clone(), swapped), None);
        let mut damaged = shards.clone();
        damaged[1].data.as_mut().unwrap().get_mut(PART).unwrap().0[5] ^= 1;
        assert_eq!(head.join(first.clone(), damaged), None);
        let other = Head { checksum: Checksum::of(b"another"), ..head };
        assert_eq!(other.join(first, shards), None);
    }
}

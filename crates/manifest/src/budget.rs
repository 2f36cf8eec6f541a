//! Limits on the size and complexity of a manifest.
//!
//! They do not depend on the defaults of the YAML library. These allow only 1,024 documents, and a library
//! update must not change what a broker accepts.

use serde_saphyr::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy, Options};

/// Limits of one manifest. Brokkr uses the default; tests use smaller ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of the manifest as submitted.
    pub total_bytes: usize,
    /// Bytes of one object as canonical JSON. etcd's limit is 1.5 MiB, including fields that controllers add.
    pub object_bytes: usize,
    /// Objects in one manifest, after lists are flattened.
    pub objects: usize,
    /// Total of scalars, mappings and sequences, with aliases expanded.
    pub nodes: usize,
    /// How deep mappings and sequences may nest.
    pub depth: usize,
    /// Total of aliases.
    pub aliases: usize,
    /// How many problems are collected before reading stops.
    pub problems: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            total_bytes: 8 * 1024 * 1024,
            object_bytes: 1024 * 1024,
            objects: 10_000,
            nodes: 1_000_000,
            depth: 100,
            aliases: 50_000,
            problems: 100,
        }
    }
}

impl Budget {
    /// Returns the library's options for this budget. Scalars are YAML 1.1 (`0644` is 420, `yes` is true), as in
    /// kubectl.
    pub(crate) fn yaml_options(&self) -> Options {
        serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_reader_input_bytes: Some(self.total_bytes),
                max_documents: usize::MAX,
                max_nodes: self.nodes,
                // A node is at most two events; the rest is for document markers.
                max_events: self.nodes.saturating_mul(3),
                max_depth: self.depth,
                max_aliases: self.aliases,
                max_anchors: self.aliases,
                max_merge_keys: self.aliases,
                max_recorded_anchor_events: self.nodes,
                max_recorded_anchor_bytes: self.total_bytes.saturating_mul(2),
                max_total_scalar_bytes: self.total_bytes.saturating_mul(2),
                // Hundreds of aliases of one anchor are legitimate; the limits above bound their expansion.
                enforce_alias_anchor_ratio: false,
            },
            alias_limits: serde_saphyr::alias_limits! {
                max_total_replayed_events: self.nodes,
                max_replay_stack_depth: self.depth,
            },
            // Otherwise more than 32 consecutive comment lines are an error, and Helm output contains those.
            emit_comments: false,
            duplicate_keys: DuplicateKeyPolicy::Error,
            merge_keys: MergeKeyPolicy::Merge,
            legacy_octal_numbers: true,
            strict_booleans: false,
            angle_conversions: false,
            no_schema: false,
            non_finite_float_policy: NonFiniteFloatPolicy::Reject,
            // A snippet would quote values, and values may be secret.
            with_snippet: false,
        }
    }

    /// Like [`Budget::yaml_options`], but without aliases, for the second pass: its limits are per document, so nothing
    /// else bounds the total expansion.
    pub(crate) fn yaml_options_without_aliases(&self) -> Options {
        let mut options = self.yaml_options();
        if let Some(budget) = options.budget.as_mut() {
            budget.max_aliases = 0;
        }
        options
    }
}

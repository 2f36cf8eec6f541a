//! Problems in a manifest, their locations, and what to do about them.
//!
//! No message quotes a value: users who see an error may not be allowed to see the Secret. Names of fields, labels and
//! resources are not values.

use std::fmt;

/// Every problem that was found in one manifest; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestErrors {
    errors: Vec<ManifestError>,
    stopped: bool,
}

impl ManifestErrors {
    pub(crate) fn new(errors: Vec<ManifestError>, stopped: bool) -> Self {
        Self { errors, stopped }
    }

    pub fn iter(&self) -> std::slice::Iter<'_, ManifestError> {
        self.errors.iter()
    }

    pub fn len(&self) -> usize {
        self.errors.len()
    }

    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// Returns whether parsing stopped early, so that there may be more problems.
    pub fn stopped(&self) -> bool {
        self.stopped
    }
}

impl<'a> IntoIterator for &'a ManifestErrors {
    type Item = &'a ManifestError;
    type IntoIter = std::slice::Iter<'a, ManifestError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for ManifestErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.errors.as_slice() {
            return write!(formatter, "{only}");
        }
        write!(formatter, "the manifest has {} problems:", self.errors.len())?;
        for error in &self.errors {
            write!(formatter, "\n  - {error}")?;
        }
        if self.stopped {
            write!(formatter, "\n  reading stopped here; there may be more")?;
        }
        Ok(())
    }
}

impl std::error::Error for ManifestErrors {}

/// One problem, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ManifestError {
    /// `None` when the problem concerns the whole manifest.
    pub location: Option<Location>,
    /// The resource, as far as it is known, such as `Deployment shop/web`.
    pub resource: Option<String>,
    pub problem: Problem,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write!(formatter, "{location}: ")?;
        }
        if let Some(resource) = &self.resource {
            write!(formatter, "{resource}: ")?;
        }
        self.problem.fmt(formatter)
    }
}

impl From<Problem> for ManifestError {
    fn from(problem: Problem) -> Self {
        Self { location: None, resource: None, problem }
    }
}

/// A location in the manifest. Empty documents are not counted; all numbers start at 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// `None` only if the YAML is too broken to count documents.
    pub document: Option<usize>,
    /// The line of the problem for invalid YAML, otherwise the first line of the document's content.
    pub line: Option<u64>,
    /// The position in each enclosing list, outermost first.
    pub items: Vec<usize>,
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.document, self.line) {
            (Some(document), Some(line)) => write!(formatter, "document {document} (line {line})")?,
            (Some(document), None) => write!(formatter, "document {document}")?,
            (None, Some(line)) => write!(formatter, "line {line}")?,
            (None, None) => formatter.write_str("somewhere in the manifest")?,
        }
        for item in &self.items {
            write!(formatter, ", item {item}")?;
        }
        Ok(())
    }
}

/// The kind of a problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    #[error("the manifest has {bytes} bytes, but at most {limit} are accepted; split the stack")]
    TooLarge { bytes: usize, limit: usize },
    #[error("the manifest is not UTF-8 (first bad byte at offset {offset}); save it as UTF-8")]
    NotUtf8 { offset: usize },
    #[error(
        "the manifest contains no objects; to remove everything, delete the stack instead of emptying it"
    )]
    Empty,
    #[error("the manifest contains more than {limit} objects; split the stack")]
    TooManyObjects { limit: usize },
    #[error("this is not valid YAML: {message}")]
    Syntax { message: String },
    #[error("{} appears twice in the same mapping; remove one of them", key.as_deref().map_or("a key".to_owned(), |key| format!("the key `{key}`")))]
    DuplicateKey { key: Option<String> },
    #[error("infinite numbers and NaN cannot be expressed in JSON; quote the value if it is text")]
    NotFinite,
    #[error(
        "{what} exceed the limit for a manifest; reduce the nesting, use fewer aliases, or split the stack"
    )]
    OverBudget { what: &'static str },
    #[error("this is not a Kubernetes object: a mapping with apiVersion, kind and metadata is expected")]
    NotAnObject,
    #[error("{field} is missing")]
    Missing { field: &'static str },
    #[error("{field} must be text; put quotes around the value")]
    NotText { field: String },
    #[error("{field} must be a mapping")]
    NotAMapping { field: &'static str },
    #[error("{field} must be {rule}")]
    Malformed { field: String, rule: &'static str },
    #[error(
        "metadata.generateName is not supported, because a stack must name its resources; set metadata.name"
    )]
    GenerateName,
    #[error("the object has {bytes} bytes, but at most {limit} are accepted")]
    ObjectTooLarge { bytes: usize, limit: usize },
    #[error("the same resource is already in {first}; keep one of them")]
    Repeated { first: Location },
    #[error(
        "the namespace `{name}` belongs to the cluster and cannot be part of a stack; remove the Namespace object"
    )]
    SystemNamespace { name: String },
    #[error(
        "{what} cannot be part of a stack, because a stack must not change Brokkr's own protection; remove it"
    )]
    BelongsToBrokkr { what: &'static str },
    #[error("the {kind} `{name}` is set by Brokkr itself; remove it")]
    ReservedMetadata {
        /// `label` or `annotation`
        kind: &'static str,
        name: String,
    },
}

impl Problem {
    /// Returns a stable code for programs. Messages may change; codes do not.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "manifest_too_large",
            Self::NotUtf8 { .. } => "manifest_not_utf8",
            Self::Empty => "manifest_empty",
            Self::TooManyObjects { .. } => "manifest_too_many_objects",
            Self::Syntax { .. } => "yaml_invalid",
            Self::DuplicateKey { .. } => "yaml_duplicate_key",
            Self::NotFinite => "yaml_number_not_finite",
            Self::OverBudget { .. } => "yaml_over_budget",
            Self::NotAnObject => "object_not_an_object",
            Self::Missing { .. } => "object_field_missing",
            Self::NotText { .. } | Self::NotAMapping { .. } | Self::Malformed { .. } => {
                "object_field_malformed"
            }
            Self::GenerateName => "object_generate_name",
            Self::ObjectTooLarge { .. } => "object_too_large",
            Self::Repeated { .. } => "object_repeated",
            Self::SystemNamespace { .. } | Self::BelongsToBrokkr { .. } => "object_refused",
            Self::ReservedMetadata { .. } => "object_reserved_mark",
        }
    }
}

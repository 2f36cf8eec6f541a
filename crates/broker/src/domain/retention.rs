//! How long events and the content of versions are kept.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Days that events are kept.
    pub event_days: u32,
    /// Days after which contents of earlier versions are deleted. Contents that an agent may still have are kept.
    pub content_days: u32,
    /// Versions of each stack that keep their contents, however old they are.
    pub content_versions: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self { event_days: 30, content_days: 180, content_versions: 20 }
    }
}

//! How long events, audit entries and the content of versions are kept.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Days that events are kept.
    pub event_days: u32,
    /// Days that audit entries are kept, in whole months.
    pub audit_days: u32,
    /// Days after which the content of earlier versions is deleted. Content that an agent may still have is
    /// kept.
    pub content_days: u32,
    /// Versions of each stack that keep their content, however old they are.
    pub content_versions: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self { event_days: 30, audit_days: 400, content_days: 180, content_versions: 20 }
    }
}

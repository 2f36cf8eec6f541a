//! Contexts.

use serde::Serialize;
use url::Url;

use super::Listed;
use super::table::{GOOD, Table, painted};

/// A context, without its token.
#[derive(Clone, Debug, Serialize)]
pub struct ContextLine {
    pub name: String,
    pub current: bool,
    pub server: Url,
    /// Whether it has additional certificate authorities.
    pub own_authorities: bool,
    pub has_token: bool,
}

impl Listed for ContextLine {
    const NONE: &'static str = "no contexts yet; create one with `brokkr login URL`";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        table
            .plain("CURRENT", |context| painted(if context.current { "*" } else { "" }, GOOD))
            .plain("CONTEXT", |context| &context.name)
            .sentence("SERVER", |context| &context.server)
            .plain("TOKEN", |context| if context.has_token { "stored" } else { "none" })
            .plain("CA", |context| if context.own_authorities { "custom" } else { "system" })
    }

    fn name(&self) -> String {
        format!("context/{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::rendered;
    use super::super::whole;
    use super::*;

    #[test]
    fn contexts() {
        let lab = ContextLine {
            name: "lab".into(),
            current: true,
            server: "https://brokkr.lab.example:8780".parse().unwrap(),
            own_authorities: true,
            has_token: true,
        };
        let prod = ContextLine {
            name: "prod".into(),
            current: false,
            server: "https://brokkr.example".parse().unwrap(),
            own_authorities: false,
            has_token: false,
        };
        insta::assert_snapshot!(rendered(&whole(vec![lab, prod])));
    }
}

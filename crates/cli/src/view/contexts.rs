//! Contexts.

use serde::Serialize;
use url::Url;

use super::table::{GOOD, Table, painted, plain, sentence};
use super::{Listed, RenderOptions};

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

    fn table<'a>(contexts: &[Self], options: &'a RenderOptions) -> Table<'a> {
        let columns = [plain("CURRENT"), plain("CONTEXT"), sentence("SERVER"), plain("TOKEN"), plain("CA")];
        let mut table = Table::new(options, &columns);
        for context in contexts {
            table.row([
                painted(if context.current { "*" } else { "" }, GOOD),
                context.name.clone().into(),
                context.server.to_string().into(),
                if context.has_token { "stored" } else { "none" }.into(),
                if context.own_authorities { "custom" } else { "system" }.into(),
            ]);
        }
        table
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

//! One request, and what it is about.

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

/// A request as it came in.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// What it is about, if it is a request to Kubernetes about resources.
    pub place: Option<Place>,
}

/// The resource in the path of a request to Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub group: String,
    pub resource: String,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

impl Asked {
    pub(super) fn new(parts: &http::request::Parts, body: Bytes) -> Self {
        let path = parts.uri.path().to_owned();
        Self {
            method: parts.method.clone(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            headers: parts.headers.clone(),
            place: Place::of(&path),
            path,
            body,
        }
    }

    /// Whether it could change something. A dry run could not, nor could a question about rights.
    pub fn is_write(&self) -> bool {
        self.method != Method::GET && !self.query.contains("dryRun=All") && !self.path.ends_with("reviews")
    }

    pub fn is_dry_run(&self) -> bool {
        self.query.contains("dryRun=All")
    }

    pub fn is_watch(&self) -> bool {
        self.query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"))
    }

    pub fn is_list(&self) -> bool {
        self.method == Method::GET
            && !self.is_watch()
            && self.place.as_ref().is_some_and(|place| place.name.is_none())
    }

    /// A server-side apply that is not a dry run.
    pub fn is_apply(&self) -> bool {
        self.is_write() && self.method == Method::PATCH && self.query.contains("force=true")
    }

    pub fn is_about(&self, resource: &str) -> bool {
        self.place.as_ref().is_some_and(|place| place.resource == resource)
    }

    pub fn is_named(&self, name: &str) -> bool {
        self.place.as_ref().is_some_and(|place| place.name.as_deref() == Some(name))
    }

    /// The body as JSON; `null` if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// What tells one LIST from another, whatever page or version is asked for.
    pub(super) fn list_key(&self) -> String {
        let selectors: Vec<&str> =
            self.query.split('&').filter(|pair| pair.starts_with("labelSelector=")).collect();
        let accept = self.headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok());
        format!("{} {} {}", self.path, selectors.join("&"), accept.unwrap_or_default())
    }
}

impl Place {
    /// `/api/v1/…` or `/apis/GROUP/VERSION/…`, then `[namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]]`.
    pub fn of(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        parts.next().filter(|version| version.starts_with('v'))?;
        let rest: Vec<&str> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, more @ ..]
                if !more.is_empty() && !matches!(more, ["status" | "finalize"]) =>
            {
                (Some((*namespace).to_owned()), more)
            }
            all => (None, all),
        };
        let at = |number: usize| rest.get(number).map(|part| (*part).to_owned());
        Some(Self { group: group.to_owned(), resource: at(0)?, namespace, name: at(1), subresource: at(2) })
    }
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn paths_tell_what_they_are_about() {
        let place = |path: &str| {
            let place = Place::of(path)?;
            Some(format!(
                "{}/{} in {:?} named {:?} {:?}",
                place.group, place.resource, place.namespace, place.name, place.subresource
            ))
        };
        assert_eq!(
            place("/api/v1/namespaces/shop/configmaps/one").unwrap(),
            r#"/configmaps in Some("shop") named Some("one") None"#
        );
        assert_eq!(
            place("/api/v1/namespaces/shop").unwrap(),
            r#"/namespaces in None named Some("shop") None"#
        );
        assert_eq!(place("/api/v1/configmaps").unwrap(), "/configmaps in None named None None");
        assert_eq!(
            place("/apis/apps/v1/namespaces/shop/deployments/web/scale").unwrap(),
            r#"apps/deployments in Some("shop") named Some("web") Some("scale")"#
        );
        assert_eq!(place("/apis/apps/v1"), None);
        // The broker's paths look alike, and are about agents.
        assert_eq!(place("/readyz"), None);
    }
}

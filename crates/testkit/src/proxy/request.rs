//! One request, and the resource that it is about.

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

/// A request as the proxy received it.
#[derive(Clone, Debug)]
pub struct ProxiedRequest {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The resource, if it is a request to a Kubernetes API server about one.
    pub resource: Option<ResourcePath>,
}

/// The resource in the path of a request to Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePath {
    pub group: String,
    pub resource: String,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

impl ProxiedRequest {
    pub(super) fn new(parts: &http::request::Parts, body: Bytes) -> Self {
        let path = parts.uri.path().to_owned();
        Self {
            method: parts.method.clone(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            headers: parts.headers.clone(),
            resource: ResourcePath::parse(&path),
            path,
            body,
        }
    }

    /// Returns whether it could change something. A dry run or an access review could not.
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
            && self.resource.as_ref().is_some_and(|path| path.name.is_none())
    }

    pub fn is_delete(&self) -> bool {
        self.method == Method::DELETE
    }

    /// Returns whether it is a server-side apply and not a dry run.
    pub fn is_apply(&self) -> bool {
        self.is_write() && self.method == Method::PATCH && self.query.contains("force=true")
    }

    pub fn is_about(&self, resource: &str) -> bool {
        self.resource.as_ref().is_some_and(|path| path.resource == resource)
    }

    pub fn is_named(&self, name: &str) -> bool {
        self.resource.as_ref().is_some_and(|path| path.name.as_deref() == Some(name))
    }

    /// Returns the body as JSON; `null` if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Identifies a LIST regardless of the requested page and version.
    pub(super) fn list_key(&self) -> String {
        let selectors: Vec<&str> =
            self.query.split('&').filter(|pair| pair.starts_with("labelSelector=")).collect();
        let accept = self.headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok());
        format!("{} {} {}", self.path, selectors.join("&"), accept.unwrap_or_default())
    }
}

impl ResourcePath {
    /// `/api/v1/…` or `/apis/GROUP/VERSION/…`, then `[namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]]`.
    pub fn parse(path: &str) -> Option<Self> {
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
    use super::ResourcePath;

    #[test]
    fn a_path_is_split_into_group_resource_namespace_and_name() {
        let parsed = |path: &str| {
            let parsed = ResourcePath::parse(path)?;
            Some(format!(
                "{}/{} in {:?} named {:?} {:?}",
                parsed.group, parsed.resource, parsed.namespace, parsed.name, parsed.subresource
            ))
        };
        assert_eq!(
            parsed("/api/v1/namespaces/shop/configmaps/one").unwrap(),
            r#"/configmaps in Some("shop") named Some("one") None"#
        );
        assert_eq!(
            parsed("/api/v1/namespaces/shop").unwrap(),
            r#"/namespaces in None named Some("shop") None"#
        );
        assert_eq!(parsed("/api/v1/configmaps").unwrap(), "/configmaps in None named None None");
        assert_eq!(
            parsed("/apis/apps/v1/namespaces/shop/deployments/web/scale").unwrap(),
            r#"apps/deployments in Some("shop") named Some("web") Some("scale")"#
        );
        assert_eq!(parsed("/apis/apps/v1"), None);
        // Not about a resource.
        assert_eq!(parsed("/readyz"), None);
    }
}

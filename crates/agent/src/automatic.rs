//! Objects that controllers put into every namespace. They do not keep a namespace that Brokkr created from being deleted.

use std::str::FromStr;

/// OpenShift puts these into every namespace, together with its marker.
const OPENSHIFT: &[(&str, &str)] = &[
    ("ServiceAccount", "builder"),
    ("ServiceAccount", "deployer"),
    ("RoleBinding", "system:deployers"),
    ("RoleBinding", "system:image-builders"),
    ("RoleBinding", "system:image-pullers"),
    ("Secret", "builder-dockercfg-*"),
    ("Secret", "builder-token-*"),
    ("Secret", "default-dockercfg-*"),
    ("Secret", "default-token-*"),
    ("Secret", "deployer-dockercfg-*"),
    ("Secret", "deployer-token-*"),
];

/// An object that a controller of this cluster puts into every namespace: `ConfigMap/istio-ca-root-cert`, or
/// `Secret/pull-secret-*` for every name with this beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutomaticObject {
    kind: String,
    name: String,
}

impl FromStr for AutomaticObject {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((kind, name)) if !kind.is_empty() && !name.trim_end_matches('*').is_empty() => {
                Ok(Self { kind: kind.to_owned(), name: name.to_owned() })
            }
            _ => Err("must be a kind and a name, such as `ConfigMap/istio-ca-root-cert`"),
        }
    }
}

/// Returns whether only OpenShift creates this object, in every namespace. Its other names are ordinary words.
#[must_use]
pub fn is_openshift_marker(group: &str, kind: &str, name: &str) -> bool {
    (group, kind, name) == ("", "ConfigMap", "openshift-service-ca.crt")
}

/// Returns whether a controller creates the object (group, kind and name) in every namespace, or derives it from other
/// objects.
#[must_use]
pub fn is_automatic(object: (&str, &str, &str), on_openshift: bool, more: &[AutomaticObject]) -> bool {
    let (group, kind, name) = object;
    let known = match (group, kind) {
        ("", "ServiceAccount") => name == "default",
        ("", "ConfigMap") => matches!(name, "kube-root-ca.crt" | "istio-ca-root-cert" | "istio-ca-crl"),
        ("", "Event" | "Endpoints") | ("events.k8s.io", "Event") | ("metrics.k8s.io", _) => true,
        _ => false,
    };
    let is = |(of, pattern): (&str, &str)| of == kind && fits(pattern, name);
    let of_openshift = is_openshift_marker(group, kind, name) || OPENSHIFT.iter().copied().any(is);
    known || on_openshift && of_openshift || more.iter().any(|object| is((&object.kind, &object.name)))
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c6_objects_of_controllers_are_known_and_those_of_users_are_not() {
        let more: Vec<AutomaticObject> =
            ["Secret/pull-secret-*", "ConfigMap/trust-bundle"].map(|text| text.parse().unwrap()).into();
        let table = [
            ("ConfigMap", "kube-root-ca.crt", false, true),
            ("ConfigMap", "istio-ca-root-cert", false, true),
            ("ConfigMap", "settings", false, false),
            ("ServiceAccount", "deployer", false, false),
            ("ServiceAccount", "deployer", true, true),
            ("Secret", "deployer-dockercfg-x7f2p", true, true),
            ("Secret", "deployer-password", true, false),
            ("ConfigMap", "openshift-service-ca.crt", true, true),
            ("Secret", "pull-secret-eu", false, true),
            ("ConfigMap", "trust-bundle", false, true),
            ("ConfigMap", "trust-bundle-2", false, false),
            ("ConfigMap", "pull-secret-eu", false, false),
        ];
        for (of, name, on_openshift, automatic) in table {
            assert_eq!(
                is_automatic(("", of, name), on_openshift, &more),
                automatic,
                "{of}/{name} {on_openshift}"
            );
        }
        for text in ["settings", "/settings", "Secret/", "Secret/*"] {
            assert!(text.parse::<AutomaticObject>().is_err(), "{text}");
        }
    }
}

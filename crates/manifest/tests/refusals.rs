//! Objects that no stack may contain.

use brokkr_manifest::{Budget, Problem, parse};

fn problems(text: &str) -> Vec<Problem> {
    match parse(text.as_bytes(), &Budget::default()) {
        Ok(_) => vec![],
        Err(errors) => errors.iter().map(|error| error.problem.clone()).collect(),
    }
}

fn object(api_version: &str, kind: &str, metadata: &str) -> String {
    format!("apiVersion: {api_version}\nkind: {kind}\nmetadata: {{{metadata}}}\n")
}

#[test]
fn c6_system_namespaces_and_brokkrs_own_objects_are_refused_in_any_stack() {
    for name in ["kube-system", "kube-public", "kube-node-lease", "default"] {
        let refused = problems(&object("v1", "Namespace", &format!("name: {name}")));
        assert_eq!(refused, [Problem::SystemNamespace { name: name.to_owned() }]);
    }
    let rbac = "rbac.authorization.k8s.io/v1";
    let admission = "admissionregistration.k8s.io/v1";
    for (api_version, kind, metadata) in [
        ("v1", "Namespace", "name: brokkr-system"),
        ("v1", "ConfigMap", "name: a, namespace: brokkr-system"),
        ("brokkr.io/v1", "Stack", "name: shop-1"),
        ("extra.brokkr.io/v1", "Anything", "name: a"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "name: stacks.brokkr.io"),
        ("apiregistration.k8s.io/v1", "APIService", "name: v1.brokkr.io"),
        (rbac, "ClusterRole", "name: brokkr-agent"),
        (rbac, "ClusterRoleBinding", "name: 'brokkr:agent'"),
        (rbac, "RoleBinding", "name: brokkr-agent, namespace: shop"),
        (admission, "ValidatingAdmissionPolicy", "name: brokkr-fence"),
        (admission, "ValidatingAdmissionPolicyBinding", "name: brokkr-fence"),
        (admission, "ValidatingAdmissionPolicy", "name: images"),
        (admission, "MutatingAdmissionPolicyBinding", "name: images"),
        (admission, "ValidatingWebhookConfiguration", "name: brokkr-webhook"),
    ] {
        let refused = problems(&object(api_version, kind, metadata));
        assert!(
            matches!(refused.as_slice(), [Problem::BelongsToBrokkr { .. }]),
            "{kind} {metadata}: {refused:?}"
        );
    }
    // A definition with a name that does not show its group, and an object in a list.
    let disguised = object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "name: x")
        + "spec: {group: brokkr.io}\n";
    assert!(matches!(problems(&disguised).as_slice(), [Problem::BelongsToBrokkr { .. }]));
    let listed =
        "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Namespace, metadata: {name: default}}]";
    assert!(matches!(problems(listed).as_slice(), [Problem::SystemNamespace { .. }]));
}

#[test]
fn objects_with_similar_names_are_accepted() {
    for (api_version, kind, metadata) in [
        ("v1", "Namespace", "name: shop"),
        ("v1", "ConfigMap", "name: coredns, namespace: kube-system"),
        ("v1", "ConfigMap", "name: brokkr-settings, namespace: shop"),
        ("notbrokkr.io/v1", "Stack", "name: a"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "name: stacks.notbrokkr.io"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", "name: brokkrs"),
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "name: images"),
        ("example.com/v1", "Namespace", "name: kube-system"),
    ] {
        assert_eq!(problems(&object(api_version, kind, metadata)), [], "{kind} {metadata}");
    }
}

#[test]
fn reserved_labels_and_annotations_are_refused_and_those_for_users_accepted() {
    for reserved in ["agent", "stack-id", "checksum", "sequence", "id"] {
        for (field, kind) in [("labels", "label"), ("annotations", "annotation")] {
            let text = object("v1", "ConfigMap", &format!("name: a, {field}: {{brokkr.io/{reserved}: x}}"));
            let name = format!("brokkr.io/{reserved}");
            assert_eq!(problems(&text), [Problem::ReservedMetadata { kind, name }]);
        }
    }
    let annotations = "brokkr.io/prune: keep, brokkr.io/yield: spec.replicas, brokkr.io/replace: 'true', brokkr.io/wave: '2'";
    assert_eq!(problems(&object("v1", "ConfigMap", &format!("name: a, annotations: {{{annotations}}}"))), []);
}

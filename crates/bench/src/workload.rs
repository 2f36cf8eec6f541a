//! The objects of the measurements: 1 % Namespaces; of the rest 60 % ConfigMaps, 20 % Services, 20 % Deployments. Their bodies
//! are like those that users write.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// One object: its path in the API, and its body.
#[derive(Clone, Debug)]
pub struct Object {
    pub namespace: Option<String>,
    pub name: String,
    plural: &'static str,
    prefix: &'static str,
    pub body: Value,
    /// Whether the changed version of the workload has another body.
    pub changes: bool,
}

impl Object {
    /// Returns its path at the API server.
    pub fn path(&self) -> String {
        match &self.namespace {
            Some(namespace) => {
                format!("{}/namespaces/{namespace}/{}/{}", self.prefix, self.plural, self.name)
            }
            None => format!("{}/{}/{}", self.prefix, self.plural, self.name),
        }
    }
}

/// Objects that are delivered together.
#[derive(Clone, Debug)]
pub struct Workload {
    pub objects: Vec<Object>,
}

impl Workload {
    /// Returns the mix, in namespaces with this prefix.
    pub fn mix(prefix: &str, total: usize) -> Self {
        Self::build(prefix, total, "1")
    }

    /// Returns the mix with every tenth object that is not a Namespace changed.
    pub fn mix_changed(prefix: &str, total: usize) -> Self {
        Self::build(prefix, total, "2")
    }

    fn build(prefix: &str, total: usize, revision: &str) -> Self {
        let spaces = (total / 100).max(1);
        let rest = total - spaces;
        let deployments = rest / 5;
        let services = rest / 5;
        let mut objects: Vec<Object> =
            (0..spaces).map(|number| namespace(&format!("{prefix}-{number}"))).collect();
        for number in 0..rest {
            let space = format!("{prefix}-{}", number % spaces);
            let changes = number % 10 == 0;
            let revision = if changes { revision } else { "1" };
            let object = if number < deployments {
                deployment(&space, &format!("web-{number}"), 3, revision)
            } else if number < deployments + services {
                service(&space, &format!("web-{number}"), revision)
            } else {
                configmap(&space, &format!("settings-{number}"), revision)
            };
            objects.push(Object { changes, ..object });
        }
        Self { objects }
    }

    /// Returns the four objects of one small application.
    pub fn application(space: &str, name: &str) -> Self {
        Self {
            objects: vec![
                service_account(space, name),
                configmap(space, name, "1"),
                service(space, name, "1"),
                deployment(space, name, 1, "1"),
            ],
        }
    }

    /// Returns one namespace with ConfigMaps.
    pub fn configmaps(space: &str, count: usize) -> Self {
        let maps = (0..count).map(|number| configmap(space, &format!("settings-{number}"), "1"));
        Self { objects: std::iter::once(namespace(space)).chain(maps).collect() }
    }

    /// Returns the namespaces, which have to be applied first, and the rest.
    pub fn namespaces_and_rest(&self) -> (Vec<&Object>, Vec<&Object>) {
        self.objects.iter().partition(|object| object.namespace.is_none())
    }

    pub fn yaml(&self) -> String {
        let mut yaml = String::new();
        for object in &self.objects {
            yaml.push_str("---\n");
            write_yaml(&mut yaml, &object.body, 0);
        }
        yaml
    }
}

fn object(prefix: &'static str, plural: &'static str, space: Option<&str>, body: Value) -> Object {
    let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Object { namespace: space.map(str::to_owned), name, plural, prefix, body, changes: false }
}

pub fn namespace(name: &str) -> Object {
    let labels = json!({"team": "shop", "purpose": "bench"});
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    object("/api/v1", "namespaces", None, body)
}

fn service_account(space: &str, name: &str) -> Object {
    let body = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": space, "labels": {"app": name}},
    });
    object("/api/v1", "serviceaccounts", Some(space), body)
}

pub fn configmap(space: &str, name: &str, revision: &str) -> Object {
    let body = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": space, "labels": {"app": name, "team": "shop"}},
        "data": {
            "revision": revision,
            "LOG_LEVEL": "info",
            "DATABASE_HOST": format!("postgres.{space}.svc.cluster.local"),
            "application.properties": "server.port=8080\nserver.shutdown=graceful\ncache.size=1024\n\
                                       cache.ttl=300s\nfeatures.checkout=enabled\nfeatures.search=disabled\n",
        },
    });
    object("/api/v1", "configmaps", Some(space), body)
}

fn service(space: &str, name: &str, revision: &str) -> Object {
    let body = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": name, "namespace": space, "labels": {"app": name, "team": "shop"},
            "annotations": {"shop.example/revision": revision},
        },
        "spec": {
            "selector": {"app": name},
            "ports": [
                {"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"},
                {"name": "metrics", "port": 9090, "targetPort": 9090, "protocol": "TCP"},
            ],
        },
    });
    object("/api/v1", "services", Some(space), body)
}

fn deployment(space: &str, name: &str, replicas: u32, revision: &str) -> Object {
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10});
    let body = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": space, "labels": {"app": name, "team": "shop"}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name, "team": "shop"}},
                "spec": {
                    "containers": [{
                        "name": "web",
                        "image": format!("registry.example/shop/web:1.4.{revision}"),
                        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                        "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "REGION", "value": "north"}],
                        "resources": {
                            "requests": {"cpu": "50m", "memory": "64Mi"},
                            "limits": {"memory": "128Mi"},
                        },
                        "readinessProbe": probe,
                    }],
                },
            },
        },
    });
    object("/apis/apps/v1", "deployments", Some(space), body)
}

/// Writes block style, as users do. Strings are quoted as in JSON, which YAML parses in the same way.
fn write_yaml(out: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let _ = write!(out, "{indent}{key}:");
                write_nested(out, value, depth);
            }
        }
        Value::Array(items) => {
            for item in items {
                let mut block = String::new();
                write_yaml(&mut block, item, depth + 1);
                // The first line of the item moves up beside its dash.
                let _ = write!(out, "{indent}- {}", block.trim_start());
            }
        }
        scalar => {
            let _ = writeln!(out, "{indent}{scalar}");
        }
    }
}

fn write_nested(out: &mut String, value: &Value, depth: usize) {
    if value.is_object() || value.is_array() {
        out.push('\n');
        write_yaml(out, value, depth + 1);
    } else {
        let _ = writeln!(out, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_objects_are_the_documented_mix_and_a_tenth_changes() {
        let workload = Workload::mix("p", 1_000);
        let count = |kind: &str| workload.objects.iter().filter(|object| object.body["kind"] == kind).count();
        let counts = ["Namespace", "ConfigMap", "Service", "Deployment"].map(count);
        assert_eq!(counts, [10, 594, 198, 198]);
        let changed = Workload::mix_changed("p", 1_000);
        let differing = workload.objects.iter().zip(&changed.objects).filter(|(a, b)| a.body != b.body);
        assert_eq!(differing.clone().count(), 99);
        assert!(differing.into_iter().all(|(object, _)| object.changes));
    }

    #[test]
    fn the_yaml_parses_to_the_bodies() {
        let workload = Workload::application("space", "web");
        let read = brokkr_manifest::parse(workload.yaml().as_bytes(), &Default::default()).unwrap();
        let read: Vec<&Value> = read.objects.iter().map(|object| &object.body).collect();
        let bodies: Vec<&Value> = workload.objects.iter().map(|object| &object.body).collect();
        assert_eq!(read, bodies);
    }
}

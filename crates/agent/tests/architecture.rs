//! The layering of the agent: a module imports only modules of its own layer or of a layer below it.

use std::path::Path;

use brokkr_archtest::Modules;

/// From top to bottom. A name includes the modules below it; the longest name that matches counts.
const LAYERS: &[&[&str]] = &[
    &["crate"],
    // Entry points and wiring.
    &["run", "install", "forget_position"],
    // Upgrades of the agent, before and beside the loop.
    &["upgrade"],
    &["start"],
    // The loop, and the execution of its decisions.
    &["reconcile"],
    &["diagnose", "broker_link", "record_events"],
    // The listener for health checks, the requests to the API server, and the metrics of everything above.
    &["admin"],
    &["execute"],
    &["metrics"],
    &["reconcile::counts", "reconcile::passes"],
    // Decisions. Pure: no client, no clock, no await.
    &["plan"],
    &["grant"],
    // The observed and the recorded state of the cluster.
    &["observe", "inventory", "content_cache", "fence", "yields", "edits"],
    &["health_rules"],
    // Data.
    &["model"],
    &["model::step"],
    &["ownership"],
    &[
        "model::object",
        "model::content",
        "model::failure",
        "model::record",
        "model::progress",
        "model::situation",
        "model::job",
        "model::suspension",
        "model::wave_clock",
    ],
    &["resource"],
    &["intern", "own_objects", "proxy", "args", "automatic", "backoff", "clock", "version"],
];

fn modules() -> Modules {
    Modules::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

#[test]
fn no_module_imports_from_a_higher_layer() {
    assert_eq!(modules().upward_imports(LAYERS), Vec::<String>::new());
}

#[test]
fn no_modules_import_each_other_in_a_circle() {
    assert_eq!(modules().cycles(|_| true), Vec::<Vec<String>>::new());
}

/// The plan is pure: it must not import modules that send requests.
#[test]
fn the_plan_imports_only_data_and_the_grant() {
    let modules = modules();
    for module in ["plan", "plan::deliver", "plan::steady", "plan::report", "plan::stop", "plan::readiness"] {
        let imports = modules.imports_of(module);
        assert!(!imports.is_empty(), "{module} is gone; name another one here");
        for imported in imports {
            let pure = ["plan", "model", "resource", "ownership", "grant"];
            assert!(
                pure.iter().any(|name| imported == *name || imported.starts_with(&format!("{name}::"))),
                "{module} imports {imported}"
            );
        }
    }
}

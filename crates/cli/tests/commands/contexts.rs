//! Contexts, logout, tokens from files, and the kubectl plugin.

use crate::fake_broker::FakeBroker;
use crate::sample::{page, whoami};

#[test]
fn contexts_are_listed_switched_and_deleted() {
    let broker = FakeBroker::start().on("GET /api/v1/whoami", 200, whoami());
    for context in ["lab", "prod"] {
        broker.run(&["login", &broker.url, "--context", context], &[("BROKKR_TOKEN", "brk_x")], "").exits(0);
    }
    let ran =
        broker.run(&["context", "list"], &[], "").exits(0).prints("*         prod      http://127.0.0.1:");
    assert!(!ran.stdout.contains("brk_"), "{ran:?}");
    broker.run(&["context", "use", "context/lab"], &[], "").exits(0).prints("now using lab");
    broker
        .run(&["context", "list", "-o", "name"], &[], "")
        .exits(0)
        .prints_exactly("context/lab\ncontext/prod\n");
    broker.run(&["context", "delete", "lab"], &[], "").exits(0).says("it was the current context");
    broker.run(&["whoami"], &[], "").exits(4).says("not logged in to any broker");
    broker.run(&["whoami", "--context", "prod"], &[], "").exits(0);
    broker
        .run(&["context", "use", "lab"], &[], "")
        .exits(2)
        .says("there is no context lab")
        .says("contexts: prod");
}

#[test]
fn a_token_comes_from_a_file_or_stdin_for_every_command() {
    let broker = FakeBroker::start().on("GET /api/v1/whoami", 200, whoami());
    let file = broker.home.path().join("token");
    std::fs::write(&file, "brk_file\n").unwrap();
    let (server, file) = (("BROKKR_SERVER", broker.url.as_str()), file.to_str().unwrap());
    broker
        .run(&["whoami"], &[server, ("BROKKR_TOKEN_FILE", file), ("BROKKR_TOKEN", "brk_other")], "")
        .exits(0);
    broker.run(&["whoami", "--token-file", "-"], &[server], "brk_stdin\n").exits(0);
    let sent: Vec<_> = broker.asked().iter().map(|asked| asked.headers["authorization"].clone()).collect();
    assert_eq!(sent, ["Bearer brk_file", "Bearer brk_stdin"]);
    broker.run(&["whoami", "--token-file", "-"], &[server], "").exits(2).says("- contains no token");
    broker
        .run(&["whoami", "--token-file", "/nowhere"], &[server], "")
        .exits(2)
        .says("cannot read the token from /nowhere");
}

#[test]
fn it_also_runs_as_a_plugin_of_kubectl() {
    let broker = FakeBroker::start().on("GET /api/v1/agents", 200, page(&[]));
    let plugin = broker.home.path().join("kubectl-brokkr");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_brokkr"), &plugin).unwrap();
    let environment = [("BROKKR_SERVER", broker.url.as_str()), ("BROKKR_TOKEN", "brk_x")];
    broker.run_as(&plugin, &["agent", "list"], &environment, "").exits(0).prints("no agents yet");
    broker
        .run_as(&plugin, &["agent", "list", "--nonsense"], &environment, "")
        .exits(2)
        .says("Usage: kubectl brokkr agent list");
}

#[test]
fn a_logout_removes_the_token_and_keeps_the_context() {
    let broker = FakeBroker::start().on("GET /api/v1/whoami", 200, whoami());
    broker.run(&["logout"], &[], "").exits(2).says("not logged in to any broker");
    broker.run(&["login", &broker.url, "--context", "lab"], &[("BROKKR_TOKEN", "brk_x")], "").exits(0);
    broker.run(&["logout"], &[], "").exits(0).prints("logged out of").says("stays valid until it expires");
    let credentials = broker.home.path().join(".config/brokkr/credentials.toml");
    assert!(!std::fs::read_to_string(credentials).unwrap().contains("brk_x"));
    broker.run(&["whoami"], &[], "").exits(4).says("no token for");
    broker.run(&["context", "list"], &[], "").exits(0).prints("lab").prints("none");
    broker.run(&["logout", "--context", "nowhere"], &[], "").exits(2).says("there is no context nowhere");
    broker.run(&["logout"], &[], "").exits(0).prints("had no stored token");
}

#[test]
fn the_version_of_the_broker_is_shown_if_it_can_be_read() {
    let mut me = whoami();
    me["server_version"] = "9.8.7".into();
    let broker = FakeBroker::start().on("GET /api/v1/whoami", 200, me);
    broker.brokkr(&["version"]).exits(0).prints("brokkr ").prints("broker 9.8.7 (http://127.0.0.1:");
    assert_eq!(broker.brokkr(&["version", "-o", "json"]).exits(0).json()["server"]["version"], "9.8.7");
    let asked = broker.asked().len();
    broker.brokkr(&["version", "--client"]).exits(0);
    assert_eq!(broker.asked().len(), asked);
    broker.run(&["version"], &[], "").exits(0).prints("brokkr ").says("the version of the broker is unknown");
}

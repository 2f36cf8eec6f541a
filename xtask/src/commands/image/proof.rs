//! Runs the program of an image (an OCI image layout) as a container engine would, in a sandbox: the unpacked
//! layer is the whole file system and read-only, there is no network, and the user is unprivileged.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

/// A name that only the sandbox's own /etc/hosts knows.
const NAME: &str = "somewhere.example";

/// One run of a program: its arguments, and how it must end.
struct Check {
    arguments: &'static [&'static str],
    succeeds: bool,
    prints: &'static str,
}

const BROKER: &[Check] = &[
    Check { arguments: &["--version"], succeeds: true, prints: env!("CARGO_PKG_VERSION") },
    Check { arguments: &["openapi"], succeeds: true, prints: "\"openapi\"" },
    // The name is resolved and nothing listens there: the resolver works without the shared libraries of the system.
    Check {
        arguments: &["migrate", "--database-url", "postgres://nobody@somewhere.example:1/brokkr"],
        succeeds: false,
        prints: "unreachable",
    },
];

const AGENT: &[Check] = &[
    Check { arguments: &["--version"], succeeds: true, prints: env!("CARGO_PKG_VERSION") },
    Check { arguments: &["install", "--print"], succeeds: true, prints: "ValidatingAdmissionPolicy" },
    Check {
        arguments: &["run", "--broker-url", "https://somewhere.example"],
        succeeds: false,
        prints: "find the cluster",
    },
];

/// Fails if a run does not end as expected, if the program could write to its root, or if the image does not
/// name the unprivileged user.
pub fn run(folder: &Path, name: &str) -> Result<()> {
    let sandbox = folder.with_file_name(format!(".{name}.sandbox"));
    let _ = fs::remove_dir_all(&sandbox);
    let proven = unpack(folder, &sandbox).and_then(|entrypoint| run_all(&sandbox, &entrypoint, name));
    fs::remove_dir_all(&sandbox).with_context(|| format!("cannot remove {}", sandbox.display()))?;
    proven
}

/// Unpacks the image and returns the program that it starts.
fn unpack(folder: &Path, sandbox: &Path) -> Result<String> {
    let (manifest, config) = brokkr_image::read(folder)?;
    for reference in manifest["layers"].as_array().into_iter().flatten() {
        let bytes = brokkr_image::blob(folder, reference)?;
        tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice())).unpack(sandbox)?;
    }
    // As a container engine provides it to every container.
    fs::write(sandbox.join("etc/hosts"), format!("127.0.0.1 localhost\n127.0.0.1 {NAME}\n"))?;
    let entrypoint = config["config"]["Entrypoint"][0].as_str().map(ToOwned::to_owned);
    ensure!(config["config"]["User"] == "65532:65532", "the image would not run as the unprivileged user");
    entrypoint.context("the image has no entrypoint")
}

fn run_all(sandbox: &Path, entrypoint: &str, name: &str) -> Result<()> {
    let checks = if name == "brokkr-broker" { BROKER } else { AGENT };
    for Check { arguments, succeeds, prints } in checks {
        let output = run_in(sandbox, entrypoint, arguments)?;
        let printed =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(
            output.status.success() == *succeeds && printed.contains(prints),
            "{entrypoint} {} ended with {} and printed:\n{printed}",
            arguments.join(" "),
            output.status
        );
        println!("{name} {}: as expected", arguments.join(" "));
    }
    Ok(())
}

/// Runs a program in its own mount and network namespace, with the sandbox as read-only root, as an unprivileged user if
/// possible, for at most half a minute.
fn run_in(sandbox: &Path, entrypoint: &str, arguments: &[&str]) -> Result<Output> {
    const SCRIPT: &str = r#"
        mount --bind "$1" "$1"
        mount -o remount,bind,ro "$1"
        if touch "$1/written" 2>/dev/null; then echo "the root can be written to"; exit 99; fi
        sandbox=$1; shift
        exec timeout 30 chroot ${NOBODY:+--userspec=$NOBODY} "$sandbox" "$@""#;
    let root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net"]);
    if !root {
        command.arg("--map-root-user");
    }
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("NOBODY", if root { "65532:65532" } else { "" });
    command.args(["sh", "-ec", SCRIPT, "sh"]).arg(sandbox).arg(entrypoint).args(arguments);
    command.output().context("cannot run unshare, which makes the sandbox")
}

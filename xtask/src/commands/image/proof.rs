//! Runs what is in a layout as a container engine would, in a closed room: the unpacked layer is the whole file system and
//! read-only, there is no network, and the user is nobody.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

use super::layout;

/// A name that only the room's own /etc/hosts knows.
const NAME: &str = "somewhere.example";

/// What a program is asked, and what it has to say.
struct Question {
    arguments: &'static [&'static str],
    succeeds: bool,
    says: &'static str,
}

const BROKER: &[Question] = &[
    Question { arguments: &["--version"], succeeds: true, says: env!("CARGO_PKG_VERSION") },
    Question { arguments: &["openapi"], succeeds: true, says: "\"openapi\"" },
    // The name is found, and nothing is there: the resolver works without the shared libraries of the system.
    Question {
        arguments: &["migrate", "--database-url", "postgres://nobody@somewhere.example:1/brokkr"],
        succeeds: false,
        says: "unreachable",
    },
];

const AGENT: &[Question] = &[
    Question { arguments: &["--version"], succeeds: true, says: env!("CARGO_PKG_VERSION") },
    Question { arguments: &["install", "--print"], succeeds: true, says: "ValidatingAdmissionPolicy" },
    Question {
        arguments: &["run", "--broker-url", "https://somewhere.example"],
        succeeds: false,
        says: "find the cluster",
    },
];

/// Fails if the program does not run, or if it can do what it must not.
pub fn run(folder: &Path, name: &str) -> Result<()> {
    let room = folder.with_file_name(format!(".{name}.room"));
    let _ = fs::remove_dir_all(&room);
    let proven = unpack(folder, &room).and_then(|entrypoint| ask_all(&room, &entrypoint, name));
    fs::remove_dir_all(&room).with_context(|| format!("cannot remove {}", room.display()))?;
    proven
}

/// Answers the program that the image starts.
fn unpack(folder: &Path, room: &Path) -> Result<String> {
    let (manifest, config) = layout::read(folder)?;
    for reference in manifest["layers"].as_array().into_iter().flatten() {
        let bytes = layout::blob(folder, reference)?;
        tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice())).unpack(room)?;
    }
    // As a container engine gives it to every container.
    fs::write(room.join("etc/hosts"), format!("127.0.0.1 localhost\n127.0.0.1 {NAME}\n"))?;
    let entrypoint = config["config"]["Entrypoint"][0].as_str().map(ToOwned::to_owned);
    ensure!(config["config"]["User"] == "65532:65532", "the image would run as somebody");
    entrypoint.context("the image starts nothing")
}

fn ask_all(room: &Path, entrypoint: &str, name: &str) -> Result<()> {
    let questions = if name == "brokkr-broker" { BROKER } else { AGENT };
    for Question { arguments, succeeds, says } in questions {
        let output = inside(room, entrypoint, arguments)?;
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(
            output.status.success() == *succeeds && said.contains(says),
            "{entrypoint} {} ended with {} and said:\n{said}",
            arguments.join(" "),
            output.status
        );
        println!("{name} {}: as expected", arguments.join(" "));
    }
    Ok(())
}

/// Mount and network of its own, the room as a read-only root, nobody's user where one may choose, half a minute at most.
fn inside(room: &Path, entrypoint: &str, arguments: &[&str]) -> Result<Output> {
    const SCRIPT: &str = r#"
        mount --bind "$1" "$1"
        mount -o remount,bind,ro "$1"
        if touch "$1/written" 2>/dev/null; then echo "the root can be written to"; exit 99; fi
        room=$1; shift
        exec timeout 30 chroot ${NOBODY:+--userspec=$NOBODY} "$room" "$@""#;
    let root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net"]);
    if !root {
        command.arg("--map-root-user");
    }
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("NOBODY", if root { "65532:65532" } else { "" });
    command.args(["sh", "-ec", SCRIPT, "sh"]).arg(room).arg(entrypoint).args(arguments);
    command.output().context("cannot run unshare, which makes the closed room")
}

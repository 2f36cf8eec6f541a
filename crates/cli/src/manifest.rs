//! The manifests that `apply` submits: found, read, joined, and checked before they are sent.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use brokkr_api::ErrorCode;
use brokkr_manifest::{Budget, HookUse, Problem, hook_of};

use crate::args::Content;
use crate::failure::{Exit, Failure, Result};
use crate::printer::Printer;
use crate::render;

/// Bytes that were read, with the name for error messages.
pub struct Source {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// Reads or renders the manifests and returns the bytes to submit. A single file is submitted unchanged.
pub async fn read(content: &Content, stack: &str, printer: Printer) -> Result<Vec<u8>> {
    if let Some(folder) = &content.kustomize {
        let bytes = render::kustomize(folder, printer).await?;
        return check(vec![Source { name: format!("kustomization {}", folder.display()), bytes }]);
    }
    if let Some(chart) = &content.helm {
        let bytes =
            render::helm(chart, content, content.release.as_deref().unwrap_or(stack), printer).await?;
        return check(vec![Source { name: format!("chart {chart}"), bytes }]);
    }
    if content.files.is_empty() {
        return Err(Failure::new(Exit::Usage, "no manifests given")
            .next("use -f PATH (- for stdin), -k DIR or --helm CHART"));
    }
    files(&content.files, content.recursive)
}

/// Returns a sentence for each Helm hook that agents leave out.
pub fn left_out(content: &[u8]) -> Vec<String> {
    let manifest = brokkr_manifest::parse(content, &Budget::default());
    let objects = manifest.map(|manifest| manifest.objects).unwrap_or_default();
    let left_out = objects.iter().filter_map(|object| match hook_of(object)? {
        HookUse::LeftOut(hook) => Some((&object.identity, hook)),
        HookUse::Step(_) => None,
    });
    left_out
        .map(|(identity, hook)| format!("{identity} is left out: Brokkr does not run the Helm hook {hook}"))
        .collect()
}

fn files(paths: &[PathBuf], recursive: bool) -> Result<Vec<u8>> {
    let mut sources = Vec::new();
    for path in paths {
        if path.as_os_str() != "-" && path.is_dir() {
            sources.extend(folder(path, recursive)?);
        } else {
            sources.push(read_source(path)?);
        }
    }
    check(sources)
}

/// Reads a file, or stdin for `-`.
pub fn read_source(path: &Path) -> Result<Source> {
    if path.as_os_str() == "-" { stdin() } else { file(path) }
}

fn stdin() -> Result<Source> {
    let mut bytes = Vec::new();
    // One byte over the limit shows that the input is too large; an endless pipe must not fill the memory.
    let limit = Budget::default().total_bytes as u64 + 1;
    std::io::stdin()
        .lock()
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable("stdin", &error))?;
    Ok(Source { name: "stdin".to_owned(), bytes })
}

fn file(path: &Path) -> Result<Source> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| unreadable(&name, &error))?;
    Ok(Source { name, bytes })
}

fn folder(path: &Path, recursive: bool) -> Result<Vec<Source>> {
    let name = path.display().to_string();
    let mut files = Vec::new();
    inside(path, recursive, &mut files)?;
    files.sort();
    if files.is_empty() {
        return Err(Failure::new(Exit::Usage, format!("{name} contains no *.yaml, *.yml or *.json"))
            .next("use the directory that contains the manifests; -R includes subdirectories"));
    }
    files.iter().map(|path| file(path)).collect()
}

fn inside(path: &Path, recursive: bool, files: &mut Vec<PathBuf>) -> Result {
    let name = path.display().to_string();
    let entries = std::fs::read_dir(path).map_err(|error| unreadable(&name, &error))?;
    for entry in entries {
        let entry = entry.map_err(|error| unreadable(&name, &error))?;
        let path = entry.path();
        // Symbolic links to directories are not followed, because they may form a cycle.
        if recursive && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            inside(&path, recursive, files)?;
            continue;
        }
        let is_manifest = path
            .extension()
            .is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|it| extension == *it));
        if is_manifest && path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

fn unreadable(name: &str, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Usage, format!("cannot read {name}: {error}"))
}

fn check(sources: Vec<Source>) -> Result<Vec<u8>> {
    let budget = Budget::default();
    let is_one = sources.len() == 1;
    let (mut errors, mut stopped) = (Vec::new(), false);
    // Each file on its own first, so that an error has its file and line.
    for source in &sources {
        if let Err(found) = brokkr_manifest::parse(&source.bytes, &budget) {
            let counts = |problem: &Problem| is_one || !matches!(problem, Problem::Empty);
            errors.extend(
                found
                    .iter()
                    .filter(|error| counts(&error.problem))
                    .map(|error| format!("{}: {error}", source.name)),
            );
            stopped |= found.stopped();
        }
    }
    let bytes = joined(sources);
    // Then all together, to find a resource that is in two files.
    if let (true, Err(found)) = (errors.is_empty(), brokkr_manifest::parse(&bytes, &budget)) {
        errors.extend(found.iter().map(ToString::to_string));
        stopped |= found.stopped();
    }
    if errors.is_empty() { Ok(bytes) } else { Err(refused(errors, stopped)) }
}

fn joined(mut sources: Vec<Source>) -> Vec<u8> {
    if sources.len() == 1 {
        return sources.remove(0).bytes;
    }
    let mut bytes = Vec::new();
    for source in sources {
        if !bytes.is_empty() {
            if bytes.last() != Some(&b'\n') {
                bytes.push(b'\n');
            }
            bytes.extend_from_slice(b"---\n");
        }
        bytes.extend_from_slice(&source.bytes);
    }
    bytes
}

fn refused(errors: Vec<String>, stopped: bool) -> Failure {
    let count = errors.len();
    let problems = if count == 1 { "1 error".to_owned() } else { format!("{count} errors") };
    let mut failure =
        Failure::new(Exit::Failed, format!("the manifest has {problems}; nothing was submitted"));
    failure.lines = errors.into_iter().map(|error| format!("- {error}")).collect();
    if stopped {
        failure.lines.push("parsing stopped early; there may be more errors".to_owned());
    }
    failure.code = Some(ErrorCode::BRK2004);
    failure.next(ErrorCode::BRK2004.next_step())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str, text: &str) -> Source {
        Source { name: name.to_owned(), bytes: text.as_bytes().to_vec() }
    }

    fn config_map(name: &str) -> String {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: shop}}")
    }

    #[test]
    fn one_file_is_submitted_byte_for_byte_and_several_are_joined() {
        let text = format!("# mine\n{}", config_map("a"));
        assert_eq!(check(vec![source("a.yaml", &text)]).unwrap(), text.as_bytes());
        let three =
            vec![source("a", &config_map("a")), source("b", "# nothing\n"), source("c", &config_map("c"))];
        let text = String::from_utf8(check(three).unwrap()).unwrap();
        assert_eq!(text, format!("{}\n---\n# nothing\n---\n{}", config_map("a"), config_map("c")));
    }

    #[test]
    fn every_error_has_its_file() {
        let failure = check(vec![
            source("a.yaml", "kind: Pod\n"),
            source("b.yaml", "[1]\n"),
            source("c.yaml", &config_map("c")),
        ]);
        let failure = failure.unwrap_err();
        assert!(failure.lines.iter().any(|line| line.starts_with("- a.yaml: ")), "{failure:?}");
        assert!(failure.lines.iter().any(|line| line.starts_with("- b.yaml: ")), "{failure:?}");
        assert!(check(vec![source("empty.yaml", "# nothing\n")]).is_err());
        let twice =
            check(vec![source("a.yaml", &config_map("a")), source("b.yaml", &config_map("a"))]).unwrap_err();
        assert!(twice.lines[0].contains("same resource"), "{twice:?}");
    }
}

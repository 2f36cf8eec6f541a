//! Finds the tests of the workspace by reading its sources. An ignored test proves nothing.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::promises::is_id;

/// A test function.
pub struct Test {
    file: PathBuf,
    name: String,
}

impl Test {
    #[cfg(test)]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the words of the name that look like ids of promises, in capitals.
    pub fn promises(&self) -> Vec<String> {
        self.name.split('_').map(str::to_ascii_uppercase).filter(|word| is_id(word)).collect()
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.file.display())
    }
}

/// Returns every test in a Rust file below the folder.
pub fn find(root: &Path) -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && !name.starts_with('.') && name != "target" && name != "node_modules" {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let source = fs::read_to_string(&path)?;
                let file = path.strip_prefix(root).unwrap_or(&path).to_owned();
                tests.extend(in_source(&source).into_iter().map(|name| Test { file: file.clone(), name }));
            }
        }
    }
    tests.sort_by(|one, other| (&one.file, &one.name).cmp(&(&other.file, &other.name)));
    Ok(tests)
}

/// Returns the names of functions that have a test attribute.
fn in_source(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut is_test, mut is_ignored) = (false, false);
    for line in source.lines().map(str::trim) {
        if let Some(name) = function_name(line) {
            if is_test && !is_ignored {
                found.push(name.to_owned());
            }
            (is_test, is_ignored) = (false, false);
        } else if line.starts_with("#[") {
            is_test |= is_test_attribute(line);
            is_ignored |= line.starts_with("#[ignore");
        }
    }
    found
}

/// `#[test]`, `#[tokio::test(…)]`, `#[sqlx::test]`, `#[rstest]`
fn is_test_attribute(line: &str) -> bool {
    let path: String =
        line[2..].chars().take_while(|&c| c.is_alphanumeric() || c == '_' || c == ':').collect();
    matches!(path.rsplit("::").next(), Some("test" | "rstest"))
}

fn function_name(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let line = line.strip_prefix("async ").unwrap_or(line);
    line.strip_prefix("fn ")?.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[cfg(test)]
mod finding {
    use super::{Test, in_source};

    // The samples name promises that do not exist, because this file is searched as well.
    #[test]
    fn finds_tests_and_skips_ignored_tests_and_other_functions() {
        let source = "
            #[test]
            fn x1_one() {}
            #[tokio::test(flavor = \"multi_thread\")]
            async fn x2_x3_two() -> Result<()> { Ok(()) }
            fn y1_is_no_test() {}
            #[test]
            #[ignore = \"later\"]
            fn y2_is_ignored() {}
            #[rstest]
            #[case(1)]
            fn z1_three(#[case] n: u8) {}
            #[cfg(test)]
            fn z2_is_no_test_either() {}
        ";
        assert_eq!(in_source(source), ["x1_one", "x2_x3_two", "z1_three"]);
    }

    #[test]
    fn whole_words_of_a_name_are_promises() {
        let test = |name: &str| Test { file: "x.rs".into(), name: name.into() }.promises();
        assert_eq!(test("e1_e2_a_stack_is_deleted"), ["E1", "E2"]);
        assert_eq!(test("prune_b5_in_the_middle"), ["B5"]);
        assert_eq!(test("e2e_k8s_base64"), Vec::<String>::new());
    }
}

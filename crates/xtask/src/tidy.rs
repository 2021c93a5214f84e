//! Checks the invariants that ARCHITECTURE.md states, so that they stay true.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::{files, shown};

/// Which crates of ours a crate may use; a crate that is not listed may use none.
const MAY_USE: &[(&str, &[&str])] = &[
    (
        "longshore",
        &[
            "longshore-bench",
            "longshore-container",
            "longshore-host",
            "longshore-image",
            "longshore-study",
            "longshore-sys",
        ],
    ),
    (
        "longshore-bench",
        &["longshore-host", "longshore-study", "longshore-sys"],
    ),
    ("longshore-container", &["longshore-host", "longshore-sys"]),
    ("longshore-host", &["longshore-sys"]),
    ("longshore-image", &["longshore-host", "longshore-sys"]),
    ("xtask", &["longshore-host"]),
];

/// Crates that must not be in the tree: a second TLS provider panics at the first handshake.
const BANNED: &[&str] = &[
    "ring",
    "openssl",
    "openssl-sys",
    "native-tls",
    "serde_yml",
    "bincode",
];

/// Licences that a dependency may ask for; each alternative of an `OR` is one.
const LICENCES: &[&str] = &[
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "OpenSSL",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "0BSD",
];

/// Runs every check and lists all that is broken.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let mut broken = Vec::new();
    match dependencies(root) {
        Ok(findings) => broken.extend(findings),
        Err(error) => broken.push(error),
    }
    broken.extend(sources(root));
    broken.extend(documents(root));
    broken.extend(changelog(root));
    if broken.is_empty() {
        return Ok(());
    }
    for finding in &broken {
        eprintln!("  {finding}");
    }
    Err(format!("{} broken rule(s), listed above", broken.len()))
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    license_file: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

/// Who depends on whom, which crates are banned, under which licences.
fn dependencies(root: &Path) -> Result<Vec<String>, String> {
    let printed = cargo(root, &["metadata", "--format-version", "1", "--locked"])?;
    let metadata: Metadata = serde_json::from_str(&printed)
        .map_err(|error| format!("cannot read what `cargo metadata` printed: {error}"))?;
    // The metadata also lists optional crates that no feature of ours switches on; the tree does not.
    let tree = cargo(
        root,
        &[
            "tree",
            "--workspace",
            "--locked",
            "--prefix=none",
            "--format={p}",
        ],
    )?;
    let built: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    let members: BTreeSet<&str> = metadata
        .workspace_members
        .iter()
        .map(String::as_str)
        .collect();
    let may_use: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let mut broken = Vec::new();
    for package in metadata
        .packages
        .iter()
        .filter(|package| built.contains(package.name.as_str()))
    {
        if members.contains(package.id.as_str()) {
            broken.extend(own_dependencies(package, &may_use));
            continue;
        }
        if BANNED.contains(&package.name.as_str()) {
            broken.push(format!(
                "crate {} is banned (see BANNED in tidy.rs)",
                package.name
            ));
        }
        let licence = package.license.as_deref().unwrap_or_default();
        if !licence_is_allowed(licence) && package.license_file.is_none() {
            broken.push(format!(
                "{} {}: licence `{licence}`",
                package.name, package.version
            ));
        }
    }
    Ok(broken)
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(arguments)
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`cargo {}` failed: {said}", arguments.join(" ")));
    }
    String::from_utf8(output.stdout).map_err(|_| "cargo printed what is not UTF-8".to_owned())
}

fn own_dependencies(package: &Package, may_use: &BTreeMap<&str, &[&str]>) -> Vec<String> {
    let allowed = may_use
        .get(package.name.as_str())
        .copied()
        .unwrap_or_default();
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind.as_deref() != Some("dev"))
        .filter(|dependency| dependency.name.starts_with("longshore"))
        .filter(|dependency| !allowed.contains(&dependency.name.as_str()))
        .map(|dependency| format!("{} must not depend on {}", package.name, dependency.name))
        .collect()
}

/// Whether an SPDX expression can be met: all parts of an `AND`, one part of an `OR`.
fn licence_is_allowed(expression: &str) -> bool {
    let expression = expression.replace(['(', ')'], " ").replace('/', " OR ");
    expression
        .split(" AND ")
        .all(|all| all.split(" OR ").any(|one| LICENCES.contains(&one.trim())))
}

/// What the source text may say where.
fn sources(root: &Path) -> Vec<String> {
    let mut broken = Vec::new();
    for path in files(&root.join("crates"), "rs") {
        let shown = shown(root, &path);
        let file_name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if file_name == "mod.rs" {
            broken.push(format!(
                "{shown}: use `thing.rs` beside `thing/`, not mod.rs"
            ));
        }
        if ["util.rs", "utils.rs", "common.rs", "helpers.rs"].contains(&file_name.as_str()) {
            broken.push(format!("{shown}: name the file for the noun it defines"));
        }
        let Ok(text) = fs::read_to_string(&path) else {
            broken.push(format!("{shown}: is not UTF-8"));
            continue;
        };
        broken.extend(source_text(&shown, &text));
    }
    broken
}

/// Checks one source file; `shown` is its path in the workspace.
fn source_text(shown: &str, text: &str) -> Vec<String> {
    let is_test = shown.contains("/tests/") || shown.contains("/examples/");
    let in_crate = |name: &str| shown.starts_with(&format!("crates/{name}/"));
    let mut broken = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        let mut report = |rule: &str| broken.push(format!("{shown}:{}: {rule}", index + 1));
        let has = |token: &str| code.contains(token);
        if !in_crate("longshore-sys") && !in_crate("xtask") && (has("unsafe {") || has("unsafe fn"))
        {
            report("`unsafe` belongs into longshore-sys");
        }
        let prints = has("println!(") || has("eprintln!(") || has("print!(") || has("io::stdout()");
        if prints && !in_crate("longshore") && !in_crate("xtask") && !is_test {
            report("only the binary prints");
        }
        let reads_environment = has("env::var(") || has("env::var_os(") || has("env::vars");
        if reads_environment && !in_crate("longshore-host") && !in_crate("xtask") && !is_test {
            report("only longshore-host reads environment variables");
        }
    }
    broken
}

/// Every page of the book is in its summary, and every relative link leads somewhere.
fn documents(root: &Path) -> Vec<String> {
    let mut broken = Vec::new();
    let docs = root.join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap_or_default();
    if summary.is_empty() {
        broken.push("docs/SUMMARY.md is missing or empty".to_owned());
    }
    for path in files(&docs, "md") {
        let below = shown(&docs, &path);
        if below != "SUMMARY.md" && !summary.contains(&format!("({below})")) {
            broken.push(format!("docs/{below} is not in docs/SUMMARY.md"));
        }
    }
    let mut pages = files(&docs, "md");
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"] {
        pages.push(root.join(name));
    }
    for page in pages {
        let Ok(text) = fs::read_to_string(&page) else {
            broken.push(format!("{} is missing", shown(root, &page)));
            continue;
        };
        let folder = page.parent().unwrap_or(root);
        for link in links(&text) {
            let target = link.split('#').next().unwrap_or_default();
            let leads_out = link.contains("://") || link.starts_with("mailto:");
            if !leads_out && !target.is_empty() && !folder.join(target).exists() {
                broken.push(format!(
                    "{}: link to `{link}` leads nowhere",
                    shown(root, &page)
                ));
            }
        }
    }
    broken
}

/// The targets of the Markdown links of a page, code blocks left out.
fn links(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let mut rest = line;
        while let Some(start) = rest.find("](") {
            rest = &rest[start + 2..];
            if let Some(end) = rest.find(')') {
                found.push(&rest[..end]);
                rest = &rest[end..];
            }
        }
    }
    found
}

/// A note for users is two sentences at least: the past problem, the present behaviour.
fn changelog(root: &Path) -> Vec<String> {
    files(&root.join("changelog/unreleased"), "md")
        .into_iter()
        .filter(|path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.matches(['.', '!']).count() < 2
        })
        .map(|path| {
            format!(
                "{}: say the past problem and the present behaviour",
                shown(root, &path)
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_keeps_the_invariants_of_its_architecture() {
        assert_eq!(run(crate::workspace_root()), Ok(()));
    }

    #[test]
    fn an_unsafe_block_outside_of_sys_is_found() {
        let text = "fn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(
            source_text("crates/longshore-image/src/a.rs", text).len(),
            1
        );
        assert!(source_text("crates/longshore-sys/src/a.rs", text).is_empty());
    }

    #[test]
    fn printing_and_reading_the_environment_have_their_one_place() {
        let text = "println!(\"x\");\nlet x = std::env::var_os(\"X\");\n";
        assert_eq!(
            source_text("crates/longshore-container/src/a.rs", text).len(),
            2
        );
        assert_eq!(source_text("crates/longshore/src/ui.rs", text).len(), 1);
        assert_eq!(source_text("crates/longshore-host/src/a.rs", text).len(), 1);
    }

    #[test]
    fn a_feature_crate_that_uses_another_is_found() {
        let package = Package {
            id: String::new(),
            name: "longshore-image".to_owned(),
            version: String::new(),
            license: None,
            license_file: None,
            dependencies: ["longshore-host", "longshore-container"]
                .map(|name| Dependency {
                    name: name.to_owned(),
                    kind: None,
                })
                .into(),
        };
        let may_use = MAY_USE.iter().copied().collect();
        let broken = own_dependencies(&package, &may_use);
        assert_eq!(
            broken,
            ["longshore-image must not depend on longshore-container"]
        );
    }

    #[test]
    fn a_licence_needs_all_of_an_and_but_one_of_an_or() {
        assert!(licence_is_allowed("MIT OR GPL-3.0"));
        assert!(licence_is_allowed("MIT/Apache-2.0"));
        assert!(licence_is_allowed("ISC AND (Apache-2.0 OR ISC)"));
        assert!(!licence_is_allowed("MIT AND GPL-3.0"));
        assert!(!licence_is_allowed("LGPL-3.0"));
    }

    #[test]
    fn links_in_code_blocks_are_not_links() {
        assert_eq!(links("[a](b.md)\n```\n[c](d.md)\n```\n"), ["b.md"]);
    }
}

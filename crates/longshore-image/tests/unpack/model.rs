//! Random layers against a plain model of flattening: a map from paths to what stands there.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use proptest::prelude::*;

use crate::stage::Stage;
use crate::tar_writer::{Entry, file, folder, hard_link, symlink, tar};

type Path = Vec<String>;

#[derive(Clone, Debug)]
enum Kind {
    Folder(u32),
    File(String),
    Link(String),
}

#[derive(Clone, Debug)]
struct Thing {
    kind: Kind,
    layer: usize,
}

#[derive(Clone, Default)]
struct Model {
    things: BTreeMap<Path, Thing>,
    layer: usize,
}

/// One entry as it is drawn.
#[derive(Clone, Debug)]
enum Step {
    Folder(String, u32),
    File(String, String),
    Symlink(String, String),
    HardLink(String, String),
    Whiteout(String, String),
    Opaque(String),
}

struct Refused;

fn joined(folder: &Path, name: &str) -> Path {
    let mut path = folder.clone();
    path.push(name.to_owned());
    path
}

impl Model {
    fn is_folder(&self, path: &Path) -> bool {
        path.is_empty()
            || matches!(
                self.things.get(path),
                Some(Thing {
                    kind: Kind::Folder(_),
                    ..
                })
            )
    }

    fn remove(&mut self, path: &Path) {
        self.things.retain(|other, _| !other.starts_with(path));
    }

    fn put(&mut self, path: Path, kind: Kind) {
        let layer = self.layer;
        self.things.insert(path, Thing { kind, layer });
    }

    /// Where a path leads; missing folders are made if `makes`.
    fn walk(
        &mut self,
        from: &Path,
        path: &str,
        makes: bool,
        links: &mut u32,
    ) -> Result<Option<Path>, Refused> {
        let mut at = if path.starts_with('/') {
            Path::new()
        } else {
            from.clone()
        };
        for name in path.split('/').filter(|name| !matches!(*name, "" | ".")) {
            if name == ".." {
                at.pop();
                continue;
            }
            let next = joined(&at, name);
            match self.things.get(&next).cloned() {
                Some(Thing {
                    kind: Kind::Folder(_),
                    ..
                }) => at = next,
                Some(Thing {
                    kind: Kind::Link(target),
                    ..
                }) => {
                    *links += 1;
                    if *links > 40 {
                        return Err(Refused);
                    }
                    match self.walk(&at, &target, makes, links)? {
                        Some(path) => at = path,
                        None => return Ok(None),
                    }
                }
                Some(Thing { layer, .. }) if makes && layer == self.layer => return Err(Refused),
                _ if makes => {
                    self.remove(&next);
                    self.put(next.clone(), Kind::Folder(0o755));
                    at = next;
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    /// Removes what lower layers have at and below `path`.
    fn hide(&mut self, path: &Path) {
        let layer = self.layer;
        let new: Vec<Path> = self
            .things
            .iter()
            .filter(|(other, thing)| thing.layer == layer && other.starts_with(path))
            .map(|(other, _)| other.clone())
            .collect();
        self.things.retain(|other, thing| {
            if !other.starts_with(path) || thing.layer == layer {
                return true;
            }
            let is_needed = new.iter().any(|new| new.starts_with(other));
            if is_needed {
                thing.kind = Kind::Folder(0o755);
                thing.layer = layer;
            }
            is_needed
        });
    }

    fn apply(&mut self, step: &Step) -> Result<(), Refused> {
        let root = Path::new();
        let split = |path: &str| match path.rsplit_once('/') {
            Some((parents, name)) => (parents.to_owned(), name.to_owned()),
            None => (String::new(), path.to_owned()),
        };
        match step {
            Step::Folder(path, _) | Step::File(path, _) | Step::Symlink(path, _) => {
                let (parents, name) = split(path);
                let parent = self
                    .walk(&root, &parents, true, &mut 0)?
                    .unwrap_or_default();
                let path = joined(&parent, &name);
                match step {
                    Step::Folder(_, mode) => {
                        if !self.is_folder(&path) {
                            self.remove(&path);
                        }
                        self.put(path, Kind::Folder(*mode));
                    }
                    Step::File(_, data) => {
                        self.remove(&path);
                        self.put(path, Kind::File(data.clone()));
                    }
                    Step::Symlink(_, target) => {
                        self.remove(&path);
                        self.put(path, Kind::Link(target.clone()));
                    }
                    _ => unreachable!("matched above"),
                }
            }
            Step::HardLink(path, target) => {
                let (parents, name) = split(target);
                let Some(parent) = self.walk(&root, &parents, false, &mut 0)? else {
                    return Err(Refused);
                };
                let target = joined(&parent, &name);
                let kind = match self.things.get(&target) {
                    None
                    | Some(Thing {
                        kind: Kind::Folder(_),
                        ..
                    }) => return Err(Refused),
                    Some(thing) => thing.kind.clone(),
                };
                let (parents, name) = split(path);
                let parent = self
                    .walk(&root, &parents, true, &mut 0)?
                    .unwrap_or_default();
                let path = joined(&parent, &name);
                if path != target {
                    if target.starts_with(&path) || !self.things.contains_key(&target) {
                        return Err(Refused);
                    }
                    if self.is_folder(&target) {
                        return Err(Refused);
                    }
                    self.remove(&path);
                }
                self.put(path, kind);
            }
            Step::Whiteout(folder, name) => {
                if let Some(folder) = self.walk(&root, folder, false, &mut 0)? {
                    self.hide(&joined(&folder, name));
                }
            }
            Step::Opaque(folder) => {
                if let Some(folder) = self.walk(&root, folder, false, &mut 0)? {
                    let below: Vec<Path> = self
                        .things
                        .keys()
                        .filter(|path| path.len() == folder.len() + 1 && path.starts_with(&folder))
                        .cloned()
                        .collect();
                    for path in below {
                        self.hide(&path);
                    }
                }
            }
        }
        Ok(())
    }

    /// In the form of [`Stage::listing`], which sorts by component too.
    fn listing(&self) -> String {
        let mut listing = String::new();
        for (path, thing) in &self.things {
            let name = path.join("/");
            // Writing to a string cannot fail.
            let _ = match &thing.kind {
                Kind::Folder(mode) => writeln!(listing, "{name}/ {mode:o}"),
                Kind::File(data) => writeln!(listing, "{name} 644 \"{data}\""),
                Kind::Link(target) => writeln!(listing, "{name} -> {target}"),
            };
        }
        listing
    }
}

impl Step {
    fn entry(&self) -> Entry {
        let below = |folder: &str, name: String| match folder {
            "" => name,
            _ => format!("{folder}/{name}"),
        };
        match self {
            Step::Folder(path, mode) => folder(format!("{path}/")).mode(*mode),
            Step::File(path, data) => file(path, data),
            Step::Symlink(path, target) => symlink(path, target),
            Step::HardLink(path, target) => hard_link(path, target),
            Step::Whiteout(folder, name) => file(below(folder, format!(".wh.{name}")), ""),
            Step::Opaque(folder) => file(below(folder, ".wh..wh..opq".to_owned()), ""),
        }
    }
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned)
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(name(), 1..=3).prop_map(|names| names.join("/"))
}

fn step() -> impl Strategy<Value = Step> {
    let parent = || prop_oneof![1 => Just(String::new()), 2 => path()];
    let target = prop_oneof![
        path(),
        path().prop_map(|path| format!("/{path}")),
        path().prop_map(|path| format!("../{path}")),
        path().prop_map(|path| format!("../../{path}/..")),
    ];
    prop_oneof![
        3 => (path(), prop::sample::select(vec![0o755, 0o700, 0o711]))
            .prop_map(|(path, mode)| Step::Folder(path, mode)),
        5 => (path(), "[a-z]{0,3}").prop_map(|(path, data)| Step::File(path, data)),
        2 => (path(), target).prop_map(|(path, target)| Step::Symlink(path, target)),
        2 => (path(), path()).prop_map(|(path, target)| Step::HardLink(path, target)),
        2 => (parent(), name()).prop_map(|(folder, name)| Step::Whiteout(folder, name)),
        1 => parent().prop_map(Step::Opaque),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_layers_give_the_tree_that_the_model_gives(
        layers in prop::collection::vec(prop::collection::vec(step(), 0..12), 1..5),
        keeps_refused in prop::bool::weighted(0.2),
    ) {
        let mut model = Model::default();
        let mut archives = Vec::new();
        let mut is_refused = false;
        for layer in &layers {
            model.layer += 1;
            let mut entries = Vec::new();
            for step in layer {
                // Most runs leave out what is refused, or few would come to their end.
                let mut after = model.clone();
                match after.apply(step) {
                    Ok(()) => model = after,
                    Err(Refused) if !keeps_refused => continue,
                    Err(Refused) => is_refused = true,
                }
                entries.push(step.entry());
                if is_refused {
                    break;
                }
            }
            archives.push(tar(entries));
            if is_refused {
                break;
            }
        }
        let stage = Stage::new();
        match stage.unpack(&archives) {
            Ok(_) => {
                prop_assert!(!is_refused, "the model refuses this");
                prop_assert_eq!(stage.listing(), model.listing());
            }
            Err(error) => prop_assert!(is_refused, "the model takes this: {}", error),
        }
    }
}

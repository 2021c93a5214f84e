//! From a reference to a tree that can be run, with or without the network.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use longshore_host::Session;

use crate::credentials;
use crate::digest::{Digest, Hasher};
use crate::error::{ErrorKind, ImageError};
use crate::growing::{Growing, GrowingReader};
use crate::layers::{Arrivals, LayerInput, Unmade, unpack};
use crate::local::{Local, Shape, Slice};
use crate::lock::{Lock, Share};
use crate::manifest::{Descriptor, Document, ImageConfig, Manifest, Platform, corrupt};
use crate::progress::{Event, Progress};
use crate::reference::ImageRef;
use crate::registry::{Download, Registry, Transport};
use crate::sandbox;
use crate::store::{self, Store, Tree};
use crate::unpack::TreeSummary;

/// Threads that were joined are gone long before this.
const SETTLING: Duration = Duration::from_millis(200);

/// When to ask the registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PullPolicy {
    /// Only for what the store has not.
    #[default]
    Missing,
    /// Always; layers that are here are not fetched again.
    Always,
    /// Never.
    Never,
}

/// How to get an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullOptions {
    /// For which machine.
    pub platform: Platform,
    /// Whether plain HTTP may be spoken.
    pub transport: Transport,
    /// A credentials file in place of the usual ones.
    pub auth_file: Option<PathBuf>,
    /// When to ask the registry.
    pub policy: PullPolicy,
    /// How many layers come at once.
    pub parallel_downloads: usize,
}

impl Default for PullOptions {
    fn default() -> PullOptions {
        PullOptions {
            platform: Platform::here(),
            transport: Transport::Secure,
            auth_file: None,
            policy: PullPolicy::Missing,
            parallel_downloads: 4,
        }
    }
}

/// An image that can be run.
#[derive(Debug)]
pub struct OpenImage {
    /// Its full name.
    pub name: String,
    /// Digest of its manifest; a directory has none.
    pub digest: Option<Digest>,
    /// The tree.
    pub rootfs: PathBuf,
    /// What the image says about running it; empty for a directory that says nothing.
    pub config: ImageConfig,
    /// Keeps `cache clean` from removing the tree: hold it as long as the tree is used, over
    /// `execve` by [`Lock::keep_over_exec`]. A directory, and a store that nobody can write, need none.
    pub lock: Option<Lock>,
}

/// What can be told of an image without unpacking it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// Its full name.
    pub name: String,
    /// Digest of its manifest; a directory has none.
    pub digest: Option<Digest>,
    /// The manifest; a directory may have none.
    pub manifest: Option<Manifest>,
    /// The configuration.
    pub config: ImageConfig,
    /// The configuration as its maker wrote it.
    pub raw_config: Vec<u8>,
    /// The runnable tree, where there is one.
    pub rootfs: Option<PathBuf>,
}

/// Where an image comes from.
pub(crate) enum Source {
    Registry(Box<Registry>),
    Local(Local),
}

/// An image whose documents are here and checked.
pub(crate) struct Resolved {
    pub(crate) name: String,
    pub(crate) digest: Digest,
    pub(crate) manifest: Manifest,
    pub(crate) manifest_text: Vec<u8>,
    pub(crate) config: ImageConfig,
    pub(crate) config_text: Vec<u8>,
}

/// Opens an image for running; what the store has not is pulled into it first.
///
/// # Errors
///
/// See [`ErrorKind`]; the store is left clean, with what arrived of the layers kept for the next try.
pub fn open(
    session: &Session,
    store: &Store,
    options: &PullOptions,
    image: &ImageRef,
    progress: &dyn Progress,
) -> Result<OpenImage, ImageError> {
    let image = &by_content(session, image)?;
    if let ImageRef::Path(path) = image {
        return sandbox::open(path);
    }
    let name = image.to_string();
    if let Some(found) = open_stored(store, options, image, &name)? {
        progress.event(Event::Detail(format!("{name} is in the store")));
        return Ok(found);
    }
    let mut source = Source::open(session, store, options, image)?;
    let resolved = source.resolve(image, &options.platform, progress)?;
    let tree = ensure_tree(store, options, &source, &resolved, progress)?;
    store.set_ref(&name, &options.platform, &resolved.digest)?;
    drop(source);
    // The caller may make namespaces next.
    longshore_host::wait_until_alone(SETTLING);
    Ok(opened(name, resolved.digest, resolved.config, tree))
}

/// Reads an image's documents, from the store where it is, else from where it comes from.
///
/// # Errors
///
/// As [`open()`].
pub fn inspect(
    session: &Session,
    store: &Store,
    options: &PullOptions,
    image: &ImageRef,
    progress: &dyn Progress,
) -> Result<Inspection, ImageError> {
    let image = &by_content(session, image)?;
    if let ImageRef::Path(path) = image {
        return sandbox::inspect(path);
    }
    let name = image.to_string();
    if let Some(found) = open_stored(store, options, image, &name)?
        && let Some(digest) = found.digest
    {
        let path = store.tree_folder(&digest).join("config.json");
        return Ok(Inspection {
            name,
            manifest: Some(store.manifest(&digest)?),
            digest: Some(digest),
            config: found.config,
            raw_config: fs::read(&path).map_err(|error| ImageError::io("read", &path, error))?,
            rootfs: Some(found.rootfs),
        });
    }
    let mut source = Source::open(session, store, options, image)?;
    let resolved = source.resolve(image, &options.platform, progress)?;
    Ok(Inspection {
        name,
        digest: Some(resolved.digest),
        manifest: Some(resolved.manifest),
        config: resolved.config,
        raw_config: resolved.config_text,
        rootfs: None,
    })
}

/// Makes paths absolute, and tells archives and layouts from trees.
pub(crate) fn by_content(session: &Session, image: &ImageRef) -> Result<ImageRef, ImageError> {
    let whole = |path: &Path| session.cwd.join(path);
    Ok(match image {
        ImageRef::Registry(_) => image.clone(),
        ImageRef::OciDir { path, tag } => ImageRef::OciDir {
            path: whole(path),
            tag: tag.clone(),
        },
        ImageRef::OciArchive { path, tag } => ImageRef::OciArchive {
            path: whole(path),
            tag: tag.clone(),
        },
        ImageRef::DockerArchive { path, tag } => ImageRef::DockerArchive {
            path: whole(path),
            tag: tag.clone(),
        },
        ImageRef::Path(path) => {
            let path = whole(path);
            let metadata = fs::metadata(&path)
                .map_err(|error| ImageError::io("open the image", &path, error))?;
            if metadata.is_dir() {
                let is_layout =
                    path.join("oci-layout").is_file() && path.join("index.json").is_file();
                return Ok(if is_layout {
                    ImageRef::OciDir { path, tag: None }
                } else {
                    ImageRef::Path(path)
                });
            }
            let mut start = [0; 512];
            let read = File::open(&path)
                .and_then(|mut file| file.read(&mut start))
                .map_err(|error| ImageError::io("open the image", &path, error))?;
            let later = |what: &str| {
                ImageError::new(
                    ErrorKind::Unsupported,
                    format!(
                        "{} is a {what}; single-file images come in a later release",
                        path.display()
                    ),
                )
                .hint("pull it into the store, or into a directory with `longshore pull --sandbox`")
            };
            if start[..read].starts_with(b"hsqs") {
                return Err(later("SquashFS file"));
            }
            if start[..read].get(32..41) == Some(b"SIF_MAGIC") {
                return Err(later("SIF file"));
            }
            let is_archive = start.starts_with(&[0x1f, 0x8b])
                || start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
                || start.get(257..262) == Some(b"ustar");
            if !is_archive {
                let message = format!("image format not recognized: {}", path.display());
                return Err(ImageError::new(ErrorKind::Unsupported, message)
                    .hint("images are directories, archives of `skopeo` or `docker save`, and references such as docker://debian:12"));
            }
            // Which kind of archive it is shows when its list of files is read.
            ImageRef::OciArchive { path, tag: None }
        }
    })
}

/// An image of a registry that the store has, by name or digest, unless the registry is to be asked.
fn open_stored(
    store: &Store,
    options: &PullOptions,
    image: &ImageRef,
    name: &str,
) -> Result<Option<OpenImage>, ImageError> {
    let ImageRef::Registry(reference) = image else {
        return Ok(None);
    };
    if options.policy == PullPolicy::Always {
        return Ok(None);
    }
    let digest = match store.find_ref(name, &options.platform) {
        Some(record) => record.digest,
        None => match &reference.digest {
            Some(digest) => digest.clone(),
            None => return Ok(None),
        },
    };
    let Some(tree) = store.find_tree(&digest)? else {
        return Ok(None);
    };
    let config = store.config(&digest)?;
    Ok(Some(opened(name.to_owned(), digest, config, tree)))
}

fn opened(name: String, digest: Digest, config: ImageConfig, tree: Tree) -> OpenImage {
    OpenImage {
        name,
        digest: Some(digest),
        rootfs: tree.folder.join("rootfs"),
        config,
        lock: tree.lock,
    }
}

impl Source {
    pub(crate) fn open(
        session: &Session,
        store: &Store,
        options: &PullOptions,
        image: &ImageRef,
    ) -> Result<Source, ImageError> {
        let name = image.to_string();
        let local = |path: &Path, shape| Local::open(&name, path, shape, store).map(Source::Local);
        match image {
            ImageRef::Registry(reference) => {
                if options.policy == PullPolicy::Never {
                    return Err(ImageError::new(
                        ErrorKind::NotFound,
                        format!("{name} is not in the store, and pulling was forbidden"),
                    )
                    .hint(format!("pull it first: longshore pull {name}")));
                }
                let found = credentials::find(session, options.auth_file.as_deref(), reference)?;
                let registry = Registry::open(reference, options.transport, found)?;
                Ok(Source::Registry(Box::new(registry)))
            }
            ImageRef::OciDir { path, .. } => local(path, Shape::Layout),
            ImageRef::OciArchive { path, .. } => local(path, Shape::Either),
            ImageRef::DockerArchive { path, .. } => local(path, Shape::DockerSave),
            ImageRef::Path(path) => Err(ImageError::new(
                ErrorKind::Unsupported,
                format!("{} is a directory already", path.display()),
            )),
        }
    }

    /// Fetches and checks the documents of the image for `platform`.
    pub(crate) fn resolve(
        &mut self,
        image: &ImageRef,
        platform: &Platform,
        progress: &dyn Progress,
    ) -> Result<Resolved, ImageError> {
        let name = image.to_string();
        let (manifest_text, manifest) = match (&mut *self, image) {
            (Source::Registry(registry), ImageRef::Registry(reference)) => {
                let mut text = registry.manifest(&reference.version(), progress)?;
                let mut depth = 0;
                loop {
                    match Document::parse(&text, &name)? {
                        Document::Manifest(manifest) => break (text, *manifest),
                        Document::Index(index) if depth < 4 => {
                            let chosen = index.choose(platform, &name)?;
                            text = registry.manifest(&chosen.digest.to_string(), progress)?;
                            depth += 1;
                        }
                        Document::Index(_) => {
                            return Err(corrupt(&name, "index", "it is nested too deeply"));
                        }
                    }
                }
            }
            (
                Source::Local(local),
                ImageRef::OciDir { tag, .. }
                | ImageRef::OciArchive { tag, .. }
                | ImageRef::DockerArchive { tag, .. },
            ) => {
                let text = local.manifest(tag.as_deref(), platform)?;
                match Document::parse(&text, &name)? {
                    Document::Manifest(manifest) => (text, *manifest),
                    Document::Index(_) => {
                        return Err(corrupt(&name, "index", "it is nested too deeply"));
                    }
                }
            }
            _ => unreachable!("a source is opened for the reference that it resolves"),
        };
        let config_text = match self {
            Source::Registry(registry) => registry.small_blob(&manifest.config, progress)?,
            Source::Local(local) => local.blob_bytes(&manifest.config)?,
        };
        let config = ImageConfig::parse(&config_text, &name)?;
        if !config.os.is_empty() && config.os != "linux" {
            return Err(ImageError::new(
                ErrorKind::Unsupported,
                format!("{name} is an image for {}, not for Linux", config.os),
            ));
        }
        if config.diff_ids.len() != manifest.layers.len() {
            return Err(corrupt(
                &name,
                "configuration",
                format!(
                    "it lists {} layers and the manifest {}",
                    config.diff_ids.len(),
                    manifest.layers.len()
                ),
            ));
        }
        let wanted = &platform.architecture;
        if !config.architecture.is_empty() && config.architecture != *wanted {
            progress.event(Event::Notice(format!(
                "{name} is made for {}, and {wanted} was asked for",
                config.architecture
            )));
        }
        Ok(Resolved {
            digest: Digest::of(&manifest_text),
            name,
            manifest,
            manifest_text,
            config,
            config_text,
        })
    }
}

/// Gives the tree of the image, made now where the store has it not.
fn ensure_tree(
    store: &Store,
    options: &PullOptions,
    source: &Source,
    image: &Resolved,
    progress: &dyn Progress,
) -> Result<Tree, ImageError> {
    loop {
        if let Some(tree) = store.find_tree(&image.digest)? {
            return Ok(tree);
        }
        store.prepare()?;
        let lock = store.lock_tree(&image.digest, Share::WithNobody, progress)?;
        let folder = store.tree_folder(&image.digest);
        store.remove_untrusted(&image.digest)?;
        if !folder.exists() {
            let unfinished = store.unfinished_tree(&image.digest);
            store::remove_tree(&unfinished)?;
            let made =
                make_tree(store, options, source, image, &unfinished, progress).and_then(|()| {
                    fs::rename(&unfinished, &folder)
                        .map_err(|error| ImageError::io("put in place", &folder, error))
                });
            if let Err(error) = made {
                // The first failure is the one to tell; what is left is swept by the next command.
                let _ = store::remove_tree(&unfinished);
                return Err(error);
            }
        }
        lock.share()?;
        lock.touch();
        // Sharing lets go for a moment, in which the tree may have been removed again.
        if folder.join("rootfs").is_dir() {
            return Ok(Tree {
                folder,
                lock: Some(lock),
            });
        }
    }
}

fn make_tree(
    store: &Store,
    options: &PullOptions,
    source: &Source,
    image: &Resolved,
    folder: &Path,
    progress: &dyn Progress,
) -> Result<(), ImageError> {
    let rootfs = folder.join("rootfs");
    make_folder(folder)?;
    make_folder(&rootfs)?;
    fill(store, options, source, image, &rootfs, progress)?;
    for (name, text) in [
        ("manifest.json", &image.manifest_text),
        ("config.json", &image.config_text),
    ] {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| ImageError::io("write", &path, error))?;
    }
    store::guard(folder)
}

pub(crate) fn make_folder(path: &Path) -> Result<(), ImageError> {
    fs::create_dir(path).map_err(|error| ImageError::io("make the folder", path, error))
}

/// Unpacks the image into the empty directory `rootfs`, fetching the layers that are missing.
pub(crate) fn fill(
    store: &Store,
    options: &PullOptions,
    source: &Source,
    image: &Resolved,
    rootfs: &Path,
    progress: &dyn Progress,
) -> Result<TreeSummary, ImageError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let (unmade, resumed) = match source {
            Source::Local(local) => match fill_from_files(local, image, rootfs, progress) {
                Ok(summary) => return Ok(summary),
                Err(unmade) => return Err(unmade.error),
            },
            Source::Registry(registry) => {
                let parts = prepare_layers(store, image, rootfs, progress)?;
                let resumed = parts.values().any(|part| part.resumed_bytes > 0);
                match fill_from_registry(store, registry, options, image, parts, rootfs, progress) {
                    Ok(summary) => return Ok(summary),
                    Err(unmade) => (unmade, resumed),
                }
            }
        };
        // Only what was kept from earlier can be better the next time.
        let Unmade { error, spoilt } = unmade;
        if tries > 3 || !(spoilt.is_some() || resumed && error.kind == ErrorKind::Corrupt) {
            return Err(error);
        }
        progress.event(Event::Notice(format!("{error}; it is fetched again")));
        if let Some(digest) = spoilt {
            let _ = fs::remove_file(store.blob(&digest));
        }
        store::remove_tree(rootfs)?;
        make_folder(rootfs)?;
    }
}

fn fill_from_files(
    local: &Local,
    image: &Resolved,
    rootfs: &Path,
    progress: &dyn Progress,
) -> Result<TreeSummary, Unmade> {
    let plain = |error| Unmade {
        error,
        spoilt: None,
    };
    let layer_bytes: Vec<u64> = image
        .manifest
        .layers
        .iter()
        .map(|layer| layer.size)
        .collect();
    Store::check_space(rootfs, layer_bytes.iter().sum(), &image.name).map_err(plain)?;
    progress.event(Event::Layers {
        here_bytes: layer_bytes.clone(),
        layer_bytes,
    });
    let mut inputs = Vec::new();
    for (layer, diff_id) in image.manifest.layers.iter().zip(&image.config.diff_ids) {
        inputs.push(LayerInput {
            name: layer.digest.short().to_owned(),
            raw: Box::new(local.blob(&layer.digest).map_err(plain)?),
            digest: Some(layer.digest.clone()),
            diff_id: diff_id.clone(),
        });
    }
    unpack(inputs, None, rootfs, &image.name, progress)
}

/// A layer as the store has it: whole, in part, or not at all.
struct Part {
    descriptor: Descriptor,
    lock: Option<Lock>,
    /// Reads from the start.
    reader: File,
    /// Appends; `None` where the layer is whole.
    writer: Option<File>,
    resumed_bytes: u64,
    hasher: Hasher,
    growing: Growing,
}

/// Locks and opens every layer, and checks that the rest fits on the disk.
fn prepare_layers(
    store: &Store,
    image: &Resolved,
    rootfs: &Path,
    progress: &dyn Progress,
) -> Result<BTreeMap<Digest, Part>, ImageError> {
    store.prepare()?;
    let mut parts = BTreeMap::new();
    // In the order of digests, so that two pulls with common layers cannot wait for each other.
    let layers: BTreeMap<&Digest, &Descriptor> = image
        .manifest
        .layers
        .iter()
        .map(|layer| (&layer.digest, layer))
        .collect();
    for (digest, descriptor) in layers {
        let lock = store.lock_blob(digest, progress)?;
        let part = open_part(store, descriptor, lock)?;
        parts.insert(digest.clone(), part);
    }
    let all_bytes: u64 = image.manifest.layers.iter().map(|layer| layer.size).sum();
    let missing_bytes: u64 = parts
        .values()
        .map(|part| part.descriptor.size - part.resumed_bytes)
        .sum();
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    // A tree is never smaller than its compressed layers; most are two to three times as large.
    if device(store.root()) == device(rootfs) {
        Store::check_space(store.root(), missing_bytes + all_bytes, &image.name)?;
    } else {
        Store::check_space(store.root(), missing_bytes, &image.name)?;
        Store::check_space(rootfs, all_bytes, &image.name)?;
    }
    progress.event(Event::Layers {
        layer_bytes: image
            .manifest
            .layers
            .iter()
            .map(|layer| layer.size)
            .collect(),
        here_bytes: image
            .manifest
            .layers
            .iter()
            .map(|layer| parts[&layer.digest].resumed_bytes)
            .collect(),
    });
    Ok(parts)
}

fn open_part(store: &Store, descriptor: &Descriptor, lock: Lock) -> Result<Part, ImageError> {
    let digest = &descriptor.digest;
    let blob = store.blob(digest);
    if let Ok(reader) = File::open(&blob) {
        let stored_bytes = reader
            .metadata()
            .map(|metadata| metadata.len())
            .unwrap_or(0);
        if stored_bytes == descriptor.size {
            // The open file stays readable whatever happens to its name.
            return Ok(Part {
                descriptor: descriptor.clone(),
                lock: None,
                reader,
                writer: None,
                resumed_bytes: descriptor.size,
                hasher: Hasher::new(),
                growing: Growing::new(stored_bytes),
            });
        }
        fs::remove_file(&blob)
            .map_err(|error| ImageError::io("remove the damaged", &blob, error))?;
    }
    let partial = store.partial(digest);
    let failed = |error: io::Error| ImageError::io("write", &partial, error);
    let mut writer = OpenOptions::new()
        .create(true)
        .read(true)
        .append(true)
        .mode(0o600)
        .open(&partial)
        .map_err(failed)?;
    let mut resumed_bytes = writer.metadata().map_err(failed)?.len();
    if resumed_bytes > descriptor.size {
        writer.set_len(0).map_err(failed)?;
        resumed_bytes = 0;
    }
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; 256 << 10];
    writer.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut rest = (&mut writer).take(resumed_bytes);
    loop {
        match rest.read(&mut buffer).map_err(failed)? {
            0 => break,
            read => hasher.update(&buffer[..read]),
        }
    }
    Ok(Part {
        descriptor: descriptor.clone(),
        lock: Some(lock),
        reader: File::open(&partial).map_err(failed)?,
        writer: Some(writer),
        resumed_bytes,
        hasher,
        growing: Growing::new(resumed_bytes),
    })
}

fn fill_from_registry(
    store: &Store,
    registry: &Registry,
    options: &PullOptions,
    image: &Resolved,
    mut parts: BTreeMap<Digest, Part>,
    rootfs: &Path,
    progress: &dyn Progress,
) -> Result<TreeSummary, Unmade> {
    let plain = |error| Unmade {
        error,
        spoilt: None,
    };
    let mut order = Vec::new();
    for (layer_index, layer) in image.manifest.layers.iter().enumerate() {
        let part = parts
            .get_mut(&layer.digest)
            .expect("every layer was prepared");
        if let Some(writer) = part.writer.take() {
            let hasher = std::mem::replace(&mut part.hasher, Hasher::new());
            order.push((layer_index, writer, hasher, part.lock.take()));
        } else if part.lock.is_none() && part.resumed_bytes == layer.size {
            part.growing.completed();
        }
    }
    // A layer that is on its way is not whole yet, also when it is listed twice.
    let arriving: Vec<&Digest> = order
        .iter()
        .map(|(layer_index, ..)| &image.manifest.layers[*layer_index].digest)
        .collect();
    let mut inputs = Vec::new();
    for (layer, diff_id) in image.manifest.layers.iter().zip(&image.config.diff_ids) {
        let part = &parts[&layer.digest];
        let failed = |error| ImageError::io("read", &store.blob(&layer.digest), error);
        let file = part.reader.try_clone().map_err(failed).map_err(plain)?;
        let comes = arriving.contains(&&layer.digest);
        let raw: Box<dyn Read + Send + '_> = if comes {
            Box::new(GrowingReader {
                file,
                growing: &part.growing,
                offset: 0,
            })
        } else {
            Box::new(Slice::whole(file).map_err(failed).map_err(plain)?)
        };
        inputs.push(LayerInput {
            name: layer.digest.short().to_owned(),
            raw,
            digest: (!comes).then(|| layer.digest.clone()),
            diff_id: diff_id.clone(),
        });
    }
    let downloads: Vec<Download<'_>> = order
        .into_iter()
        .map(|(layer_index, file, hasher, lock)| {
            let digest = &image.manifest.layers[layer_index].digest;
            let part = &parts[digest];
            Download {
                layer_index,
                descriptor: &part.descriptor,
                file,
                here_bytes: part.resumed_bytes,
                hasher,
                growing: &part.growing,
                keep: Box::new(move || {
                    let blob = store.blob(digest);
                    let kept = fs::rename(store.partial(digest), &blob)
                        .map_err(|error| ImageError::io("put in place", &blob, error));
                    // Another pull may have the layer from here on.
                    drop(lock);
                    kept
                }),
                discard: Box::new(move || {
                    let _ = fs::remove_file(store.partial(digest));
                }),
            }
        })
        .collect();
    let arrivals = (!downloads.is_empty()).then_some(Arrivals {
        registry,
        downloads,
        parallel: options.parallel_downloads,
    });
    unpack(inputs, arrivals, rootfs, &image.name, progress)
}

//! Images made by the tests themselves, and the registries that serve them: Debian's
//! `docker-registry`, and a small one that misbehaves as it is told.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use longshore_image::Digest;

use crate::support::program;

/// The login of the registry, and a bcrypt line that accepts it.
pub(crate) const USER: &str = "alice";
pub(crate) const PASSWORD: &str = "secret";
const HTPASSWD: &str = "alice:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n";
/// base64 of `alice:secret`.
pub(crate) const BASIC: &str = "Basic YWxpY2U6c2VjcmV0";

/// How a layer is compressed.
#[derive(Clone, Copy)]
pub(crate) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// A tar file in the making; only what the tests need.
#[derive(Default)]
pub(crate) struct Tar(Vec<u8>);

impl Tar {
    pub(crate) fn file(mut self, name: &str, content: &[u8]) -> Tar {
        self.header(name, b'0', 0o644, content.len(), "");
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn program(mut self, name: &str, content: &[u8]) -> Tar {
        self.header(name, b'0', 0o755, content.len(), "");
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn folder(mut self, name: &str) -> Tar {
        self.header(name, b'5', 0o755, 0, "");
        self
    }

    pub(crate) fn symlink(mut self, name: &str, target: &str) -> Tar {
        self.header(name, b'2', 0o777, 0, target);
        self
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }

    fn header(&mut self, name: &str, kind: u8, mode: u32, bytes: usize, target: &str) {
        let mut header = [0u8; 512];
        let mut put = |at: usize, text: &str| {
            header[at..at + text.len()].copy_from_slice(text.as_bytes());
        };
        put(0, name);
        put(100, &format!("{mode:07o}"));
        put(108, "0000000");
        put(116, "0000000");
        put(124, &format!("{bytes:011o}"));
        put(136, "14000000000");
        put(148, "        ");
        put(157, target);
        put(257, "ustar\u{0}00");
        header[156] = kind;
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend_from_slice(&header);
    }
}

/// One blob of an image.
#[derive(Clone)]
pub(crate) struct Blob {
    pub(crate) digest: Digest,
    pub(crate) bytes: Vec<u8>,
}

/// An image: manifest, configuration, layers.
#[derive(Clone)]
pub(crate) struct Image {
    pub(crate) manifest: Vec<u8>,
    pub(crate) config: Blob,
    pub(crate) layers: Vec<Blob>,
}

impl Image {
    /// Puts uncompressed layers together.
    pub(crate) fn of(layers: &[(Vec<u8>, Packing)]) -> Image {
        let mut blobs = Vec::new();
        let (mut diff_ids, mut descriptors) = (Vec::new(), Vec::new());
        for (tar, packing) in layers {
            let (bytes, ending) = match packing {
                Packing::Plain => (tar.clone(), ""),
                Packing::Gzip => {
                    let mut encoder =
                        flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                    encoder.write_all(tar).expect("memory");
                    (encoder.finish().expect("memory"), "+gzip")
                }
                Packing::Zstd => (zstd::encode_all(&tar[..], 1).expect("memory"), "+zstd"),
            };
            let digest = Digest::of(&bytes);
            diff_ids.push(format!("\"{}\"", Digest::of(tar)));
            descriptors.push(format!(
                r#"{{"mediaType":"application/vnd.oci.image.layer.v1.tar{ending}","digest":"{digest}","size":{}}}"#,
                bytes.len()
            ));
            blobs.push(Blob { digest, bytes });
        }
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let config = format!(
            r#"{{"os":"linux","architecture":"{arch}","config":{{"Env":["GREETING=a b$c \"d\""],"Cmd":["/hello"],"Labels":{{"made.by":"test"}}}},"rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
            diff_ids.join(",")
        )
        .into_bytes();
        let config = Blob {
            digest: Digest::of(&config),
            bytes: config,
        };
        let manifest = format!(
            r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"{}","size":{}}},"layers":[{}]}}"#,
            config.digest,
            config.bytes.len(),
            descriptors.join(",")
        );
        Image {
            manifest: manifest.into_bytes(),
            config,
            layers: blobs,
        }
    }

    /// Three small layers, one of each packing; the last removes a file of the first.
    pub(crate) fn small() -> Image {
        let one = Tar::default()
            .folder("etc/")
            .file("etc/name", b"one\n")
            .file("etc/gone", b"x")
            .file("hello", b"#!/bin/sh\n");
        let two = Tar::default()
            .file("etc/name", b"two\n")
            .symlink("link", "etc/name");
        let three = Tar::default().file("etc/.wh.gone", b"");
        Image::of(&[
            (one.end(), Packing::Gzip),
            (two.end(), Packing::Zstd),
            (three.end(), Packing::Plain),
        ])
    }

    /// Four layers with 6000 files that compress little.
    pub(crate) fn large() -> Image {
        static LARGE: OnceLock<Image> = OnceLock::new();
        LARGE.get_or_init(Image::make_large).clone()
    }

    fn make_large() -> Image {
        let mut noise = 0x2545_f491_4f6c_dd1d_u64;
        let layers: Vec<(Vec<u8>, Packing)> = (0..4)
            .map(|layer| {
                let mut tar = Tar::default();
                for folder in 0..15 {
                    tar = tar.folder(&format!("data{layer}/{folder}/"));
                    for file in 0..100 {
                        let content: Vec<u8> = (0..4096)
                            .map(|_| {
                                noise ^= noise << 13;
                                noise ^= noise >> 7;
                                noise ^= noise << 17;
                                (noise & 0xff) as u8
                            })
                            .collect();
                        tar = tar.file(&format!("data{layer}/{folder}/{file}"), &content);
                    }
                }
                let packing = if layer == 2 {
                    Packing::Zstd
                } else {
                    Packing::Gzip
                };
                (tar.end(), packing)
            })
            .collect();
        Image::of(&layers)
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }

    fn blobs(&self) -> impl Iterator<Item = &Blob> {
        std::iter::once(&self.config).chain(&self.layers)
    }

    /// Writes an OCI layout with one tag.
    pub(crate) fn write_layout(&self, folder: &Path, tag: &str) {
        let blobs = folder.join("blobs/sha256");
        fs::create_dir_all(&blobs).expect("own folder");
        let put = |digest: &Digest, bytes: &[u8]| {
            fs::write(blobs.join(digest.hex()), bytes).expect("own folder");
        };
        self.blobs().for_each(|blob| put(&blob.digest, &blob.bytes));
        put(&self.digest(), &self.manifest);
        fs::write(
            folder.join("oci-layout"),
            r#"{"imageLayoutVersion":"1.0.0"}"#,
        )
        .expect("own");
        fs::write(folder.join("index.json"), self.index(tag)).expect("own folder");
    }

    fn index(&self, tag: &str) -> String {
        format!(
            r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"{}","size":{},"annotations":{{"org.opencontainers.image.ref.name":"{tag}"}}}}]}}"#,
            self.digest(),
            self.manifest.len()
        )
    }

    /// An OCI archive, as `skopeo copy ... oci-archive:` writes it.
    pub(crate) fn oci_archive(&self, tag: &str) -> Vec<u8> {
        let mut tar = Tar::default()
            .file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)
            .file("index.json", self.index(tag).as_bytes());
        let manifest = Blob {
            digest: self.digest(),
            bytes: self.manifest.clone(),
        };
        for blob in self.blobs().chain([&manifest]) {
            tar = tar.file(&format!("blobs/sha256/{}", blob.digest.hex()), &blob.bytes);
        }
        tar.end()
    }

    /// What `docker save` writes, with an equal layer as a link.
    pub(crate) fn docker_archive(&self, tag: &str) -> Vec<u8> {
        let mut tar = Tar::default().file("config.json", &self.config.bytes);
        let mut layers = Vec::new();
        for (at, layer) in self.layers.iter().enumerate() {
            tar = tar.file(&format!("real{at}/layer.tar"), &layer.bytes);
            tar = tar.symlink(
                &format!("l{at}/layer.tar"),
                &format!("../real{at}/layer.tar"),
            );
            layers.push(format!("\"l{at}/layer.tar\""));
        }
        let manifest = format!(
            r#"[{{"Config":"config.json","RepoTags":["{tag}"],"Layers":[{}]}}]"#,
            layers.join(",")
        );
        tar.file("manifest.json", manifest.as_bytes()).end()
    }
}

/// A running `docker-registry` with basic authentication; it ends with this value.
pub(crate) struct DockerRegistry {
    server: Child,
    folder: tempfile::TempDir,
    pub(crate) address: String,
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl DockerRegistry {
    /// Starts one on a free port, or `None` where the program is not installed.
    pub(crate) fn start() -> Option<DockerRegistry> {
        let program = program("docker-registry")?;
        let folder = tempfile::tempdir_in("/var/tmp").expect("/var/tmp can be written");
        fs::write(folder.path().join("htpasswd"), HTPASSWD).expect("own folder");
        // Another program may take the port between the choice and its use.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0")
                .and_then(|free| free.local_addr())
                .expect("a free port")
                .port();
            let address = format!("127.0.0.1:{port}");
            let root = folder.path().display();
            let config = format!(
                "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {root}/data}}}}\n\
                 http: {{addr: {address}}}\nauth: {{htpasswd: {{realm: test, path: {root}/htpasswd}}}}\n"
            );
            let path = folder.path().join("config.yml");
            fs::write(&path, config).expect("own folder");
            let mut server = Command::new(&program)
                .arg("serve")
                .arg(&path)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("docker-registry can be started");
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(10) {
                if request(&address, "GET", "/v2/", &[("Authorization", BASIC)], b"")
                    .is_some_and(|answer| answer.status == 200)
                {
                    return Some(DockerRegistry {
                        server,
                        folder,
                        address,
                    });
                }
                if server.try_wait().expect("a child").is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = server.kill();
            let _ = server.wait();
        }
        panic!("docker-registry did not start");
    }

    /// Starts again on the same port and content, speaking TLS; the file of the authority to trust,
    /// or `None` where no certificate can be made.
    pub(crate) fn speak_tls(&mut self) -> Option<PathBuf> {
        let openssl = program("openssl")?;
        let run = |line: &str| {
            let done = Command::new(&openssl)
                .args(line.split(' '))
                .current_dir(self.folder.path())
                .output()
                .expect("openssl can be started");
            assert!(done.status.success(), "{done:?}");
        };
        fs::write(
            self.folder.path().join("leaf.ext"),
            "subjectAltName=IP:127.0.0.1\n",
        )
        .expect("own");
        run(
            "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=test-ca",
        );
        run("req -newkey rsa:2048 -nodes -keyout leaf.key -out leaf.csr -subj /CN=leaf");
        run(
            "x509 -req -in leaf.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -out leaf.crt -extfile leaf.ext",
        );
        let root = self.folder.path().display().to_string();
        let path = self.folder.path().join("config.yml");
        let config = fs::read_to_string(&path).expect("own file").replace(
            &format!("http: {{addr: {}}}", self.address),
            &format!(
                "http: {{addr: {}, tls: {{certificate: {root}/leaf.crt, key: {root}/leaf.key}}}}",
                self.address
            ),
        );
        fs::write(&path, config).expect("own file");
        let _ = self.server.kill();
        let _ = self.server.wait();
        self.server = Command::new(program("docker-registry")?)
            .arg("serve")
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("docker-registry can be started");
        let start = Instant::now();
        while TcpStream::connect(&self.address).is_err() {
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "no registry with TLS"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        // The ordinary user reads it.
        use std::os::unix::fs::PermissionsExt;
        let folder = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.folder.path(), folder).expect("own folder");
        Some(self.folder.path().join("ca.crt"))
    }

    /// Pushes an image by the distribution protocol.
    pub(crate) fn push(&self, name: &str, tag: &str, image: &Image) {
        let login = ("Authorization", BASIC);
        for blob in image.blobs() {
            let path = format!("/v2/{name}/blobs/uploads/");
            let begun = request(&self.address, "POST", &path, &[login], b"").expect("an answer");
            assert_eq!(begun.status, 202);
            let location = begun.header("location").expect("an upload has a place");
            let place = &location[location.find("/v2/").expect("a path")..];
            let place = format!("{place}&digest={}", blob.digest);
            let done = request(&self.address, "PUT", &place, &[login], &blob.bytes);
            assert_eq!(done.expect("an answer").status, 201);
        }
        let kind = ("Content-Type", "application/vnd.oci.image.manifest.v1+json");
        let path = format!("/v2/{name}/manifests/{tag}");
        let put = request(&self.address, "PUT", &path, &[login, kind], &image.manifest);
        assert_eq!(put.expect("an answer").status, 201);
    }

    /// Where the registry keeps a blob.
    pub(crate) fn stored(&self, digest: &Digest) -> PathBuf {
        let hex = digest.hex();
        self.folder.path().join(format!(
            "data/docker/registry/v2/blobs/sha256/{}/{hex}/data",
            &hex[..2]
        ))
    }
}

struct HttpAnswer {
    status: u16,
    headers: Vec<(String, String)>,
}

impl HttpAnswer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// Makes one request; `None` where nobody answers.
fn request(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Option<HttpAnswer> {
    let mut stream = TcpStream::connect(address).ok()?;
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    let (first, headers) = read_head(&mut BufReader::new(stream))?;
    let status = first.split(' ').nth(1)?.parse().ok()?;
    Some(HttpAnswer { status, headers })
}

fn read_head(reader: &mut impl BufRead) -> Option<(String, Vec<(String, String)>)> {
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|&read| read > 0)?;
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_owned(), value.to_owned())),
            None => return Some((first.trim_end().to_owned(), headers)),
        }
    }
}

/// A request as the small registry saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// What the small registry answers; `cut_at` breaks the connection after so many bytes.
#[derive(Clone, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) cut_at: Option<usize>,
}

impl Reply {
    pub(crate) fn of(status: u16, body: &[u8]) -> Reply {
        Reply {
            status,
            body: body.to_vec(),
            ..Reply::default()
        }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Reply {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// A registry of a few lines that does what a test tells it.
pub(crate) struct FakeRegistry {
    pub(crate) address: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl FakeRegistry {
    /// Serves on a free port of `host` until the test ends; each request is one call of `answer`.
    pub(crate) fn start(
        host: &str,
        answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> FakeRegistry {
        let listener = TcpListener::bind((host, 0)).expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &log, &*answer));
            }
        });
        FakeRegistry { address, seen }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no holder panics").clone()
    }
}

fn serve(stream: TcpStream, log: &Mutex<Vec<Seen>>, answer: &dyn Fn(&Seen) -> Reply) {
    let Ok(mut writer) = stream.try_clone() else {
        return;
    };
    let mut reader = BufReader::new(stream);
    while let Some((first, headers)) = read_head(&mut reader) {
        let mut words = first.split(' ');
        let seen = Seen {
            method: words.next().unwrap_or_default().to_owned(),
            path: words.next().unwrap_or_default().to_owned(),
            headers,
        };
        let length = seen
            .header("content-length")
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        log.lock().expect("no holder panics").push(seen.clone());
        let reply = answer(&seen);
        let mut head = format!(
            "HTTP/1.1 {} X\r\nContent-Length: {}\r\n",
            reply.status,
            reply.body.len()
        );
        for (name, value) in &reply.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let sent = &reply.body[..reply.cut_at.unwrap_or(reply.body.len())];
        if writer.write_all(head.as_bytes()).is_err()
            || writer.write_all(sent).is_err()
            || reply.cut_at.is_some()
        {
            let _ = writer.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}

/// The ordinary answers for `image` under any name and tag; honours ranges.
pub(crate) fn ordinary(image: &Image, seen: &Seen) -> Reply {
    let last = seen.path.rsplit('/').next().unwrap_or_default();
    if seen.path == "/v2/" {
        return Reply::of(200, b"{}");
    }
    if seen.path.contains("/manifests/") {
        return Reply::of(200, &image.manifest)
            .with("Content-Type", "application/vnd.oci.image.manifest.v1+json");
    }
    let Some(blob) = image.blobs().find(|blob| blob.digest.to_string() == last) else {
        return Reply::of(404, b"{}");
    };
    let from = seen.header("range").and_then(|range| {
        range
            .strip_prefix("bytes=")?
            .strip_suffix('-')?
            .parse::<usize>()
            .ok()
    });
    match from {
        Some(from) if from < blob.bytes.len() => {
            let end = blob.bytes.len();
            Reply::of(206, &blob.bytes[from..])
                .with("Content-Range", &format!("bytes {from}-{}/{end}", end - 1))
        }
        Some(_) => Reply::of(416, b""),
        None => Reply::of(200, &blob.bytes),
    }
}

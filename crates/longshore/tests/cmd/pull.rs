//! `pull` against a real registry, and against one that misbehaves.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use longshore_image::Digest;

use crate::image_server::{
    BASIC, DockerRegistry, FakeRegistry, Image, PASSWORD, Packing, Reply, Tar, USER, ordinary,
};
use crate::support::{Said, World, say, skip, succeed};

fn logged_in(world: &World) -> Command {
    let mut command = world.longshore();
    command
        .env("APPTAINER_DOCKER_USERNAME", USER)
        .env("APPTAINER_DOCKER_PASSWORD", PASSWORD);
    command
}

fn pull(world: &World, image: &str) -> Command {
    let mut command = logged_in(world);
    command.args(["pull", image]);
    command
}

/// Files below a folder of the store, without the mark of a tree that is not on the disk yet.
fn count(world: &World, below: &str) -> usize {
    fn walk(path: &std::path::Path) -> usize {
        let Ok(entries) = fs::read_dir(path) else {
            return 0;
        };
        entries
            .flatten()
            .map(|entry| match entry.file_type() {
                Ok(kind) if kind.is_dir() => walk(&entry.path()),
                _ if entry.file_name() == "unflushed" => 0,
                _ => 1,
            })
            .sum()
    }
    walk(&world.path("cache").join(below))
}

/// No tree and no half-made thing.
#[track_caller]
fn assert_clean(world: &World) {
    assert_eq!(count(world, "trees"), 0, "no tree");
    assert_eq!(count(world, "tmp"), 0, "nothing half made");
    assert_eq!(count(world, "refs"), 0, "no name");
}

#[track_caller]
fn assert_refused(said: &Said, words: &[&str]) {
    assert_eq!(said.status, Some(1), "{}", said.err);
    assert_eq!(said.out, "");
    for word in words {
        assert!(
            said.err.contains(word),
            "`{word}` is missing in: {}",
            said.err
        );
    }
    assert!(!said.err.contains(PASSWORD), "the password is shown");
}

fn rootfs(world: &World, image: &Image) -> std::path::PathBuf {
    world
        .path("cache/trees")
        .join(image.digest().hex())
        .join("rootfs")
}

#[test]
fn an_image_with_many_files_is_pulled_with_a_login() {
    let Some(registry) = DockerRegistry::start() else {
        skip!("docker-registry is not installed");
    };
    let image = Image::large();
    registry.push("lab/large", "1", &image);
    let world = World::new();
    let name = format!("docker://{}/lab/large:1", registry.address);
    let said = succeed(&mut pull(&world, &name));
    assert!(said.contains(&image.digest().to_string()), "{said}");
    assert_eq!(count(&world, "trees"), 6000 + 2);
    assert_eq!(count(&world, "tmp"), 0);
    assert_eq!(count(&world, "partial"), 0);
    let listed = succeed(world.longshore().args(["images", "--json"]));
    assert!(listed.contains(&name), "{listed}");
}

#[test]
fn layers_of_every_packing_are_flattened() {
    let image = Image::small();
    let served = image.clone();
    let registry = FakeRegistry::start("127.0.0.1", move |seen| ordinary(&served, seen));
    let world = World::new();
    succeed(&mut pull(
        &world,
        &format!("docker://{}/small", registry.address),
    ));
    let root = rootfs(&world, &image);
    let text = |name: &str| fs::read_to_string(root.join(name)).ok();
    assert_eq!(text("etc/name").as_deref(), Some("two\n"));
    assert_eq!(text("link").as_deref(), Some("two\n"));
    assert_eq!(text("etc/gone"), None);
}

#[test]
fn a_wrong_password_and_no_password_are_told_apart() {
    let Some(registry) = DockerRegistry::start() else {
        skip!("docker-registry is not installed");
    };
    registry.push("a", "latest", &Image::small());
    let world = World::new();
    let name = format!("docker://{}/a", registry.address);
    let anonymous = say(world.longshore().args(["pull", &name]));
    assert_refused(&anonymous, &["wants a login", "APPTAINER_DOCKER_USERNAME"]);
    let wrong = say(pull(&world, &name).env("APPTAINER_DOCKER_PASSWORD", "wrong"));
    assert_refused(&wrong, &["user `alice`", "APPTAINER_DOCKER_USERNAME"]);
    assert_clean(&world);
}

#[test]
fn a_registry_with_tls_is_trusted_by_its_authority_only() {
    let Some(mut registry) = DockerRegistry::start() else {
        skip!("docker-registry is not installed");
    };
    registry.push("a", "1", &Image::small());
    let Some(authority) = registry.speak_tls() else {
        skip!("openssl is not installed");
    };
    let world = World::new();
    let name = format!("docker://{}/a:1", registry.address);
    let said = say(&mut pull(&world, &name));
    assert_refused(&said, &["certificate that is not trusted", "SSL_CERT_FILE"]);
    succeed(pull(&world, &name).env("SSL_CERT_FILE", authority));
    let said = say(pull(&world, &name).arg("--no-https"));
    assert_eq!(said.status, Some(1), "{}", said.err);
}

#[test]
fn the_login_of_docker_is_used() {
    let Some(registry) = DockerRegistry::start() else {
        skip!("docker-registry is not installed");
    };
    registry.push("a", "latest", &Image::small());
    let world = World::new();
    world.make_dir("home/.docker");
    let auth = BASIC.trim_start_matches("Basic ");
    world.write(
        "home/.docker/config.json",
        format!(
            r#"{{"auths":{{"{}":{{"auth":"{auth}"}}}}}}"#,
            registry.address
        ),
    );
    succeed(
        world
            .longshore()
            .args(["pull", &format!("docker://{}/a", registry.address)]),
    );
}

#[test]
fn what_is_not_there_is_said() {
    let Some(registry) = DockerRegistry::start() else {
        skip!("docker-registry is not installed");
    };
    let world = World::new();
    let missing = say(&mut pull(
        &world,
        &format!("docker://{}/none:1", registry.address),
    ));
    assert_refused(
        &missing,
        &["404", "none:1", "hint: check the name and the tag"],
    );
    let address = registry.address.clone();
    drop(registry);
    let nobody = say(&mut pull(&world, &format!("docker://{address}/none:1")));
    assert_refused(&nobody, &["cannot reach the registry", &address, "refused"]);
    assert_clean(&world);
}

#[test]
fn a_changed_layer_is_refused_and_nothing_is_kept() {
    let Some(registry) = DockerRegistry::start() else {
        skip!("docker-registry is not installed");
    };
    let image = Image::large();
    registry.push("a", "1", &image);
    let stored = registry.stored(&image.layers[1].digest);
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&stored)
        .expect("the registry's file");
    let middle = image.layers[1].bytes.len() as u64 / 2;
    file.write_all_at(b"not what was pushed", middle)
        .expect("room");
    let world = World::new();
    let said = say(&mut pull(
        &world,
        &format!("docker://{}/a:1", registry.address),
    ));
    assert_refused(
        &said,
        &["not what was promised", image.layers[1].digest.short()],
    );
    assert_clean(&world);
    let hex = image.layers[1].digest.hex();
    assert!(!world.path("cache/partial").join(hex).exists());
    assert!(!world.path("cache/blobs/sha256").join(hex).exists());
}

#[test]
fn a_truncated_layer_is_refused() {
    let Some(registry) = DockerRegistry::start() else {
        skip!("docker-registry is not installed");
    };
    let image = Image::large();
    registry.push("a", "1", &image);
    let stored = registry.stored(&image.layers[2].digest);
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&stored)
        .expect("the registry's file");
    file.set_len(100_000).expect("own file");
    let world = World::new();
    let said = say(&mut pull(
        &world,
        &format!("docker://{}/a:1", registry.address),
    ));
    assert_refused(&said, &["is truncated", "100000 of"]);
    assert_clean(&world);
}

#[test]
fn a_layer_that_unpacks_to_other_content_is_refused() {
    let mut image = Image::small();
    let config = String::from_utf8(image.config.bytes.clone()).expect("JSON");
    // The first diff_id is made that of nothing.
    let start = config.find("sha256:").expect("a digest");
    let wrong = config.replace(&config[start..start + 71], &Digest::of(b"").to_string());
    let (old, old_bytes) = (image.config.digest.to_string(), image.config.bytes.len());
    image.config.bytes = wrong.into_bytes();
    image.config.digest = Digest::of(&image.config.bytes);
    let manifest = String::from_utf8(image.manifest.clone()).expect("JSON");
    image.manifest = manifest
        .replace(&old, &image.config.digest.to_string())
        .into_bytes();
    assert_eq!(old_bytes, image.config.bytes.len());
    let registry = FakeRegistry::start("127.0.0.1", move |seen| ordinary(&image, seen));
    let world = World::new();
    let said = say(&mut pull(
        &world,
        &format!("docker://{}/a", registry.address),
    ));
    assert_refused(&said, &["unpacks to other content", "diff_id"]);
    assert_clean(&world);
}

#[test]
fn a_connection_that_breaks_is_resumed_by_range() {
    let image = Image::large();
    let served = image.clone();
    let breaks = Arc::new(AtomicUsize::new(0));
    let count_breaks = Arc::clone(&breaks);
    let registry = FakeRegistry::start("127.0.0.1", move |seen| {
        let mut reply = ordinary(&served, seen);
        if reply.body.len() > 1_000_000 && count_breaks.fetch_add(1, Ordering::Relaxed) < 3 {
            reply.cut_at = Some(500_000);
        }
        reply
    });
    let world = World::new();
    let said = say(&mut pull(
        &world,
        &format!("docker://{}/a", registry.address),
    ));
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!(said.err.contains("trying again"), "{}", said.err);
    let ranges: Vec<String> = registry
        .seen()
        .iter()
        .filter_map(|seen| seen.header("range").map(str::to_owned))
        .collect();
    assert!(!ranges.is_empty(), "no range was asked for");
    assert_eq!(count(&world, "trees"), 6000 + 2);
}

#[test]
fn a_token_is_fetched_and_does_not_follow_a_redirect() {
    let image = Image::small();
    let served = image.clone();
    let elsewhere = FakeRegistry::start("127.0.0.1", move |seen| ordinary(&served, seen));
    let target = elsewhere.address.clone();
    let served = image.clone();
    let registry = FakeRegistry::start("127.0.0.1", move |seen| {
        let host = seen.header("host").unwrap_or_default();
        if seen.path == "/v2/" {
            return Reply::of(200, b"{}");
        }
        if seen.path.starts_with("/token?") {
            let right = seen.header("authorization") == Some(BASIC)
                && seen.path.contains("service=test")
                && seen.path.contains("scope=repository%3Aa%2Fb%3Apull");
            return if right {
                Reply::of(200, br#"{"access_token":"t0k","expires_in":60}"#)
            } else {
                Reply::of(401, b"{}")
            };
        }
        if seen.header("authorization") != Some("Bearer t0k") {
            return Reply::of(401, b"{}").with(
                "WWW-Authenticate",
                &format!(r#"Bearer realm="http://{host}/token",service="test",scope="repository:a/b:pull""#),
            );
        }
        if seen.path.contains("/blobs/") {
            return Reply::of(307, b"").with("Location", &format!("http://{target}{}", seen.path));
        }
        ordinary(&served, seen)
    });
    let world = World::new();
    succeed(&mut pull(
        &world,
        &format!("docker://{}/a/b", registry.address),
    ));
    let redirected = elsewhere.seen();
    assert!(
        redirected.len() >= 4,
        "layers and configuration come from there"
    );
    for seen in &redirected {
        assert_eq!(seen.header("authorization"), None, "{seen:?}");
        assert_eq!(seen.method, "GET");
    }
    let asked = registry.seen();
    let manifest = asked.iter().find(|seen| seen.path.contains("/manifests/"));
    let accept = manifest
        .and_then(|seen| seen.header("accept"))
        .unwrap_or_default();
    for kind in [
        "oci.image.index",
        "oci.image.manifest",
        "manifest.list.v2",
        "manifest.v2",
    ] {
        assert!(accept.contains(kind), "{accept}");
    }
}

#[test]
fn an_identity_token_is_not_handed_on_by_a_redirect() {
    let image = Image::small();
    let elsewhere = FakeRegistry::start("127.0.0.1", |_| Reply::of(200, br#"{"token":"t"}"#));
    let target = elsewhere.address.clone();
    let registry = FakeRegistry::start("127.0.0.1", move |seen| {
        let host = seen.header("host").unwrap_or_default();
        match seen.path.as_str() {
            "/v2/" => Reply::of(200, b"{}"),
            "/token" => Reply::of(307, b"").with("Location", &format!("http://{target}/token")),
            _ if seen.header("authorization") == Some("Bearer t") => ordinary(&image, seen),
            _ => Reply::of(401, b"{}").with(
                "WWW-Authenticate",
                &format!(r#"Bearer realm="http://{host}/token",service="test""#),
            ),
        }
    });
    let world = World::new();
    world.make_dir("home/.docker");
    world.write(
        "home/.docker/config.json",
        format!(
            r#"{{"auths":{{"{}":{{"identitytoken":"s3cret"}}}}}}"#,
            registry.address
        ),
    );
    let said = say(world
        .longshore()
        .args(["pull", &format!("docker://{}/a/b", registry.address)]));
    assert_eq!(said.status, Some(1), "{}", said.err);
    assert!(!said.err.contains("s3cret"), "{}", said.err);
    let asked = registry.seen();
    assert!(asked.iter().any(|seen| seen.method == "POST"), "{asked:?}");
    assert_eq!(elsewhere.seen().len(), 0, "the token went elsewhere");
}

#[test]
fn a_login_does_not_follow_the_address_of_a_foreign_layer() {
    let mut image = Image::small();
    let served = image.clone();
    let elsewhere = FakeRegistry::start("127.0.0.1", move |seen| {
        if seen.path.starts_with("/login/") {
            let basic = r#"Basic realm="elsewhere""#;
            return Reply::of(401, b"{}").with("WWW-Authenticate", basic);
        }
        ordinary(&served, seen)
    });
    let foreign = image.layers[0].digest.clone();
    let plain = String::from_utf8(image.manifest.clone()).expect("JSON");
    for (folder, status) in [("free", 0), ("login", 1)] {
        let address = format!("http://{}/{folder}/{foreign}", elsewhere.address);
        let with_address = format!(r#""digest":"{foreign}","urls":["{address}"]"#);
        image.manifest = plain
            .replace(&format!(r#""digest":"{foreign}""#), &with_address)
            .into_bytes();
        let (served, missing) = (image.clone(), foreign.to_string());
        let registry = FakeRegistry::start("127.0.0.1", move |seen| {
            if seen.path == "/v2/" {
                return Reply::of(200, b"{}");
            }
            if seen.header("authorization") != Some(BASIC) {
                let basic = r#"Basic realm="test""#;
                return Reply::of(401, b"{}").with("WWW-Authenticate", basic);
            }
            if seen.path.ends_with(&missing) {
                return Reply::of(404, b"{}");
            }
            ordinary(&served, seen)
        });
        let world = World::new();
        let said = say(&mut pull(
            &world,
            &format!("docker://{}/a", registry.address),
        ));
        assert_eq!(said.status, Some(status), "{}", said.err);
    }
    let asked = elsewhere.seen();
    assert_eq!(asked.len(), 2, "{asked:?}");
    for seen in &asked {
        assert_eq!(seen.header("authorization"), None, "{seen:?}");
    }
}

#[test]
fn a_registry_that_asks_to_wait_is_waited_for() {
    let image = Image::small();
    let times = AtomicUsize::new(0);
    let registry = FakeRegistry::start("127.0.0.1", move |seen| {
        if seen.path.contains("/manifests/") {
            match times.fetch_add(1, Ordering::Relaxed) {
                0 => return Reply::of(429, b"{}").with("Retry-After", "1"),
                1 => return Reply::of(503, b"busy"),
                _ => {}
            }
        }
        ordinary(&image, seen)
    });
    let world = World::new();
    let start = Instant::now();
    let said = say(&mut pull(
        &world,
        &format!("docker://{}/a", registry.address),
    ));
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!(
        said.err.contains("429") && said.err.contains("503"),
        "{}",
        said.err
    );
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_registry_that_asks_to_wait_for_an_hour_is_not_waited_for() {
    let registry = FakeRegistry::start("127.0.0.1", |seen| match seen.path.as_str() {
        "/v2/" => Reply::of(200, b"{}"),
        _ => Reply::of(
            429,
            br#"{"errors":[{"code":"TOOMANYREQUESTS","message":"pull limit"}]}"#,
        )
        .with("Retry-After", "3600"),
    });
    let world = World::new();
    let said = say(&mut pull(
        &world,
        &format!("docker://{}/a", registry.address),
    ));
    assert_refused(&said, &["429", "pull limit", "wait 3600 s"]);
}

#[test]
fn an_index_without_this_machine_names_what_it_has() {
    let registry = FakeRegistry::start("127.0.0.1", |seen| {
        let digest = Digest::of(b"x");
        match seen.path.as_str() {
            "/v2/" => Reply::of(200, b"{}"),
            _ => Reply::of(
                200,
                format!(
                    r#"{{"schemaVersion":2,"manifests":[{{"digest":"{digest}","size":1,"platform":{{"os":"linux","architecture":"s390x"}}}}]}}"#
                )
                .as_bytes(),
            ),
        }
    });
    let world = World::new();
    let said = say(&mut pull(
        &world,
        &format!("docker://{}/a", registry.address),
    ));
    assert_refused(
        &said,
        &["no image for linux/", "it has linux/s390x", "--platform"],
    );
}

#[test]
fn a_manifest_of_schema_1_is_refused_by_name() {
    let registry = FakeRegistry::start("127.0.0.1", |seen| match seen.path.as_str() {
        "/v2/" => Reply::of(200, b"{}"),
        _ => Reply::of(200, br#"{"schemaVersion":1,"fsLayers":[],"history":[]}"#),
    });
    let world = World::new();
    let said = say(&mut pull(
        &world,
        &format!("docker://{}/a", registry.address),
    ));
    assert_refused(&said, &["schema 1"]);
}

#[test]
fn an_endless_manifest_is_cut_off() {
    let registry = FakeRegistry::start("127.0.0.1", |seen| match seen.path.as_str() {
        "/v2/" => Reply::of(200, b"{}"),
        _ => Reply::of(200, &vec![b' '; 5 << 20]),
    });
    let world = World::new();
    let said = say(&mut pull(
        &world,
        &format!("docker://{}/a", registry.address),
    ));
    assert_refused(&said, &["larger than 4 MiB"]);
}

/// A name, and whether it has come.
type Moment<'m> = (&'m str, &'m dyn Fn(&World) -> bool);

#[test]
fn a_killed_pull_is_taken_up_at_any_moment() {
    let Some(registry) = DockerRegistry::start() else {
        skip!("docker-registry is not installed");
    };
    let image = Image::large();
    registry.push("a", "1", &image);
    let name = format!("docker://{}/a:1", registry.address);
    let moments: [Moment; 5] = [
        ("the store is there", &|world| {
            world.path("cache/locks").exists()
        }),
        ("a layer begins", &|world| count(world, "partial") > 0),
        ("the first files", &|world| count(world, "tmp") > 10),
        ("many files", &|world| count(world, "tmp") > 3000),
        ("all layers here", &|world| count(world, "blobs") == 4),
    ];
    for (moment, reached) in moments {
        let world = World::new();
        let mut running = pull(&world, &name)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("longshore can be started");
        kill_when(&mut running, || reached(&world));
        let found = succeed(world.longshore().args(["images", "--json"]));
        let is_whole = found.contains(image.digest().hex());
        assert!(
            !is_whole || count(&world, "trees") == 6002,
            "a part looks whole: {moment}"
        );
        let again = say(&mut pull(&world, &name));
        assert_eq!(again.status, Some(0), "{moment}: {}", again.err);
        assert_eq!(count(&world, "trees"), 6002, "{moment}");
        assert_eq!(count(&world, "tmp"), 0, "{moment}");
        assert_eq!(count(&world, "partial"), 0, "{moment}");
    }
}

fn kill_when(running: &mut Child, reached: impl Fn() -> bool) {
    let start = Instant::now();
    while !reached() && start.elapsed() < Duration::from_secs(60) {
        if running.try_wait().expect("a child").is_some() {
            return;
        }
    }
    running.kill().expect("a child");
    running.wait().expect("a child");
}

#[test]
fn two_pulls_at_once_make_one_tree() {
    let Some(registry) = DockerRegistry::start() else {
        skip!("docker-registry is not installed");
    };
    let image = Image::large();
    registry.push("a", "1", &image);
    let world = World::new();
    let name = format!("docker://{}/a:1", registry.address);
    let start = |name: &str| {
        pull(&world, name)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("longshore can be started")
    };
    let both = [start(&name), start(&name)];
    let waits = both
        .into_iter()
        .map(|one| one.wait_with_output().expect("a child"))
        .map(|output| {
            assert!(output.status.success(), "{output:?}");
            String::from_utf8_lossy(&output.stderr).contains("waiting for it")
        })
        .filter(|&waited| waited)
        .count();
    assert_eq!(waits, 1, "the second waits and says so");
    assert_eq!(count(&world, "trees"), 6002);
    assert_eq!(count(&world, "tmp"), 0);
}

#[test]
fn a_full_disk_is_told_and_leaves_a_clean_store() {
    let zeros = Tar::default().file("zeros", &vec![0; 40 << 20]).end();
    let image = Image::of(&[(zeros, Packing::Gzip)]);
    let served = image.clone();
    let registry = FakeRegistry::start("127.0.0.1", move |seen| ordinary(&served, seen));
    let big = Image::large();
    let big_registry = FakeRegistry::start("127.0.0.1", move |seen| ordinary(&big, seen));
    let world = World::new();
    let on_disk_of = |mib: u32, name: &str| {
        let script = format!(
            "mount -t tmpfs -o size={mib}m tmpfs \"$LONGSHORE_CACHEDIR\" || exit 77\n\
             ../bin/longshore pull docker://{name}\nstatus=$?\n\
             find \"$LONGSHORE_CACHEDIR\"/trees \"$LONGSHORE_CACHEDIR\"/tmp -mindepth 1 2>/dev/null\nexit $status"
        );
        say(world
            .host_command("unshare")
            .args(["-Urm", "sh", "-c", &script]))
    };
    let midway = on_disk_of(8, &format!("{}/a", registry.address));
    if midway.status == Some(77) || midway.err.contains("unshare") {
        skip!("no tmpfs can be mounted here: {}", midway.err);
    }
    assert_refused(&midway, &["is full", "LONGSHORE_CACHEDIR"]);
    let before = on_disk_of(8, &format!("{}/a", big_registry.address));
    assert_refused(&before, &["needs at least", "MiB are free"]);
    let layers = big_registry
        .seen()
        .iter()
        .filter(|seen| seen.path.contains("/blobs/"))
        .count();
    assert_eq!(layers, 1, "only the configuration was fetched");
}

#[test]
fn a_cache_that_cannot_be_written_is_told_with_a_way_out() {
    let image = Image::small();
    let registry = FakeRegistry::start("127.0.0.1", move |seen| ordinary(&image, seen));
    let world = World::new();
    let name = format!("docker://{}/a", registry.address);
    let script = format!(
        "mount -t tmpfs -o ro tmpfs \"$LONGSHORE_CACHEDIR\" || exit 77\nexec ../bin/longshore pull {name}"
    );
    let said = say(world
        .host_command("unshare")
        .args(["-Urm", "sh", "-c", &script]));
    if said.status == Some(77) || said.err.contains("unshare") {
        skip!("no tmpfs can be mounted here: {}", said.err);
    }
    assert_eq!(said.status, Some(4), "{}", said.err);
    assert!(
        said.err.contains("cannot write the image cache"),
        "{}",
        said.err
    );
    assert!(said.err.contains("LONGSHORE_CACHEDIR"), "{}", said.err);
}

#[test]
fn archives_and_layouts_are_pulled_by_their_content() {
    let world = World::new();
    let image = Image::small();
    image.write_layout(&world.path("work/layout"), "v1");
    world.write("work/oci.tar", image.oci_archive("v1"));
    world.write("work/saved.tar", image.docker_archive("small:v1"));
    let saved = image.docker_archive("small:v1");
    world.write(
        "work/saved.tar.zst",
        zstd::encode_all(&saved[..], 1).expect("memory"),
    );
    for name in [
        "oci:layout:v1",
        "oci:layout",
        "oci-archive:oci.tar:v1",
        "docker-archive:saved.tar",
        "docker-archive:saved.tar.zst:small:v1",
    ] {
        let target = world.path("work/out");
        succeed(world.longshore().args(["pull", "--sandbox", "out", name]));
        let text = fs::read_to_string(target.join("etc/name")).expect(name);
        assert_eq!(text, "two\n", "{name}");
        assert!(!target.join("etc/gone").exists(), "{name}");
        let config = fs::read_to_string(target.join(".longshore/config.json")).expect(name);
        assert!(config.contains("made.by"), "{name}");
        fs::remove_dir_all(&target).expect("own folder");
    }
    let said = say(world.longshore().args(["pull", "oci:layout:v2"]));
    assert_refused(&said, &["no image `v2`", "it has v1"]);
    let blob = world
        .path("work/layout/blobs/sha256")
        .join(image.layers[0].digest.hex());
    fs::write(blob, b"spoilt").expect("own folder");
    let said = say(world.longshore().args(["pull", "oci:layout:v1"]));
    assert_refused(&said, &["damaged"]);
    assert_clean(&world);
}

#[test]
fn a_sandbox_is_replaced_only_when_asked_and_only_if_it_is_one() {
    let world = World::new();
    Image::small().write_layout(&world.path("work/layout"), "v1");
    let pull = |arguments: &[&str]| {
        let mut command = world.longshore();
        command.arg("pull").args(arguments).arg("oci:layout");
        say(&mut command)
    };
    assert_eq!(pull(&["box"]).status, Some(0));
    assert_refused(&pull(&["box"]), &["exists already", "--force"]);
    world.write("work/box/own", "x");
    assert_eq!(pull(&["--force", "box"]).status, Some(0));
    assert!(!world.path("work/box/own").exists());
    world.make_dir("work/home");
    world.write("work/home/thesis", "x");
    assert_refused(
        &pull(&["--force", "home"]),
        &["no sandbox that longshore made"],
    );
    assert!(world.path("work/home/thesis").exists());
    let sif = pull(&["image.sif"]);
    assert_refused(&sif, &["single-file images come in a later release"]);
}

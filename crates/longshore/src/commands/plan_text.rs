//! A plan as a person reads it, and as a record.

use std::fmt::Write as _;

use longshore_container::{BindPoint, Mapping, Necessity, Origin, Root, RunPlan, Source, Upper};
use serde::Serialize;

/// A plan as one line of JSON.
#[derive(Serialize)]
pub(crate) struct PlanRecord<'p> {
    r#type: &'static str,
    #[serde(flatten)]
    plan: &'p RunPlan,
}

impl PlanRecord<'_> {
    pub(crate) fn new(plan: &RunPlan) -> PlanRecord<'_> {
        PlanRecord {
            r#type: "run-plan",
            plan,
        }
    }
}

/// The steps of a plan in their order, one a line.
pub(crate) fn text(plan: &RunPlan) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line(format!("image {}", plan.image.to_string_lossy()));
    line(format!("namespaces: {}", namespaces(plan)));
    line(format!("identity: {}", identity(plan)));
    line("mounts, in order:".to_owned());
    root(&plan.root, &mut line);
    for mount in &plan.mounts {
        let mut limits = Vec::new();
        for (set, word) in [
            (mount.limits.read_only, "ro"),
            (mount.limits.no_suid, "nosuid"),
            (mount.limits.no_dev, "nodev"),
        ] {
            if set {
                limits.push(word);
            }
        }
        let optional = if mount.necessity == Necessity::Asked {
            ""
        } else {
            ", if possible"
        };
        line(format!(
            "  {:<24} {} [{}] ({}{optional})",
            mount.target.display().to_string(),
            source(&mount.source),
            limits.join(","),
            mount.reason
        ));
    }
    line("environment:".to_owned());
    for variable in &plan.environment {
        line(format!(
            "  {}={}  ({})",
            variable.name.to_string_lossy(),
            variable.value.to_string_lossy().escape_debug(),
            origin(&variable.origin)
        ));
    }
    let words: Vec<String> = plan
        .program
        .arguments
        .iter()
        .map(|word| format!("{:?}", word.to_string_lossy()))
        .collect();
    line(format!("program: {}", words.join(" ")));
    let places: Vec<String> = plan
        .directories
        .iter()
        .map(|place| place.path.display().to_string())
        .collect();
    line(format!("starts in: {}", places.join(", else ")));
    for notice in &plan.notices {
        line(format!("notice: {notice}"));
    }
    for detail in &plan.details {
        line(format!("detail: {detail}"));
    }
    out
}

fn namespaces(plan: &RunPlan) -> String {
    let made = &plan.namespaces;
    let mut names = vec!["mount"];
    for (set, name) in [
        (made.user, "user"),
        (made.pid, "pid"),
        (made.ipc, "ipc"),
        (made.net, "net"),
        (made.uts, "uts"),
    ] {
        if set {
            names.push(name);
        }
    }
    let mut text = names.join(", ");
    if made.init {
        text.push_str("; process 1 is an init of ours");
    }
    if let Some(name) = &made.hostname {
        // Writing to a string cannot fail.
        let _ = write!(text, "; host name {name}");
    }
    text
}

fn identity(plan: &RunPlan) -> String {
    let identity = &plan.identity;
    let mapping = match &identity.mapping {
        Mapping::None => "as outside".to_owned(),
        Mapping::Single {
            outside_uid,
            outside_gid,
        } => format!("user {outside_uid} and group {outside_gid} outside"),
        Mapping::Ranges {
            outside_uid,
            ranges,
            ..
        } => format!(
            "user {outside_uid} outside, and ids from 1 on are {} to {}",
            ranges.uids.0,
            u64::from(ranges.uids.0) + u64::from(ranges.uids.1)
        ),
    };
    format!("user {}, group {} ({mapping})", identity.uid, identity.gid)
}

fn root(root: &Root, line: &mut impl FnMut(String)) {
    match root {
        Root::Directory { path, read_only } => {
            let limits = if *read_only {
                "ro,nosuid,nodev"
            } else {
                "nosuid,nodev"
            };
            line(format!(
                "  {:<24} {} [{limits}] (image)",
                "/",
                path.display()
            ));
        }
        Root::Temporary { path, bind_points } => {
            line(format!(
                "  {:<24} what is in {} [ro,nosuid,nodev] (image)",
                "/",
                path.display()
            ));
            points(bind_points, line);
        }
        Root::Layers {
            path,
            bind_points,
            read_only,
            upper,
        } => {
            let upper = match upper {
                Upper::None => "ro".to_owned(),
                Upper::Tmpfs { size_bytes: None } => "writes go to memory".to_owned(),
                Upper::Tmpfs {
                    size_bytes: Some(bytes),
                } => format!("writes go to memory, at most {bytes} bytes"),
                Upper::Directory { path } => format!("writes go to {}", path.display()),
            };
            line(format!(
                "  {:<24} overlay of {} [{upper}] (image)",
                "/",
                path.display()
            ));
            for layer in read_only {
                line(format!(
                    "    with {} [ro] (--overlay)",
                    layer.path.display()
                ));
            }
            points(bind_points, line);
        }
    }
}

fn points(points: &[BindPoint], line: &mut impl FnMut(String)) {
    for point in points {
        line(format!("    with the bind point {}", point.path.display()));
    }
}

fn source(source: &Source) -> String {
    match source {
        Source::Bind { path } => path.display().to_string(),
        Source::HostDir { path, .. } => format!("{} (made if missing)", path.display()),
        Source::Tmpfs {
            size_bytes: None, ..
        } => "tmpfs".to_owned(),
        Source::Tmpfs {
            size_bytes: Some(bytes),
            ..
        } => format!("tmpfs of {bytes} bytes"),
        Source::Proc => "proc".to_owned(),
        Source::Devpts => "devpts".to_owned(),
        Source::Mqueue => "mqueue".to_owned(),
        Source::Generated { content } => format!("file of {} bytes, written", content.len()),
        Source::BindPoints { .. } => "empty directory".to_owned(),
        Source::Skeleton { points } => {
            let names: Vec<String> = points
                .iter()
                .map(|point| point.path.display().to_string())
                .collect();
            format!("the image's, with {}", names.join(", "))
        }
        Source::Link { to } => format!("link to {}", to.display()),
    }
}

fn origin(origin: &Origin) -> String {
    match origin {
        Origin::Host => "host".to_owned(),
        Origin::Image => "image".to_owned(),
        Origin::ImageScript(script) => format!("image, {script}"),
        Origin::Option => "--env".to_owned(),
        Origin::File(file) => format!("--env-file {file}"),
        Origin::Prefixed(variable) => variable.clone(),
        Origin::Longshore => "longshore".to_owned(),
    }
}

//! The caller's line in the container's account files.

use std::os::unix::ffi::OsStrExt;

use longshore_host::Session;

/// The image's passwd(5) with a line for the caller, whose home is `home`.
///
/// A line of the image for the same name or id gives way: the home and the name that hold inside
/// are the caller's.
pub(crate) fn passwd(image: &[u8], session: &Session, uid: u32, gid: u32, home: &[u8]) -> Vec<u8> {
    let name: &[u8] = if uid == 0 {
        b"root"
    } else {
        session.user.as_bytes()
    };
    let id = uid.to_string();
    let mut text = lines_except(image, |fields| {
        fields.first() == Some(&name) || fields.get(2) == Some(&id.as_bytes())
    });
    let shell = account_field(image, &id, 6).unwrap_or(b"/bin/sh");
    text.extend_from_slice(name);
    text.extend_from_slice(format!(":x:{uid}:{gid}::").as_bytes());
    text.extend_from_slice(home);
    text.push(b':');
    text.extend_from_slice(shell);
    text.push(b'\n');
    text
}

/// The image's group(5) with a line for each group of the caller that it does not have.
pub(crate) fn group(image: &[u8], session: &Session, gids: &[u32], names: &[u8]) -> Vec<u8> {
    let mut text = lines_except(image, |_| false);
    let mut seen: Vec<u32> = Vec::new();
    for &gid in gids {
        let id = gid.to_string();
        if seen.contains(&gid) || account_field(image, &id, 0).is_some() {
            continue;
        }
        seen.push(gid);
        match account_field(names, &id, 0) {
            Some(name) => text.extend_from_slice(name),
            None if gid == session.gid => text.extend_from_slice(session.user.as_bytes()),
            None => text.extend_from_slice(format!("group{gid}").as_bytes()),
        }
        text.extend_from_slice(b":x:");
        text.extend_from_slice(id.as_bytes());
        text.push(b':');
        text.extend_from_slice(session.user.as_bytes());
        text.push(b'\n');
    }
    text
}

fn lines_except(text: &[u8], unwanted: impl Fn(&[&[u8]]) -> bool) -> Vec<u8> {
    let mut kept = Vec::with_capacity(text.len() + 128);
    for line in text.split(|&byte| byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b':').collect();
        if !line.is_empty() && !unwanted(&fields) {
            kept.extend_from_slice(line);
            kept.push(b'\n');
        }
    }
    kept
}

/// A field of the line whose third field is `id`.
fn account_field<'t>(text: &'t [u8], id: &str, index: usize) -> Option<&'t [u8]> {
    text.split(|&byte| byte == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b':').collect();
        (fields.get(2) == Some(&id.as_bytes()))
            .then(|| fields.get(index).copied())
            .flatten()
            .filter(|field| !field.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alice() -> Session {
        Session {
            uid: 1000,
            gid: 1000,
            groups: vec![1000, 50, 77],
            user: "alice".into(),
            home: "/home/alice".into(),
            cwd: "/".into(),
            env: Vec::new(),
        }
    }

    #[test]
    fn the_caller_gets_a_line_and_takes_the_place_of_one_with_the_same_id() {
        let image = b"root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000::/app:/bin/bash";
        assert_eq!(
            String::from_utf8(passwd(image, &alice(), 1000, 1000, b"/h")).unwrap(),
            "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/h:/bin/bash\n"
        );
    }

    #[test]
    fn root_by_mapping_is_called_root() {
        assert_eq!(
            String::from_utf8(passwd(
                b"root:x:0:0:root:/root:/bin/ash\n",
                &alice(),
                0,
                0,
                b"/root"
            ))
            .unwrap(),
            "root:x:0:0::/root:/bin/ash\n"
        );
    }

    #[test]
    fn groups_of_the_caller_are_named_once_each() {
        let image = b"root:x:0:\nstaff:x:50:\n";
        let names = b"alice:x:1000:\nphysics:x:77:bob\n";
        assert_eq!(
            String::from_utf8(group(image, &alice(), &[1000, 1000, 50, 77, 9], names)).unwrap(),
            "root:x:0:\nstaff:x:50:\nalice:x:1000:alice\nphysics:x:77:alice\ngroup9:x:9:alice\n"
        );
    }
}

//! Accounts and subordinate ids: passwd(5), subuid(5).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// One account of passwd(5).
pub(crate) struct Account {
    pub(crate) name: OsString,
    pub(crate) home: PathBuf,
}

/// Finds the account of `uid` in the text of passwd(5).
pub(crate) fn account_of(uid: u32, passwd: &[u8]) -> Option<Account> {
    passwd.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.split(|&byte| byte == b':');
        let name = fields.next()?;
        let id = std::str::from_utf8(fields.nth(1)?).ok()?;
        if id.parse::<u32>() != Ok(uid) {
            return None;
        }
        let home = fields.nth(2)?;
        Some(Account {
            name: OsStr::from_bytes(name).to_owned(),
            home: PathBuf::from(OsStr::from_bytes(home)),
        })
    })
}

/// How many subordinate ids the text of subuid(5) gives a user, named or by number.
pub(crate) fn subordinate_count(user: &str, uid: u32, text: &str) -> u64 {
    let uid = uid.to_string();
    text.lines()
        .filter_map(|line| {
            let mut fields = line.trim().split(':');
            let owner = fields.next()?;
            let _first: u32 = fields.next()?.parse().ok()?;
            let count: u32 = fields.next()?.parse().ok()?;
            (owner == user || owner == uid).then_some(u64::from(count))
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_account_of_a_uid_is_found_among_others() {
        let passwd =
            b"root:x:0:0:root:/root:/bin/bash\nbroken\nalice:x:1000:1000:A:/home/alice:/bin/sh\n";
        let account = account_of(1000, passwd).expect("alice is in the list");
        assert_eq!(account.name, "alice");
        assert_eq!(account.home, Path::new("/home/alice"));
        assert!(account_of(1, passwd).is_none());
    }

    #[test]
    fn subordinate_ids_of_all_lines_of_a_user_are_counted() {
        let text = "alice:100000:65536\nbob:165536:65536\n1000:300000:10\nalice:x:y\n";
        assert_eq!(subordinate_count("alice", 1000, text), 65546);
        assert_eq!(subordinate_count("carol", 1002, text), 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>, uid: u32) {
            account_of(uid, &bytes);
        }

        #[test]
        fn any_text_is_counted_without_panic(text in "([a-z0-9:]{0,12}\n){0,9}", uid: u32) {
            subordinate_count("a", uid, &text);
        }
    }
}

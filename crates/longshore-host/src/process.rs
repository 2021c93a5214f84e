//! What tells one process from another that got its number later.

use std::io;

/// When a process started, in clock ticks since the machine did (proc_pid_stat(5), field 22).
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] where there is no such process, [`io::ErrorKind::InvalidData`] where the
/// kernel's line cannot be read.
pub fn start_time_ticks(pid: i32) -> io::Result<u64> {
    let line = std::fs::read(format!("/proc/{pid}/stat"))?;
    start_time_in(&line).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The name of a program may hold blanks and brackets, so fields are counted from its last bracket.
fn start_time_in(line: &[u8]) -> Option<u64> {
    let after_name = line.iter().rposition(|&byte| byte == b')')? + 1;
    let text = std::str::from_utf8(&line[after_name..]).ok()?;
    text.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The id that the kernel gave to this run of the machine.
///
/// # Errors
///
/// Where `/proc` is not there.
pub fn boot_id() -> io::Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_a_name_with_brackets() {
        let line = b"12 (a) b (c) S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 0 0\n";
        assert_eq!(start_time_in(line), Some(987_654));
        assert_eq!(start_time_in(b"12 (a"), None);
        assert!(
            start_time_ticks(i32::try_from(std::process::id()).expect("a pid")).expect("is there")
                > 0
        );
    }
}

//! Whether this process has one thread, as the kernel's namespaces demand.

use std::time::{Duration, Instant};

/// Waits until this process has a single thread; whether that came true within `patience`.
///
/// A thread that was joined has told its end a moment before the kernel takes it out of the process,
/// and unshare(2) of a user namespace in that moment fails with EINVAL.
pub fn wait_until_alone(patience: Duration) -> bool {
    let start = Instant::now();
    loop {
        // Without /proc nothing can be told, and the moment is over soon anyway.
        let alone = std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1);
        if alone || start.elapsed() > patience {
            return alone;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

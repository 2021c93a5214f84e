//! This process and its signals.

/// Sets SIGPIPE back to its default, which the Rust runtime changed to "ignore".
///
/// A command whose reader has gone (`longshore images | head`) then ends quietly, and a program
/// that is started in a container finds the disposition that a shell would have given it.
pub fn restore_sigpipe() {
    // SAFETY: SIG_DFL installs no handler, so no code of ours can run in signal context.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

//! Plans and starts containers for an ordinary user.

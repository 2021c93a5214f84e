//! Image references, registries, layers, unpacking and the local store.

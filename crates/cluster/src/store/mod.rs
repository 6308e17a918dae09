//! What consensus keeps on disk.

//! Connections between members: frames, TLS, limits.

//! Access control between the tenants of one cluster. See `access_control/mod.rs`.

mod access_control;
mod support;

//! Tenants of one cluster, each with a token for its own prefix: what one of them can do to the others, and see of
//! them.
//!
//! | module | what it tests |
//! |---|---|
//! | `identity` | sessions belong to the principal that created them |
//! | `forced_release` | a forced release takes away the lock that was authorised, and no other |
//! | `revocation` | a token that is removed, has expired or allows less ends what is connected |
//! | `visibility` | names, owners and acquisitions of other prefixes are not revealed |
//! | `document` | the table in `docs/security.md` is the one that is enforced |
//! | `names` | every protocol accepts the same names and tags |

mod document;
mod forced_release;
mod identity;
mod names;
mod native;
mod revocation;
mod visibility;

use crate::support::{Answer, Daemons, Plan, ask, request, soon};
use hyper::Request;
use serde_json::Value;
use std::net::SocketAddr;

/// Tokens of two tenants, and of an operator.
const TENANTS: &str = r#"
[[token]]
name = "a"
sha256 = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"  # of "one"
acquire = ["a/"]
observe = ["a/"]
admin = ["a/"]
[[token]]
name = "b"
sha256 = "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3"  # of "two"
acquire = ["b/"]
[[token]]
name = "root"
sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"  # of "test"
acquire = [""]
observe = [""]
admin = [""]
"#;

/// The tokens themselves.
const A: &str = "one";
const B: &str = "two";
const ROOT: &str = "test";

async fn start(count: u32) -> Daemons {
    Daemons::start_with(count, Plan { tokens: Some(TENANTS), native: true, ..Plan::default() }).await
}

/// The same with a lease of 12 s, for tests in which a native client must not lose its session, on any machine.
async fn start_with_long_leases(count: u32) -> Daemons {
    let plan = Plan { tokens: Some(TENANTS), native: true, times: Some(10), ..Plan::default() };
    Daemons::start_with(count, plan).await
}

/// The token file without the tokens of this tenant.
fn without(name: &str) -> String {
    let lines = TENANTS.split("[[token]]").filter(|token| !token.contains(&format!("name = \"{name}\"")));
    lines.collect::<Vec<_>>().join("[[token]]")
}

/// Replaces the token file of all daemons.
fn change_tokens(daemons: &Daemons, tokens: &str) {
    let file = daemons.directory.path().join("tokens");
    std::fs::write(daemons.directory.path().join("new"), tokens).expect("written");
    std::fs::rename(daemons.directory.path().join("new"), file).expect("replaced");
}

/// A request with a token.
async fn with(token: &str, at: SocketAddr, method: &str, path: &str, body: Option<Value>) -> Answer {
    let mut asked: Request<_> = request(method, path, body.as_ref());
    asked.headers_mut().insert("authorization", format!("Bearer {token}").parse().expect("text"));
    soon(path, ask(at, asked)).await
}

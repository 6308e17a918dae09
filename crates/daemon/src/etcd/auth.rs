//! `etcdserverpb.Auth`: the part that clients need to present a token.

use super::Etcd;
use super::pb::etcdserverpb::auth_server::Auth;
use super::pb::etcdserverpb::{AuthenticateRequest, AuthenticateResponse};
use crate::audit::{AuditEntry, AuditEvent, RefusalReason};
use crate::leases::Protocol;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl Auth for Etcd {
    /// The user is the name of a token and the password its secret. The secret is also the session token that clients
    /// send with every call.
    async fn authenticate(
        &self,
        request: Request<AuthenticateRequest>,
    ) -> Result<Response<AuthenticateResponse>, Status> {
        let AuthenticateRequest { name, password } = request.into_inner();
        if !self.0.context.access.needs_token() {
            return Err(Status::failed_precondition("etcdserver: authentication is not enabled"));
        }
        let wrong =
            || Status::invalid_argument("etcdserver: authentication failed, invalid user ID or password");
        let who = self.0.authenticate(Protocol::Etcd, Some(&password)).map_err(|_| wrong())?;
        if **who.name() != *name {
            let line = AuditEntry::new(AuditEvent::Refuse, Protocol::Etcd.name(), who.name());
            self.0
                .context
                .audit
                .refuse(RefusalReason::Token, &AuditEntry { why: "the token has another name", ..line });
            return Err(wrong());
        }
        Ok(Response::new(AuthenticateResponse { header: self.header(None), token: password }))
    }
}

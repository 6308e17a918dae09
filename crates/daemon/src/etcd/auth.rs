//! `etcdserverpb.Auth`: only as much as clients need to show a token.

use super::Etcd;
use super::pb::etcdserverpb::auth_server::Auth;
use super::pb::etcdserverpb::{AuthenticateRequest, AuthenticateResponse};
use crate::leases::Way;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl Auth for Etcd {
    /// The password of a token's name is its secret, which is shown again with every call.
    async fn authenticate(
        &self,
        request: Request<AuthenticateRequest>,
    ) -> Result<Response<AuthenticateResponse>, Status> {
        let AuthenticateRequest { name, password } = request.into_inner();
        if !self.0.shared.access.needs_token() {
            return Err(Status::failed_precondition("etcdserver: authentication is not enabled"));
        }
        let known = self.0.who(Way::Etcd, Some(&password)).is_ok_and(|who| **who.name() == *name);
        if !known {
            let wrong = "etcdserver: authentication failed, invalid user ID or password";
            return Err(Status::invalid_argument(wrong));
        }
        Ok(Response::new(AuthenticateResponse { header: self.header(None), token: password }))
    }
}

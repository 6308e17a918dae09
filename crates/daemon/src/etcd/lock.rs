//! `v3lockpb.Lock`.

use super::pb::v3lockpb::lock_server::Lock;
use super::pb::v3lockpb::{LockRequest, LockResponse, UnlockRequest, UnlockResponse};
use super::{Etcd, split, status, text, with_receipt};
use crate::leases::{Granted, HoldRef, LeaseError, LeaseOperation, OperationReply};
use crate::rights::Action;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl Lock for Etcd {
    async fn lock(&self, request: Request<LockRequest>) -> Result<Response<LockResponse>, Status> {
        let caller = self.caller(&request)?;
        let LockRequest { name, lease } = request.into_inner();
        let name = text(name)?;
        self.may(&caller, Action::Acquire, &name)?;
        let Granted { hold, receipt } = self.acquire_hold(&caller, &name, lease, Vec::new()).await?;
        let reply = LockResponse { header: self.header(Some(hold.fence)), key: hold.key() };
        Ok(with_receipt(reply, receipt))
    }

    async fn unlock(&self, request: Request<UnlockRequest>) -> Result<Response<UnlockResponse>, Status> {
        let caller = self.caller(&request)?;
        let key = request.into_inner().key;
        if key.is_empty() {
            return Err(Status::invalid_argument("etcdserver: key is not provided"));
        }
        let mut revision = None;
        if let Some((name, lease)) = split(&key) {
            self.may(&caller, Action::Release, name)?;
            let release = LeaseOperation::Release(HoldRef::OnlyOn(String::from(name)), None);
            match self.0.leases.perform(&caller.identity, lease, release).await {
                // The last revision of the released hold, which is below that of the next holder.
                Ok(OperationReply::Released(last)) => revision = last,
                Ok(_) | Err(LeaseError::NoSuchLease(_)) => {}
                Err(error) => return Err(status(error)),
            }
        }
        Ok(Response::new(UnlockResponse { header: self.header(revision) }))
    }
}

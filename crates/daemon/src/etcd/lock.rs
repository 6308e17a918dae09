//! `v3lockpb.Lock`.

use super::pb::v3lockpb::lock_server::Lock;
use super::pb::v3lockpb::{LockRequest, LockResponse, UnlockRequest, UnlockResponse};
use super::{Etcd, split, status, telling, text};
use crate::leases::{Fault, Granted, Op, Reply, Which};
use crate::rights::Action;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl Lock for Etcd {
    async fn lock(&self, request: Request<LockRequest>) -> Result<Response<LockResponse>, Status> {
        let caller = self.caller(&request)?;
        let LockRequest { name, lease } = request.into_inner();
        let name = text(name)?;
        self.may(&caller, Action::Acquire, &name)?;
        let Granted { hold, receipt } = self.hold(&caller, &name, lease, Vec::new()).await?;
        let answer = LockResponse { header: self.header(Some(hold.fence)), key: hold.key() };
        Ok(telling(answer, receipt))
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
            let release = Op::Release(Which::OnlyOn(String::from(name)), None);
            match self.0.leases.perform(&caller.asker, lease, release).await {
                // The last revision of the released hold, which is below that of the next holder.
                Ok(Reply::Released(last)) => revision = last,
                Ok(_) | Err(Fault::NoSuchLease(_)) => {}
                Err(fault) => return Err(status(fault)),
            }
        }
        Ok(Response::new(UnlockResponse { header: self.header(revision) }))
    }
}

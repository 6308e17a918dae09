//! A tower layer that rejects requests of stale holders by their header [`HEADER`].
//!
//! ```
//! # use lockkeeper::fence::http::FenceLayer;
//! // One resource behind the whole service; see `FenceLayer::per` for one per path.
//! let layer = FenceLayer::new();
//! ```
//!
//! The check happens when a request arrives, so the service must not reorder requests afterwards: a slow handler of
//! an old fence can still write after the handler of a newer one. Where that matters, pass the fence on to the store
//! and check it there.

use super::{Fence, FenceChecker, HEADER};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

type ResourceOf = dyn Fn(&http::request::Parts) -> String + Send + Sync;

/// A tower layer that rejects requests with stale fences before they reach the service.
///
/// | request | response |
/// |---|---|
/// | `GET`, `HEAD`, `OPTIONS` | passed on: reading needs no lock |
/// | no fence, or not a number above 0 | `428 Precondition Required` |
/// | a stale fence | `412 Precondition Failed`, with the highest fence seen in the header |
/// | otherwise | passed on |
#[derive(Clone)]
pub struct FenceLayer {
    resource_of: Arc<ResourceOf>,
    /// The checkers by resource. One entry is added for each resource and stays for the lifetime of the layer.
    checkers: Arc<Mutex<HashMap<String, Arc<FenceChecker>>>>,
}

impl std::fmt::Debug for FenceLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let checkers = self.checkers.lock().unwrap_or_else(|e| e.into_inner());
        f.debug_struct("FenceLayer").field("resources", &checkers.len()).finish_non_exhaustive()
    }
}

impl FenceLayer {
    /// Creates a layer with one resource for the whole service.
    pub fn new() -> FenceLayer {
        FenceLayer::per(|_| String::new())
    }

    /// Creates a layer with one resource for each name that `resource_of` returns, such as the path of a request.
    /// `resource_of` should return only names of existing resources, because the layer stores every name.
    pub fn per(resource_of: impl Fn(&http::request::Parts) -> String + Send + Sync + 'static) -> FenceLayer {
        FenceLayer { resource_of: Arc::new(resource_of), checkers: Arc::default() }
    }

    /// Checks a request. Returns the rejection, or `None` to pass the request on.
    fn reject<B: Default>(&self, parts: &http::request::Parts) -> Option<Response<B>> {
        if [Method::GET, Method::HEAD, Method::OPTIONS].contains(&parts.method) {
            return None;
        }
        let fence = parts.headers.get(HEADER).and_then(|value| value.to_str().ok()?.parse().ok());
        let Some(fence) = fence else {
            return Some(answer(StatusCode::PRECONDITION_REQUIRED, None));
        };
        let resource = (self.resource_of)(parts);
        let checker = {
            let mut checkers = self.checkers.lock().unwrap_or_else(|e| e.into_inner());
            checkers.entry(resource).or_default().clone()
        };
        let stale = checker.check(fence).err()?;
        Some(answer(StatusCode::PRECONDITION_FAILED, Some(stale.highest)))
    }
}

impl Default for FenceLayer {
    fn default() -> Self {
        FenceLayer::new()
    }
}

fn answer<B: Default>(status: StatusCode, highest: Option<Fence>) -> Response<B> {
    let mut response = Response::new(B::default());
    *response.status_mut() = status;
    if let Some(highest) = highest {
        response.headers_mut().insert(HEADER, HeaderValue::from(highest.get()));
    }
    response
}

impl<S> Layer<S> for FenceLayer {
    type Service = FenceService<S>;

    fn layer(&self, service: S) -> FenceService<S> {
        FenceService { layer: self.clone(), service }
    }
}

/// The service that [`FenceLayer`] creates.
#[derive(Clone, Debug)]
pub struct FenceService<S> {
    layer: FenceLayer,
    service: S,
}

impl<S, A, B> Service<Request<A>> for FenceService<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Default + Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let (parts, body) = request.into_parts();
        match self.layer.reject(&parts) {
            Some(rejected) => Box::pin(std::future::ready(Ok(rejected))),
            None => Box::pin(self.service.call(Request::from_parts(parts, body))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower::ServiceExt;

    async fn status(
        layer: &FenceLayer,
        method: Method,
        path: &str,
        fence: Option<&str>,
    ) -> (u16, Option<String>) {
        let service = tower::service_fn(async |_: Request<String>| {
            Ok::<_, std::convert::Infallible>(Response::new("written".to_string()))
        });
        let mut request = Request::builder().method(method).uri(path);
        if let Some(fence) = fence {
            request = request.header(HEADER, fence);
        }
        let response = layer.layer(service).oneshot(request.body(String::new()).unwrap()).await.unwrap();
        let highest = response.headers().get(HEADER).map(|h| h.to_str().unwrap().to_owned());
        (response.status().as_u16(), highest)
    }

    #[tokio::test]
    async fn stale_and_missing_fences_are_rejected_reads_pass() {
        let layer = FenceLayer::new();
        assert_eq!(status(&layer, Method::PUT, "/", Some("7")).await, (200, None));
        assert_eq!(status(&layer, Method::PUT, "/", Some("9")).await, (200, None));
        assert_eq!(status(&layer, Method::PUT, "/", Some("7")).await, (412, Some("9".into())));
        for bad in [None, Some("0"), Some(""), Some("-1"), Some("x"), Some("99999999999999999999")] {
            assert_eq!(status(&layer, Method::DELETE, "/", bad).await, (428, None), "{bad:?}");
        }
        assert_eq!(status(&layer, Method::GET, "/", None).await, (200, None));
    }

    #[tokio::test]
    async fn each_resource_has_its_own_memory() {
        let layer = FenceLayer::per(|parts| parts.uri.path().to_owned());
        assert_eq!(status(&layer, Method::PUT, "/a", Some("9")).await.0, 200);
        assert_eq!(status(&layer, Method::PUT, "/b", Some("3")).await.0, 200);
        assert_eq!(status(&layer, Method::PUT, "/a", Some("3")).await.0, 412);
    }
}

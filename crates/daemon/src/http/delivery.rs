//! The body of a response that contains a hold. It detects whether the server has taken all of it.

use crate::leases::{DeliveryReceipt, PendingDelivery};
use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A body with the receipt for the hold that it contains. If the connection ends before the server has taken the
/// whole body, the client has not received the hold, and dropping the receipt gives it up.
struct Delivery {
    body: Body,
    receipt: Option<DeliveryReceipt>,
}

/// Attaches the receipt to the body of a response, if it contains a hold.
pub(super) fn watch(mut response: Response) -> Response {
    let receipt =
        response.extensions_mut().remove::<PendingDelivery>().and_then(|undelivered| undelivered.take());
    match receipt {
        None => response,
        // An error response contains no hold.
        Some(_) if !response.status().is_success() => response,
        receipt => response.map(|body| Body::new(Delivery { body, receipt })),
    }
}

impl Delivery {
    fn delivered(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            receipt.delivered();
        }
    }
}

impl HttpBody for Delivery {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(None) => self.delivered(),
            Poll::Ready(Some(Ok(_))) if self.body.is_end_stream() => self.delivered(),
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_without_a_hold_is_left_alone() {
        let response = watch(Response::new(Body::from("text")));
        assert_eq!(response.body().size_hint().exact(), Some(4));
    }
}

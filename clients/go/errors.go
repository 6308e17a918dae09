package lockkeeper

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Errors that callers distinguish with errors.Is.
var (
	// ErrBusy: the lock was not free in time.
	ErrBusy = errors.New("the lock was not free in time")
	// ErrRefused: the token is missing, is not valid, or does not allow the request.
	ErrRefused = errors.New("refused")
	// ErrUnreachable: no daemon answered in time.
	ErrUnreachable = errors.New("no daemon can be reached")
	// ErrTLS: TLS failed with every daemon. It is an ErrUnreachable, too.
	ErrTLS = errors.New("TLS with no daemon works")
	// ErrLost: the hold ended before it was released.
	ErrLost = errors.New("the lock was lost")
	// ErrReleased: the hold was released before.
	ErrReleased = errors.New("the lock was released before")
)

// Error is an error of a daemon or of the connections to the daemons.
type Error struct {
	// Code is for programs: those of the HTTP API, and unreachable, tls, lost.
	Code string
	// Status is the HTTP status; 0 if no daemon answered.
	Status int
	// Message is for people.
	Message string

	kinds []error
	cause error
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the error that caused this one, if any.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether the error is one of the errors of this package, such as ErrBusy.
func (e *Error) Is(target error) bool {
	for _, kind := range e.kinds {
		if kind == target {
			return true
		}
	}
	return false
}

// errorOf is the error of a response.
func errorOf(status int, text []byte) *Error {
	problem := struct{ Error, Message string }{}
	if json.Unmarshal(text, &problem) != nil || problem.Error == "" {
		if len(text) > 200 {
			text = text[:200]
		}
		problem.Error, problem.Message = "unknown", fmt.Sprintf("the daemon answers %d: %q", status, text)
	}
	made := &Error{Code: problem.Error, Status: status, Message: problem.Message}
	switch {
	case status == 409 && problem.Error == "busy":
		made.kinds = []error{ErrBusy}
	case status == 401 || status == 403:
		made.kinds = []error{ErrRefused}
	}
	return made
}

// isTLSFailure reports whether TLS itself failed, so that another attempt at the same daemon would fail too.
func isTLSFailure(failure error) bool {
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		roots     x509.SystemRootsError
		header    tls.RecordHeaderError
	)
	if errors.As(failure, &authority) || errors.As(failure, &host) || errors.As(failure, &invalid) ||
		errors.As(failure, &roots) || errors.As(failure, &header) {
		return true
	}
	// Alerts of the daemon have no exported type before Go 1.21.
	return strings.Contains(failure.Error(), "tls: ")
}

// unreachable is the error after the last attempt failed.
func unreachable(failure error, overTLS bool) error {
	var own *Error
	if errors.As(failure, &own) {
		return own
	}
	if overTLS {
		message := fmt.Sprintf("%v: %v; check the URL, the authority and the certificate of the daemon", ErrTLS, failure)
		return &Error{Code: "tls", Message: message, kinds: []error{ErrTLS, ErrUnreachable}, cause: failure}
	}
	return &Error{Code: "unreachable", Message: fmt.Sprintf("%v: %v", ErrUnreachable, failure), kinds: []error{ErrUnreachable}, cause: failure}
}

func lostError(name, reason string) *Error {
	if reason == "" {
		reason = "its session has ended"
	}
	return &Error{Code: "lost", Message: fmt.Sprintf("the lock `%s` was lost: %s", name, reason), kinds: []error{ErrLost}}
}

// isOver reports whether the session of a request has ended.
func isOver(err error) bool {
	var own *Error
	return errors.As(err, &own) && own.Code == "no_such_session"
}

// isRetryable reports whether another attempt, perhaps at another daemon, may succeed after this error.
func isRetryable(err error) bool {
	var own *Error
	return !errors.As(err, &own) || own.Status == 408 || own.Status >= 500
}

package lockkeeper

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"lockkeeper.example/lockkeeper/internal/clock"
)

const (
	// connectTimeout is the time that a connection may take.
	connectTimeout = 3 * time.Second
	// answerTimeout is the time that an answer may take beyond the requested wait.
	answerTimeout = 10 * time.Second
	// retryTimeout is the time for which a request is repeated while no daemon answers.
	retryTimeout = 10 * time.Second
	// shortestRetryTimeout is the same for a request whose own timeout is shorter than this.
	shortestRetryTimeout = 2 * time.Second
	// longestResponse is the longest text of a response that is read.
	longestResponse = 1 << 30
)

// transport sends requests to the daemons of one cluster.
type transport struct {
	bases     []string
	token     string
	client    *http.Client
	preferred atomic.Int32
}

func newTransport(bases []string, token string, settings *tls.Config) *transport {
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: 5 * time.Second}
	round := &http.Transport{
		DialContext:         dialer.DialContext,
		TLSClientConfig:     settings,
		TLSHandshakeTimeout: connectTimeout,
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     30 * time.Second,
		// A transport with settings of its own uses HTTP/1.1, where closing a connection withdraws the request that waits on it.
		ForceAttemptHTTP2: false,
		TLSNextProto:      map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	return &transport{bases: bases, token: token, client: &http.Client{Transport: round, CheckRedirect: noRedirect}}
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// reply is the answer of a daemon.
type reply struct {
	// sent is the time at which the answered request was sent.
	sent time.Duration
	// attempts is the number of times that the request was sent.
	attempts int
}

// limits bound the repetition of a request.
type limits struct {
	// until is the caller's deadline on the clock; 0: none.
	until time.Duration
	// retry is the time for which it is repeated while no daemon answers.
	retry time.Duration
}

// call sends a request, and repeats it through the next daemon while no answer arrives.
func (t *transport) call(ctx context.Context, request call, limits limits, into interface{}) (reply, error) {
	attempts := attempts{count: len(t.bases), place: int(t.preferred.Load()), limits: limits, tls: map[int]bool{}}
	for count := 1; ; count++ {
		place, sent := attempts.place, clock.Now()
		err := t.attempt(ctx, place, request, into)
		if err == nil || (ctx.Err() == nil && !isRetryable(err)) {
			t.preferred.Store(int32(place))
			return reply{sent: sent, attempts: count}, err
		}
		if ctx.Err() != nil {
			return reply{}, ctx.Err()
		}
		pause, err := attempts.failed(err, sent, clock.Now())
		if err != nil {
			return reply{}, err
		}
		if err := sleep(ctx, pause); err != nil {
			return reply{}, err
		}
	}
}

// attempt sends a request to one daemon. An answer that is an error is an *Error.
func (t *transport) attempt(ctx context.Context, place int, request call, into interface{}) error {
	timeout := request.answerTimeout
	if timeout == 0 {
		timeout = answerTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, request.wait+timeout)
	defer cancel()
	response, err := t.send(ctx, place, request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, longestResponse))
	if err != nil {
		return fmt.Errorf("the answer broke off: %w", err)
	}
	if response.StatusCode >= 300 {
		return errorOf(response.StatusCode, text)
	}
	if into == nil || len(text) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the answer is not what was expected: %w", err)
	}
	return nil
}

func (t *transport) send(ctx context.Context, place int, request call) (*http.Response, error) {
	made, err := http.NewRequestWithContext(ctx, request.method, t.bases[place]+request.path, bytes.NewReader(request.body))
	if err != nil {
		return nil, err
	}
	made.Header.Set("accept", "application/json")
	if request.body != nil {
		made.Header.Set("content-type", "application/json")
	}
	if t.token != "" {
		made.Header.Set("authorization", "Bearer "+t.token)
	}
	return t.client.Do(made)
}

// attempts decides which daemon a request goes to next, and when the client gives up.
//
// A round tries every daemon once, without a pause. Between rounds the client pauses for a random time that grows. A daemon with which TLS
// fails is not tried again.
type attempts struct {
	count, place int
	limits       limits
	tried        int
	failing      bool
	failingSince time.Duration
	tls          map[int]bool
}

// failed notes a failed attempt. It returns the pause before the next one, or the error if the client gives up.
func (a *attempts) failed(failure error, sent, now time.Duration) (time.Duration, error) {
	if !a.failing || now-sent > a.limits.retry {
		// A request that waited for long did reach a daemon.
		a.failing, a.failingSince = true, now
	}
	if isTLSFailure(failure) {
		a.tls[a.place] = true
	}
	a.tried++
	if len(a.tls) == a.count {
		return 0, unreachable(failure, true)
	}
	for next := true; next; next = a.tls[a.place] {
		a.place = (a.place + 1) % a.count
	}
	if a.tried%a.count != 0 {
		return 0, nil
	}
	rounds := a.tried / a.count
	if rounds > 1 && now >= a.failingSince+a.retriesFor() {
		return 0, unreachable(failure, false)
	}
	pause := 50 * time.Millisecond << atMost(time.Duration(rounds), 5)
	return atMost(pause, time.Second) / 1000 * time.Duration(500+rand.Intn(500)), nil
}

func (a *attempts) retriesFor() time.Duration {
	if a.limits.until == 0 {
		return a.limits.retry
	}
	return atMost(atLeast(a.limits.until-a.failingSince, shortestRetryTimeout), a.limits.retry)
}

// sleep waits, or returns the context's error if it ends before.
func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isCancelled reports whether an error is that of a context.
func isCancelled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

package lockkeeper

import (
	"context"
	"fmt"
	"sync"
	"time"

	"lockkeeper.example/lockkeeper/internal/clock"
)

// Hold is a hold on a lock, kept alive by a goroutine until it is released or lost.
type Hold struct {
	transport *transport
	name      string
	fence     uint64
	hold      string
	session   string
	ttl       time.Duration
	place     int
	ctx       context.Context
	cancel    context.CancelFunc
	lost      chan struct{}
	stop      chan struct{}

	mutex    sync.Mutex
	lease    lease
	released bool
	reason   string
}

// newHold confirms a hold, and starts to keep it alive.
func newHold(ctx context.Context, transport *transport, granted holdReply, sent time.Duration) (*Hold, error) {
	h := &Hold{
		transport: transport,
		name:      granted.Name,
		fence:     granted.Fence,
		hold:      granted.Hold,
		session:   granted.Session,
		ttl:       time.Duration(granted.TTLMs) * time.Millisecond,
		place:     int(transport.preferred.Load()),
		lost:      make(chan struct{}),
		stop:      make(chan struct{}),
		lease:     renewed(sent, granted.ValidForMs),
	}
	if err := h.confirm(ctx); err != nil {
		return nil, err
	}
	h.ctx, h.cancel = context.WithCancel(ctx)
	go h.keepAlive()
	return h, nil
}

// Name is the lock's name.
func (h *Hold) Name() string { return h.name }

// Fence is above the fences of all earlier holders: pass it with every write to the protected resource. 0 for a permit.
func (h *Hold) Fence() uint64 { return h.fence }

// Lost is closed when the hold is lost.
func (h *Hold) Lost() <-chan struct{} { return h.lost }

// Context is derived from the context of the acquire. It is cancelled when the hold is lost or released.
func (h *Hold) Context() context.Context { return h.ctx }

// Err is nil unless the hold was lost; then it is an ErrLost with the reason.
func (h *Hold) Err() error {
	select {
	case <-h.lost:
		h.mutex.Lock()
		defer h.mutex.Unlock()
		return lostError(h.name, h.reason)
	default:
		return nil
	}
}

// Valid reports whether no other client can hold the lock at this moment. The next moment may differ: only the fence protects the next step.
func (h *Hold) Valid() bool { return h.ValidFor() > 0 }

// ValidFor is the time for which the hold is valid without further keep-alives.
func (h *Hold) ValidFor() time.Duration {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.released || h.reason != "" {
		return 0
	}
	return h.lease.left(clock.Now())
}

// Unlock releases the lock. It returns ErrLost if the lock was not held until now, and ErrReleased if it was released before.
func (h *Hold) Unlock() error {
	h.mutex.Lock()
	if h.released {
		h.mutex.Unlock()
		return ErrReleased
	}
	h.released = true
	reason, lease := h.reason, h.lease
	h.mutex.Unlock()
	close(h.stop)
	h.cancel()
	if reason != "" {
		return lostError(h.name, reason)
	}
	var answer struct{ Released bool }
	// The context of the acquire may have ended, and the lock must be released all the same.
	got, err := h.transport.call(context.Background(), releaseCall(h.name, h.hold), limits{retry: retryTimeout}, &answer)
	if err != nil {
		return err
	}
	go endSession(h.transport, h.session)
	// If the answer to a release was lost, the repeated one finds nothing to release: the hold was ours, unless its time has passed.
	if answer.Released || (got.attempts > 1 && lease.left(clock.Now()) > 0) {
		return nil
	}
	return lostError(h.name, "")
}

// confirm sends a keep-alive if the request waited for long: the validity in its answer counts from an unknown time since then.
func (h *Hold) confirm(ctx context.Context) error {
	start := clock.Now()
	for !h.lease.isFresh(clock.Now()) {
		if reason := h.sendKeepAlive(ctx, clock.Now(), h.ttl/4); reason != "" {
			return lostError(h.name, reason)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if clock.Now() > start+h.ttl {
			message := fmt.Sprintf("`%s` was granted, and no daemon confirms it", h.name)
			return &Error{Code: "unreachable", Message: message, kinds: []error{ErrUnreachable}}
		}
	}
	return nil
}

func (h *Hold) keepAlive() {
	for {
		select {
		case <-h.stop:
			return
		case <-time.After(atMost(h.lease.renewalIn(clock.Now()), longestSleep)):
		}
		// One reading for the check and the renewal: if the clock jumped in between, the renewal would revive a hold that has expired.
		now := clock.Now()
		if h.lease.left(now) == 0 {
			h.lose("no keep-alive was answered in time")
			return
		}
		if h.lease.renewalIn(now) > 0 {
			continue
		}
		// A hold outlives the context of its acquire: it ends with Unlock, or with its process.
		if reason := h.sendKeepAlive(context.Background(), now, h.lease.timeout(now)); reason != "" {
			h.lose(reason)
			return
		}
	}
}

// sendKeepAlive sends a keep-alive to one daemon; the next one goes to another daemon if it fails. sent is a reading of the clock before it.
// It returns the reason if the hold is lost.
func (h *Hold) sendKeepAlive(ctx context.Context, sent, timeout time.Duration) string {
	var answer aliveReply
	err := h.transport.attempt(ctx, h.place, keepAliveCall(h.session, timeout), &answer)
	if err == nil {
		validForMs, lost := answer.of(h.hold)
		if lost == "" {
			h.mutex.Lock()
			h.lease = renewed(sent, validForMs)
			h.mutex.Unlock()
		}
		return lost
	}
	if !isRetryable(err) {
		return err.Error()
	}
	h.place = (h.place + 1) % len(h.transport.bases)
	time.Sleep(20 * time.Millisecond)
	return ""
}

func (h *Hold) lose(reason string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.released {
		return
	}
	h.reason = reason
	close(h.lost)
	h.cancel()
}

// endSession ends a session. If that fails, it ends when its time to live has passed.
func endSession(transport *transport, session string) {
	_, _ = transport.call(context.Background(), endSessionCall(session), limits{}, nil)
}

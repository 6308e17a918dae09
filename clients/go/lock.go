package lockkeeper

import (
	"context"
	"errors"
	"time"

	"lockkeeper.example/lockkeeper/internal/clock"
)

// defaultTTL is the time to live of a hold after the last keep-alive of its process.
const defaultTTL = 30 * time.Second

// Lock is a lock that can be acquired. Its methods return changed copies, so that one value serves many goroutines.
type Lock struct {
	client  *Client
	name    string
	how     mode
	ttl     time.Duration
	purpose string
}

// WithTTL sets the time to live: a hold ends this long after the last keep-alive of this process. Default: 30 s.
func (l Lock) WithTTL(ttl time.Duration) *Lock {
	l.ttl = ttl
	return &l
}

// WithPurpose sets the purpose that lists show to other clients.
func (l Lock) WithPurpose(purpose string) *Lock {
	l.purpose = purpose
	return &l
}

// Lock waits for the lock, until the context ends: then it gives up its place in the queue, and returns the context's error.
func (l *Lock) Lock(ctx context.Context) (*Hold, error) { return l.acquire(ctx, 0) }

// LockWithin waits for the lock for at most so long. It returns ErrBusy if the lock was not free in time.
func (l *Lock) LockWithin(ctx context.Context, timeout time.Duration) (*Hold, error) {
	// The shortest timeout keeps a place for "no timeout".
	return l.acquire(ctx, clock.Now()+atLeast(timeout, 1))
}

// TryLock acquires the lock if it is free. It returns ErrBusy if it is not.
func (l *Lock) TryLock(ctx context.Context) (*Hold, error) { return l.acquire(ctx, clock.Now()) }

// Run runs a function under the lock. The function's context is cancelled if the hold is lost; Run returns ErrLost then.
func (l *Lock) Run(ctx context.Context, work func(context.Context, *Hold) error) error {
	hold, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	failed := work(hold.Context(), hold)
	err = hold.Unlock()
	// An error of the function itself is returned, unless the loss has caused it.
	if failed != nil && !(isCancelled(failed) && errors.Is(err, ErrLost)) {
		return failed
	}
	return err
}

// acquire waits for the lock until a time on the clock; 0: without end.
func (l *Lock) acquire(ctx context.Context, until time.Duration) (*Hold, error) {
	for {
		// The session comes first: every daemon can forward a request of a session, so that it can be sent again through any of them.
		var created sessionReply
		request := newSessionCall(l.ttl, l.client.owner)
		if _, err := l.client.transport.call(ctx, request, limits{until: until, retry: retryTimeout}, &created); err != nil {
			return nil, err
		}
		hold, err := l.acquireBy(ctx, created.Session, until)
		if err == nil {
			return hold, nil
		}
		over := isOver(err)
		if !over {
			// Also if the wait was cancelled: the request may have been granted meanwhile.
			go endSession(l.client.transport, created.Session)
		}
		// A hold that was lost at once was of no use yet; a session may end with its daemon.
		if !(over || errors.Is(err, ErrLost)) || (until != 0 && clock.Now() >= until) {
			return nil, err
		}
	}
}

// acquireBy waits for the lock by a session, which is kept alive meanwhile, and confirms the hold.
func (l *Lock) acquireBy(ctx context.Context, session string, until time.Duration) (*Hold, error) {
	waiting, finish := context.WithCancel(ctx)
	defer finish()
	ended := make(chan error, 1)
	go func() {
		if err := l.keepAlive(waiting, session); err != nil {
			ended <- err
			finish()
		}
	}()
	granted, got, err := l.waitBy(waiting, session, until)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return nil, <-ended
	}
	if err != nil {
		return nil, err
	}
	return newHold(ctx, l.client.transport, granted, got.sent)
}

func (l *Lock) waitBy(ctx context.Context, session string, until time.Duration) (holdReply, reply, error) {
	for {
		wait := longestWait
		if until != 0 {
			wait = atMost(atLeast(until-clock.Now(), 0), longestWait)
		}
		id, err := newRequestID()
		if err != nil {
			return holdReply{}, reply{}, err
		}
		var granted holdReply
		request := acquireCall(l.name, l.how, session, id, l.purpose, wait)
		got, err := l.client.transport.call(ctx, request, limits{until: until, retry: retryTimeout}, &granted)
		// The longest wait has passed, or a broken connection has withdrawn the request.
		var own *Error
		again := errors.As(err, &own) && (own.Code == "busy" || own.Code == "given_up")
		if !again || (until != 0 && clock.Now() >= until-time.Millisecond) {
			return granted, got, err
		}
	}
}

// keepAlive keeps a session alive until the context ends. It returns the error with which the session ends.
func (l *Lock) keepAlive(ctx context.Context, session string) error {
	pause := atMost(l.ttl/4, 3*time.Second)
	place := int(l.client.transport.preferred.Load())
	for sleep(ctx, pause) == nil {
		err := l.client.transport.attempt(ctx, place, keepAliveCall(session, pause), nil)
		if isOver(err) {
			return err
		}
		if err != nil {
			place = (place + 1) % len(l.client.transport.bases)
		}
	}
	return nil
}

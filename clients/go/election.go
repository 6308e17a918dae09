package lockkeeper

import (
	"context"
	"errors"
	"time"
)

// Election is an election: its leader is the holder of the lock of that name.
type Election struct {
	client *Client
	name   string
	ttl    time.Duration
}

// WithTTL sets the time to live: a leadership ends this long after the last keep-alive of its process. Default: 30 s.
func (e Election) WithTTL(ttl time.Duration) *Election {
	e.ttl = ttl
	return &e
}

// Leadership is the leadership, until it is resigned or lost.
type Leadership struct{ *Hold }

// Resign lets the next candidate lead. It returns ErrLost if this candidate did not lead until now.
func (l Leadership) Resign() error { return l.Unlock() }

// Campaign waits until this candidate is elected. Observers see the value, such as an address.
func (e *Election) Campaign(ctx context.Context, value string) (Leadership, error) {
	purpose, err := purposeOf(value, e.client.owner)
	if err != nil {
		return Leadership{}, err
	}
	hold, err := e.client.Mutex(e.name).WithTTL(e.ttl).WithPurpose(purpose).Lock(ctx)
	return Leadership{hold}, err
}

// Leader returns the current leader; nil if there is none.
func (e *Election) Leader(ctx context.Context) (*Leader, error) {
	lock, err := e.client.Describe(ctx, e.name)
	if err != nil {
		return nil, err
	}
	return lock.leader(), nil
}

// errEnough ends a watch stream when the observer's function has returned an error.
type errEnough struct{ error }

// Observe calls a function with the current leader, and then with each new one; nil while there is none. It continues through another
// daemon if one dies. It returns the function's error, or that of the context.
func (e *Election) Observe(ctx context.Context, each func(*Leader) error) error {
	var last *Leader
	first, failures := true, 0
	show := func(lock LockState) error {
		leader := lock.leader()
		if lock.Name != e.name || (!first && same(leader, last)) {
			return nil
		}
		first, last = false, leader
		if err := each(leader); err != nil {
			return errEnough{err}
		}
		return nil
	}
	for {
		opened := func() error {
			// The stream is open before the first look: no change falls between the two.
			failures = 0
			lock, err := e.client.Describe(ctx, e.name)
			if err != nil {
				return err
			}
			return show(lock)
		}
		err := e.client.watch(ctx, e.name, opened, show)
		var enough errEnough
		if errors.As(err, &enough) {
			return enough.error
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failures++
		transport := e.client.transport
		if err != nil && (!isRetryable(err) || failures > 8*len(transport.bases)) {
			return err
		}
		transport.preferred.Store((transport.preferred.Load() + 1) % int32(len(transport.bases)))
		if err := sleep(ctx, atMost(50*time.Millisecond<<atMost(time.Duration(failures), 5), time.Second)); err != nil {
			return err
		}
	}
}

func same(one, other *Leader) bool {
	return one == other || (one != nil && other != nil && *one == *other)
}

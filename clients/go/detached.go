package lockkeeper

import (
	"context"
	"errors"
	"time"

	"lockkeeper.example/lockkeeper/internal/clock"
)

// DetachedHold is a hold of a named owner, without a living process, as it was when it was acquired or looked up.
type DetachedHold struct {
	// Name is the lock's name.
	Name string
	// Owner is the owner's name.
	Owner string
	// Mode is exclusive, shared or permit.
	Mode string
	// Fence is the same for every request of the owner until the hold ends; 0 for a permit.
	Fence uint64
	// Left is the time until its deadline.
	Left time.Duration
}

type detachedReply struct {
	Name   string `json:"name"`
	Owner  string `json:"owner"`
	Mode   string `json:"mode"`
	Fence  uint64 `json:"fence"`
	LeftMs int64  `json:"left_ms"`
}

func (r detachedReply) hold() *DetachedHold {
	return &DetachedHold{Name: r.Name, Owner: r.Owner, Mode: r.Mode, Fence: r.Fence, Left: time.Duration(r.LeftMs) * time.Millisecond}
}

// holdAsCall requests a detached hold. A repetition finds the hold by its owner.
func holdAsCall(name string, how mode, owner string, lasts time.Duration, purpose string, wait time.Duration) call {
	body := struct {
		mode
		Owner   string `json:"owner"`
		ForMs   int64  `json:"for_ms"`
		Purpose string `json:"purpose"`
		WaitMs  int64  `json:"wait_ms"`
	}{how, owner, atLeast(lasts, time.Millisecond).Milliseconds(), purpose, wait.Milliseconds()}
	return call{method: "POST", path: lockPath(name, "hold-as"), body: encode(body), wait: wait}
}

func ownerCall(name, verb, owner string) call {
	return call{method: "POST", path: lockPath(name, verb), body: encode(map[string]string{"owner": owner})}
}

// HoldAs holds the lock for a named owner for so long, without a session: no process has to be alive. It waits for the lock as Lock does. If
// the owner has the hold already, it returns the same fence at once, and moves the deadline. Client.ReleaseAs ends the hold; the time to live
// does not apply.
func (l *Lock) HoldAs(ctx context.Context, owner string, lasts time.Duration) (*DetachedHold, error) {
	return l.holdAs(ctx, owner, lasts, 0)
}

// HoldAsWithin is HoldAs that waits for at most so long. It returns ErrBusy if the lock was not free in time.
func (l *Lock) HoldAsWithin(ctx context.Context, owner string, lasts, timeout time.Duration) (*DetachedHold, error) {
	return l.holdAs(ctx, owner, lasts, clock.Now()+atLeast(timeout, 1))
}

// TryHoldAs is HoldAs if the lock is free, or if the owner has it already. It returns ErrBusy otherwise.
func (l *Lock) TryHoldAs(ctx context.Context, owner string, lasts time.Duration) (*DetachedHold, error) {
	return l.holdAs(ctx, owner, lasts, clock.Now())
}

// holdAs waits until a time on the clock; 0: without end.
func (l *Lock) holdAs(ctx context.Context, owner string, lasts, until time.Duration) (*DetachedHold, error) {
	for {
		wait := longestWait
		if until != 0 {
			wait = atMost(atLeast(until-clock.Now(), 0), longestWait)
		}
		var granted detachedReply
		request := holdAsCall(l.name, l.how, owner, lasts, l.purpose, wait)
		_, err := l.client.transport.call(ctx, request, limits{until: until, retry: retryTimeout}, &granted)
		if err == nil {
			return granted.hold(), nil
		}
		// The longest wait has passed, or a broken connection has withdrawn the request.
		var own *Error
		again := errors.As(err, &own) && (own.Code == "busy" || own.Code == "given_up")
		if !again || (until != 0 && clock.Now() >= until-time.Millisecond) {
			return nil, err
		}
	}
}

// Detached returns the detached hold of an owner on the lock; nil if it has none. See Lock.HoldAs.
func (c *Client) Detached(ctx context.Context, name, owner string) (*DetachedHold, error) {
	var found detachedReply
	_, err := c.transport.call(ctx, ownerCall(name, "hold-as", owner), limits{retry: retryTimeout}, &found)
	var own *Error
	if errors.As(err, &own) && own.Code == "conflict" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return found.hold(), nil
}

// ReleaseAs releases the detached hold of an owner. It returns whether the owner had one; false also if the answer to a first attempt was
// lost.
func (c *Client) ReleaseAs(ctx context.Context, name, owner string) (bool, error) {
	var answer struct{ Released bool }
	_, err := c.transport.call(ctx, ownerCall(name, "release-as", owner), limits{retry: retryTimeout}, &answer)
	return answer.Released, err
}

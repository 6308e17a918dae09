package lockkeeper

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Locker is a sync.Locker over a lock of the cluster, for code that expects one. It is for one holder at a time in this process, too.
//
// A sync.Locker cannot report errors. So Lock returns only with the lock: it tries again while no daemon can be reached, and panics if
// that is hopeless (the token is refused, the request is wrong, or the context ended). Unlock panics if the lock was lost meanwhile, unless
// OnLost handles the loss.
type Locker struct {
	// OnLost is called by Unlock if the lock was lost while it was held.
	OnLost func(error)

	ctx   context.Context
	lock  *Lock
	local sync.Mutex
	held  *Hold
}

var _ sync.Locker = (*Locker)(nil)

// Locker makes a sync.Locker of the lock. The context bounds all its waits.
func (l *Lock) Locker(ctx context.Context) *Locker { return &Locker{ctx: ctx, lock: l} }

// Lock waits for the lock.
func (l *Locker) Lock() {
	l.local.Lock()
	for {
		hold, err := l.lock.Lock(l.ctx)
		if err == nil {
			l.held = hold
			return
		}
		if !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrTLS) || sleep(l.ctx, time.Second) != nil {
			l.local.Unlock()
			panic(err)
		}
	}
}

// Unlock releases the lock.
func (l *Locker) Unlock() {
	hold := l.held
	if hold == nil {
		panic("lockkeeper: Unlock of a Locker that is not locked")
	}
	l.held = nil
	err := hold.Unlock()
	l.local.Unlock()
	switch {
	case errors.Is(err, ErrLost) && l.OnLost != nil:
		l.OnLost(err)
	case errors.Is(err, ErrLost):
		panic(err)
	}
	// If no daemon can be reached, the hold ends when its time to live has passed.
}

// Hold is the hold while the lock is held, and nil otherwise: it has the fence, and reports a loss. Call it between Lock and Unlock.
func (l *Locker) Hold() *Hold { return l.held }

package clock

import (
	"sync"
	"time"
)

var (
	start     = time.Now()
	mutex     sync.Mutex
	wallAhead time.Duration
)

// fallback is the clock of systems without one that counts suspend: the monotonic clock, plus every advance of the wall clock over it. A
// suspend makes the wall clock advance; so does setting it forward, which then ends holds too early.
func fallback() time.Duration {
	now := time.Now()
	monotonic := now.Sub(start)
	ahead := now.Round(0).Sub(start.Round(0)) - monotonic
	mutex.Lock()
	defer mutex.Unlock()
	if ahead > wallAhead {
		wallAhead = ahead
	}
	return monotonic + wallAhead
}

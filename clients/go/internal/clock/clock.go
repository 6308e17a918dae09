// Package clock has the clock that validity is counted on: it is never set, and it continues while the machine is suspended.
package clock

import (
	"sync/atomic"
	"time"
)

// jump is a time that tests add to the clock, as if the machine had been suspended for that long.
var jump atomic.Int64

// Jump lets the clock jump forward, for tests.
func Jump(by time.Duration) {
	jump.Add(int64(by))
}

// Now is the time on the clock, since an unknown start.
func Now() time.Duration {
	return now() + time.Duration(jump.Load())
}

package lockkeeper

import "time"

const (
	// The counted part of a reported validity is 11/12. While chrony corrects a clock, the clock may run slow by up to 1/12: more time has
	// passed than it shows. The daemon leaves a tenth for this, too; a client does not rely on that.
	countedOf, counted = 12, 11
	// shortestTimeout is the shortest time in which a daemon can be expected to answer a keep-alive.
	shortestTimeout = 200 * time.Millisecond
	// longestSleep is the longest time without a look at the clock: timers stand still while the machine is suspended, the clock does not.
	longestSleep = 500 * time.Millisecond
)

// lease is the time in which a hold is valid. It counts from sending the request that renewed it: the daemon may have answered at once.
// Times are readings of the clock.
type lease struct {
	sent  time.Duration
	until time.Duration
}

// renewed is the lease after an answer that reports a validity; sent is the time at which the request was sent.
func renewed(sent time.Duration, validForMs int64) lease {
	return lease{sent: sent, until: sent + time.Duration(validForMs)*time.Millisecond/countedOf*counted}
}

// left is the remaining validity; 0 if it has passed.
func (l lease) left(now time.Duration) time.Duration {
	return atLeast(l.until-now, 0)
}

// isFresh reports whether most of the validity remains. An acquire may wait for long, so that its answer is worth little.
func (l lease) isFresh(now time.Duration) bool {
	return now < l.sent+(l.until-l.sent)/2
}

// renewalIn is the time until the next keep-alive: a third of the validity after the last one was sent.
func (l lease) renewalIn(now time.Duration) time.Duration {
	return atLeast(l.sent+(l.until-l.sent)/3-now, 0)
}

// timeout is the time that one keep-alive may take: half of the rest, so that another daemon can be tried before the end.
func (l lease) timeout(now time.Duration) time.Duration {
	return atLeast(atMost(l.left(now)/2, 5*time.Second), shortestTimeout)
}

func atLeast(one, other time.Duration) time.Duration {
	if one < other {
		return other
	}
	return one
}

func atMost(one, other time.Duration) time.Duration {
	if one > other {
		return other
	}
	return one
}

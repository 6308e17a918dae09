// The runner of this client for the conformance suite: commands in, results out, as JSON lines.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"lockkeeper.example/lockkeeper"
	"lockkeeper.example/lockkeeper/internal/clock"
)

type command struct {
	ID      int      `json:"id"`
	Do      string   `json:"do"`
	Client  string   `json:"client"`
	Hold    string   `json:"hold"`
	Lock    string   `json:"lock"`
	Mode    string   `json:"mode"`
	Permits int      `json:"permits"`
	Value   *string  `json:"value"`
	WaitMs  *int64   `json:"wait_ms"`
	TTLMs   int64    `json:"ttl_ms"`
	Owner   string   `json:"owner"`
	ForMs   int64    `json:"for_ms"`
	URLs    []string `json:"urls"`
	Token   string   `json:"token"`
	CA      string   `json:"ca"`
	Cert    string   `json:"cert"`
	Key     string   `json:"key"`
	Request int      `json:"request"`
	Seconds float64  `json:"seconds"`
}

type result map[string]interface{}

type runner struct {
	mutex   sync.Mutex
	output  sync.Mutex
	clients map[string]*lockkeeper.Client
	holds   map[string]*lockkeeper.Hold
	cancels map[int]context.CancelFunc
}

func main() {
	r := &runner{clients: map[string]*lockkeeper.Client{}, holds: map[string]*lockkeeper.Hold{}, cancels: map[int]context.CancelFunc{}}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			panic(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		r.mutex.Lock()
		r.cancels[c.ID] = cancel
		r.mutex.Unlock()
		go r.run(ctx, c)
	}
}

func (r *runner) write(message result) {
	text, err := json.Marshal(message)
	if err != nil {
		panic(err)
	}
	r.output.Lock()
	defer r.output.Unlock()
	fmt.Println(string(text))
}

func (r *runner) run(ctx context.Context, c command) {
	ok, err := r.do(ctx, c)
	if err != nil {
		r.write(result{"id": c.ID, "error": kindOf(err), "message": err.Error()})
		return
	}
	r.write(result{"id": c.ID, "ok": ok})
}

func kindOf(err error) string {
	var own *lockkeeper.Error
	switch {
	case errors.Is(err, lockkeeper.ErrRefused):
		return "refused"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.As(err, &own):
		return own.Code
	}
	return "other"
}

func (r *runner) do(ctx context.Context, c command) (result, error) {
	switch c.Do {
	case "open":
		return result{}, r.open(c)
	case "acquire", "try":
		return r.acquire(ctx, c)
	case "cancel":
		r.mutex.Lock()
		defer r.mutex.Unlock()
		r.cancels[c.Request]()
		return result{}, nil
	case "release":
		err := r.hold(c).Unlock()
		if errors.Is(err, lockkeeper.ErrLost) || errors.Is(err, lockkeeper.ErrReleased) {
			return result{"held": false}, nil
		}
		return result{"held": true}, err
	case "state":
		return stateOf(r.hold(c)), nil
	case "lost":
		hold := r.hold(c)
		<-hold.Lost()
		return stateOf(hold), nil
	case "work":
		return result{}, r.lock(c).Run(ctx, func(ctx context.Context, _ *lockkeeper.Hold) error {
			r.write(result{"id": c.ID, "event": "entered"})
			<-ctx.Done()
			return ctx.Err()
		})
	case "observe":
		return r.observe(ctx, c)
	case "hold_as":
		return r.holdAs(ctx, c)
	case "detached":
		hold, err := r.client(c).Detached(ctx, c.Lock, c.Owner)
		return detachedState(hold), err
	case "release_as":
		released, err := r.client(c).ReleaseAs(ctx, c.Lock, c.Owner)
		return result{"released": released}, err
	case "jump":
		// The state just after it: before the client notices.
		clock.Jump(time.Duration(c.Seconds * float64(time.Second)))
		return stateOf(r.hold(c)), nil
	}
	return nil, fmt.Errorf("no such command: %s", c.Do)
}

func (r *runner) hold(c command) *lockkeeper.Hold {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.holds[c.Hold]
}

func (r *runner) client(c command) *lockkeeper.Client {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.clients[c.Client]
}

func (r *runner) open(c command) error {
	options := &lockkeeper.Options{Token: c.Token, TLS: &tls.Config{MinVersion: tls.VersionTLS12}}
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return err
		}
		options.TLS.RootCAs = x509.NewCertPool()
		options.TLS.RootCAs.AppendCertsFromPEM(text)
	}
	if c.Cert != "" {
		certificate, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return err
		}
		options.TLS.Certificates = []tls.Certificate{certificate}
	}
	client, err := lockkeeper.New(c.URLs, options)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.clients[c.Client] = client
	return err
}

func ttl(c command) time.Duration {
	if c.TTLMs == 0 {
		return 30 * time.Second
	}
	return time.Duration(c.TTLMs) * time.Millisecond
}

func (r *runner) lock(c command) *lockkeeper.Lock {
	client := r.client(c)
	switch c.Mode {
	case "shared":
		return client.Shared(c.Lock).WithTTL(ttl(c))
	case "permit":
		return client.Semaphore(c.Lock, c.Permits).WithTTL(ttl(c))
	}
	return client.Mutex(c.Lock).WithTTL(ttl(c))
}

func (r *runner) acquire(ctx context.Context, c command) (result, error) {
	hold, err := r.request(ctx, c)
	if c.Do == "try" && errors.Is(err, lockkeeper.ErrBusy) {
		return result{"acquired": false}, nil
	}
	if err != nil {
		return nil, err
	}
	r.mutex.Lock()
	r.holds[c.Hold] = hold
	r.mutex.Unlock()
	state := stateOf(hold)
	state["acquired"] = true
	return state, nil
}

func (r *runner) request(ctx context.Context, c command) (*lockkeeper.Hold, error) {
	switch {
	case c.Do == "try":
		return r.lock(c).TryLock(ctx)
	case c.Mode == "leader":
		leadership, err := r.client(c).Election(c.Lock).WithTTL(ttl(c)).Campaign(ctx, *c.Value)
		return leadership.Hold, err
	case c.WaitMs != nil:
		return r.lock(c).LockWithin(ctx, time.Duration(*c.WaitMs)*time.Millisecond)
	}
	return r.lock(c).Lock(ctx)
}

func (r *runner) holdAs(ctx context.Context, c command) (result, error) {
	lasts := time.Duration(c.ForMs) * time.Millisecond
	if c.WaitMs == nil {
		hold, err := r.lock(c).HoldAs(ctx, c.Owner, lasts)
		return detachedState(hold), err
	}
	hold, err := r.lock(c).HoldAsWithin(ctx, c.Owner, lasts, time.Duration(*c.WaitMs)*time.Millisecond)
	return detachedState(hold), err
}

func detachedState(hold *lockkeeper.DetachedHold) result {
	if hold == nil {
		return result{"found": false}
	}
	state := result{"found": true, "owner": hold.Owner, "left_ms": hold.Left.Milliseconds(), "fence": nil}
	if hold.Fence != 0 {
		state["fence"] = strconv.FormatUint(hold.Fence, 10)
	}
	return state
}

func stateOf(hold *lockkeeper.Hold) result {
	state := result{"valid": hold.Valid(), "valid_for_ms": hold.ValidFor().Milliseconds(), "lost": hold.Err() != nil, "fence": nil}
	if hold.Fence() != 0 {
		state["fence"] = strconv.FormatUint(hold.Fence(), 10)
	}
	return state
}

// observe waits until the leader of an election has the value; without a value: until there is no leader.
func (r *runner) observe(ctx context.Context, c command) (result, error) {
	enough := errors.New("enough")
	seen := result{}
	err := r.client(c).Election(c.Lock).Observe(ctx, func(leader *lockkeeper.Leader) error {
		switch {
		case leader == nil && c.Value == nil:
			seen["value"], seen["fence"] = nil, nil
			return enough
		case leader != nil && c.Value != nil && leader.Value == *c.Value:
			seen["value"], seen["fence"] = leader.Value, strconv.FormatUint(leader.Fence, 10)
			return enough
		}
		return nil
	})
	if errors.Is(err, enough) {
		return seen, nil
	}
	return nil, err
}

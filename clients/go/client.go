// Package lockkeeper has locks of lockkeeper's daemons. It needs the standard library only.
//
//	client, err := lockkeeper.New([]string{"http://127.0.0.1:7422"}, nil)
//	…
//	hold, err := client.Mutex("nightly").Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Unlock()
//	err = store.Write(hold.Context(), report, hold.Fence()) // the store refuses lower fences
//
// While a lock is held, a goroutine sends keep-alives. If the hold is lost all the same, hold.Lost() is closed and hold.Context() is
// cancelled. Validity is counted on a clock that continues while the machine is suspended (CLOCK_BOOTTIME on Linux).
package lockkeeper

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/url"
	"time"
)

// Options of a client.
type Options struct {
	// Token is the token, if the daemons need one.
	Token string
	// Owner is the owner that lists show to other clients.
	Owner string
	// TLS has the authority of the daemons' certificates (RootCAs), and the client's own certificate if the daemons need one.
	TLS *tls.Config
	// InsecureNoTLS allows to send the token to other machines unencrypted.
	InsecureNoTLS bool
}

// Client is a client of a daemon, or of several of one cluster: a request goes to the next one if one does not answer.
type Client struct {
	transport *transport
	owner     string
}

// New makes a client of the daemons with these URLs (http://host:port or https://host:port). It sends nothing. The options may be nil.
func New(urls []string, options *Options) (*Client, error) {
	if options == nil {
		options = &Options{}
	}
	bases, err := endpoints(urls, options.Token, options.InsecureNoTLS)
	if err != nil {
		return nil, err
	}
	if err := checkToken(options.Token); err != nil {
		return nil, err
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if options.TLS != nil {
		settings = options.TLS.Clone()
	}
	owner := options.Owner
	if owner == "" {
		owner = defaultOwner()
	}
	return &Client{transport: newTransport(bases, options.Token, settings), owner: owner}, nil
}

// Close closes idle connections. Holds continue.
func (c *Client) Close() { c.transport.client.CloseIdleConnections() }

// Mutex is the lock of that name, for one holder at a time.
func (c *Client) Mutex(name string) *Lock {
	return &Lock{client: c, name: name, how: mode{Mode: "exclusive"}, ttl: defaultTTL}
}

// Shared is the lock of that name in shared mode, for several holders at a time.
func (c *Client) Shared(name string) *Lock {
	return &Lock{client: c, name: name, how: mode{Mode: "shared"}, ttl: defaultTTL}
}

// Semaphore is the semaphore of that name: a hold is one of so many permits.
func (c *Client) Semaphore(name string, permits int) *Lock {
	return &Lock{client: c, name: name, how: mode{Mode: "permit", Permits: permits}, ttl: defaultTTL}
}

// Election is the election of that name. Its leader is the holder of the lock of that name.
func (c *Client) Election(name string) *Election {
	return &Election{client: c, name: name, ttl: defaultTTL}
}

// Locks returns every lock that is held or waited for.
func (c *Client) Locks(ctx context.Context, prefix string) ([]LockState, error) {
	var locks []LockState
	return locks, c.get(ctx, "/v1/locks?prefix="+url.QueryEscape(prefix), &locks)
}

// Describe returns the holders and the waiters of a lock.
func (c *Client) Describe(ctx context.Context, name string) (LockState, error) {
	var lock LockState
	err := c.get(ctx, lockPath(name, ""), &lock)
	return lock, err
}

// Why explains why the first waiter of a lock waits, as JSON: the chain of waits, and whether it is a deadlock.
func (c *Client) Why(ctx context.Context, name string) (json.RawMessage, error) {
	var why json.RawMessage
	err := c.get(ctx, lockPath(name, "why"), &why)
	return why, err
}

// ForceRelease revokes the holds on the lock. Their clients are notified. It returns the released acquisitions.
func (c *Client) ForceRelease(ctx context.Context, name string) ([]string, error) {
	var answer struct{ Released []string }
	request := call{method: "POST", path: lockPath(name, "force-release"), body: []byte("{}")}
	_, err := c.transport.call(ctx, request, limits{retry: retryTimeout}, &answer)
	return answer.Released, err
}

// Members returns the members of the cluster, as JSON.
func (c *Client) Members(ctx context.Context) (json.RawMessage, error) {
	return c.raw(ctx, "/v1/members")
}

// Status returns the state of the daemon and of its member, as JSON.
func (c *Client) Status(ctx context.Context) (json.RawMessage, error) {
	return c.raw(ctx, "/v1/status")
}

// WhoAmI returns the name of the token, and what it allows, as JSON.
func (c *Client) WhoAmI(ctx context.Context) (json.RawMessage, error) {
	return c.raw(ctx, "/v1/whoami")
}

func (c *Client) raw(ctx context.Context, path string) (json.RawMessage, error) {
	var text json.RawMessage
	err := c.get(ctx, path, &text)
	return text, err
}

func (c *Client) get(ctx context.Context, path string, into interface{}) error {
	_, err := c.transport.call(ctx, call{method: "GET", path: path}, limits{retry: retryTimeout}, into)
	return err
}

// watchTimeout is the time without a line after which a watch stream has failed. The daemon sends one at least every 15 seconds.
const watchTimeout = 60 * time.Second

// longestEvent is the longest line of a watch stream.
const longestEvent = 16 << 20

// Watch calls a function with the state of each lock with that prefix, and again whenever it changes. It returns when the daemon ends the
// stream, when the context ends, or with the error that the function returns.
func (c *Client) Watch(ctx context.Context, prefix string, each func(LockState) error) error {
	return c.watch(ctx, prefix, func() error { return nil }, each)
}

func (c *Client) watch(ctx context.Context, prefix string, opened func() error, each func(LockState) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(watchTimeout, cancel)
	defer silence.Stop()
	place := int(c.transport.preferred.Load())
	response, err := c.transport.send(ctx, place, call{method: "GET", path: "/v1/watch?prefix=" + url.QueryEscape(prefix)})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != 200 {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<16))
		return errorOf(response.StatusCode, text)
	}
	if err := opened(); err != nil {
		return err
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, longestEvent)
	for lines.Scan() {
		silence.Reset(watchTimeout)
		if data := bytes.TrimPrefix(lines.Bytes(), []byte("data: ")); len(data) < len(lines.Bytes()) {
			var lock LockState
			if err := json.Unmarshal(data, &lock); err != nil {
				return err
			}
			if err := each(lock); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

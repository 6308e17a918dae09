package lockkeeper

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// longestWait is the longest wait that a daemon accepts in one request.
	longestWait = 24 * time.Hour
	// longestPurpose is the daemon's limit for the text in which a candidate's value is sent, in characters.
	longestPurpose = 256
)

// mode is the mode of a request.
type mode struct {
	Mode    string `json:"mode"`
	Permits int    `json:"permits,omitempty"`
}

// call is a request that may be repeated. wait is the time for which the daemon may let it wait.
type call struct {
	method, path  string
	body          []byte
	wait          time.Duration
	answerTimeout time.Duration
}

type sessionReply struct {
	Session string `json:"session"`
}

type holdReply struct {
	Name       string `json:"name"`
	Hold       string `json:"hold"`
	Session    string `json:"session"`
	Fence      uint64 `json:"fence"`
	ValidForMs int64  `json:"valid_for_ms"`
	TTLMs      int64  `json:"ttl_ms"`
}

type aliveReply struct {
	ValidForMs *int64 `json:"valid_for_ms"`
	Lost       []struct {
		Hold   string `json:"hold"`
		Reason string `json:"reason"`
	} `json:"lost"`
}

// Party is a holder or a waiter of a lock.
type Party struct {
	// Acquisition is the id of the acquisition.
	Acquisition string `json:"acquisition"`
	// Member is the member that serves the client.
	Member uint32 `json:"member"`
	// Mode is exclusive, shared or permit.
	Mode string `json:"mode"`
	// Permits is the total number of permits, in the mode permit.
	Permits uint32 `json:"permits,omitempty"`
	// Owner and Purpose are as the client gave them.
	Owner   string `json:"owner"`
	Purpose string `json:"purpose"`
	// Fence is the fence of a hold; 0 if it has none.
	Fence uint64 `json:"fence,omitempty"`
	// ForMs is the time for which it has held or waited, in milliseconds.
	ForMs uint64 `json:"for_ms"`
}

// LockState is a lock with its holders and waiters.
type LockState struct {
	Name    string  `json:"name"`
	Holders []Party `json:"holders"`
	Waiters []Party `json:"waiters"`
	// LeftOut is the number of further holders and waiters.
	LeftOut uint64 `json:"left_out,omitempty"`
}

// Leader is the leader of an election.
type Leader struct {
	// Value is what it campaigned with.
	Value string
	// Fence rises with every change of the leader.
	Fence uint64
	// Owner is the owner, as the leader's client named itself.
	Owner string
}

// endpoints parses the URLs of the daemons of one cluster, and checks that the token would not be sent unencrypted to other machines.
func endpoints(urls []string, token string, insecureNoTLS bool) ([]string, error) {
	if len(urls) == 0 {
		return nil, errors.New("no URL was given")
	}
	var bases []string
	for _, text := range urls {
		parsed, err := endpoint(text)
		if err != nil {
			return nil, err
		}
		if token != "" && parsed.Scheme == "http" && !isLoopback(parsed.Hostname()) && !insecureNoTLS {
			return nil, fmt.Errorf("the token would go to %s unencrypted: write https://, or set InsecureNoTLS if the network is trusted", parsed.Hostname())
		}
		bases = append(bases, parsed.Scheme+"://"+parsed.Host)
	}
	return bases, nil
}

// endpoint parses a URL. No error quotes it: it may contain a token, in a place where none is expected.
func endpoint(text string) (*url.URL, error) {
	parsed, err := url.Parse(text)
	if err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Hostname() == "" ||
		strings.ContainsAny(text, "@?#") || (parsed.Path != "" && parsed.Path != "/") {
		return nil, errors.New("a URL is no address of a daemon: http://host:port or https://host:port is expected, and a token is passed as Token")
	}
	if parsed.Port() == "" {
		parsed.Host = net.JoinHostPort(parsed.Hostname(), "7422")
	}
	return parsed, nil
}

func isLoopback(host string) bool {
	if address := net.ParseIP(host); address != nil {
		return address.IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}

// checkToken checks that a token has the characters of one.
func checkToken(token string) error {
	for _, character := range token {
		if character < 33 || character > 126 {
			return errors.New("the token contains characters that no token has, perhaps the end of a line")
		}
	}
	return nil
}

func defaultOwner() string {
	host, _ := os.Hostname()
	return host + " (go)"
}

func lockPath(name, verb string) string {
	path := "/v1/locks/" + url.PathEscape(name)
	if verb != "" {
		path += "/" + verb
	}
	return path
}

func encode(value interface{}) []byte {
	// Values of these types cannot fail to be encoded.
	text, _ := json.Marshal(value)
	return text
}

// newSessionCall requests a session. If the answer is lost, a session without holds remains until its time to live has passed.
func newSessionCall(ttl time.Duration, owner string) call {
	body := map[string]interface{}{"ttl_ms": ttl.Milliseconds(), "owner": owner}
	return call{method: "POST", path: "/v1/sessions", body: encode(body)}
}

// acquireCall requests a lock. The daemons recognise a repetition by the session and the request id.
func acquireCall(name string, how mode, session, request, purpose string, wait time.Duration) call {
	body := struct {
		mode
		Session string `json:"session"`
		Request string `json:"request"`
		Purpose string `json:"purpose"`
		WaitMs  int64  `json:"wait_ms"`
	}{how, session, request, purpose, wait.Milliseconds()}
	return call{method: "POST", path: lockPath(name, "acquire"), body: encode(body), wait: wait}
}

func releaseCall(name, hold string) call {
	return call{method: "POST", path: lockPath(name, "release"), body: encode(map[string]string{"hold": hold})}
}

func keepAliveCall(session string, timeout time.Duration) call {
	return call{method: "POST", path: "/v1/sessions/" + session + "/keep-alive", answerTimeout: timeout}
}

func endSessionCall(session string) call {
	return call{method: "DELETE", path: "/v1/sessions/" + session}
}

// newRequestID is a request id that no other request has.
func newRequestID() (string, error) {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return "", fmt.Errorf("no random number for a request id: %w", err)
	}
	return hex.EncodeToString(id[:]), nil
}

// of is the answer to a keep-alive as far as it concerns one hold: the validity, or the reason for which the hold was lost.
func (a aliveReply) of(hold string) (validForMs int64, lost string) {
	for _, one := range a.Lost {
		if one.Hold == hold {
			return 0, one.Reason
		}
	}
	if a.ValidForMs == nil {
		return 0, "its session holds it no longer"
	}
	return *a.ValidForMs, ""
}

type tag struct {
	Holder   string            `json:"holder"`
	Host     string            `json:"host"`
	PID      int               `json:"pid"`
	SinceMs  int               `json:"since_ms"`
	Metadata map[string]string `json:"metadata"`
}

// purposeOf is the purpose that carries a candidate's value: the same JSON as the Rust library writes and reads.
func purposeOf(value, owner string) (string, error) {
	text := string(encode(tag{Holder: owner, Metadata: map[string]string{"value": value}}))
	if utf8.RuneCountInString(text) > longestPurpose {
		text = string(encode(tag{Metadata: map[string]string{"value": value}}))
	}
	if length := utf8.RuneCountInString(text); length > longestPurpose {
		own := utf8.RuneCountInString(value)
		return "", fmt.Errorf("the value of a candidate has %d characters: at most about %d are allowed", own, longestPurpose-(length-own))
	}
	return text, nil
}

// leader is the leader, given the lock of the election; nil if there is none.
func (l LockState) leader() *Leader {
	if len(l.Holders) == 0 {
		return nil
	}
	holder := l.Holders[0]
	value := holder.Purpose
	var carried tag
	// Any other lock can be observed, too.
	if json.Unmarshal([]byte(holder.Purpose), &carried) == nil {
		if own, is := carried.Metadata["value"]; is {
			value = own
		}
	}
	return &Leader{Value: value, Fence: holder.Fence, Owner: holder.Owner}
}

package lockkeeper

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestValidityCountsFromSendingOnAClockThatMayBeSlewed(t *testing.T) {
	lease := renewed(100*time.Second, 12_000)
	// While chrony corrects it, a clock runs slow by up to 1/12: when it shows 11 s, 12 s may have passed.
	if lease.left(110900*time.Millisecond) == 0 || lease.left(111100*time.Millisecond) != 0 {
		t.Fatal("the validity is wrong", lease)
	}
	if left := 2 * lease.timeout(105*time.Second); left > 6*time.Second {
		t.Fatal("a keep-alive leaves no time for another daemon", left)
	}
	if !lease.isFresh(105400*time.Millisecond) || lease.isFresh(105600*time.Millisecond) {
		t.Fatal("most of the validity ends at its middle", lease)
	}
}

func TestEveryDaemonIsAskedBeforeAPause(t *testing.T) {
	attempts := attempts{count: 3, place: 1, limits: limits{retry: retryTimeout}, tls: map[int]bool{}}
	for place, expected := range []int{1, 2, 0, 1, 2, 0} {
		if attempts.place != expected {
			t.Fatal("asked", attempts.place, "not", expected)
		}
		pause, err := attempts.failed(errors.New("refused"), 0, 0)
		if err != nil || (pause > 0) != (place%3 == 2) {
			t.Fatal(place, pause, err)
		}
	}
}

func TestTheClientGivesUpInTime(t *testing.T) {
	for until, givesUp := range map[time.Duration]time.Duration{0: 10 * time.Second, 1: 2 * time.Second, 5 * time.Second: 5 * time.Second, time.Hour: 10 * time.Second} {
		attempts := attempts{count: 1, limits: limits{until: until, retry: retryTimeout}, tls: map[int]bool{}}
		for _, at := range []time.Duration{0, givesUp - time.Millisecond} {
			if _, err := attempts.failed(errors.New("refused"), 0, at); err != nil {
				t.Fatal(until, "gives up at", at)
			}
		}
		if _, err := attempts.failed(errors.New("refused"), 0, givesUp); !errors.Is(err, ErrUnreachable) {
			t.Fatal(until, "does not give up:", err)
		}
	}
}

func TestADaemonWithWhichTLSFailsIsNotAskedAgain(t *testing.T) {
	attempts := attempts{count: 2, limits: limits{retry: retryTimeout}, tls: map[int]bool{}}
	failure := x509.UnknownAuthorityError{}
	if _, err := attempts.failed(failure, 0, 0); err != nil || attempts.place != 1 {
		t.Fatal(err)
	}
	if _, err := attempts.failed(errors.New("refused"), 0, 0); err != nil || attempts.place != 1 {
		t.Fatal(err, attempts.place)
	}
	_, err := attempts.failed(failure, 0, 0)
	if !errors.Is(err, ErrTLS) || !errors.Is(err, ErrUnreachable) {
		t.Fatal(err)
	}
}

func TestTheValueOfACandidateIsThatOfTheRustLibrary(t *testing.T) {
	purpose, err := purposeOf("a:80", "me")
	if err != nil || purpose != `{"holder":"me","host":"","pid":0,"since_ms":0,"metadata":{"value":"a:80"}}` {
		t.Fatal(purpose, err)
	}
	lock := LockState{Holders: []Party{{Purpose: purpose, Fence: 7, Owner: "me"}}}
	if leader := lock.leader(); *leader != (Leader{"a:80", 7, "me"}) {
		t.Fatal(leader)
	}
	if _, err := purposeOf(strings.Repeat("v", 250), "me"); err == nil {
		t.Fatal("a value that is too long is accepted")
	}
}

func TestATokenIsSentInPlainTextOnlyOnThisMachine(t *testing.T) {
	for _, url := range []string{"http://127.0.0.1:1", "http://localhost", "http://[::1]:1", "https://example.org"} {
		if _, err := New([]string{url}, &Options{Token: "secret"}); err != nil {
			t.Fatal(url, err)
		}
	}
	for _, url := range []string{"http://10.0.0.1:7422", "http://example.org", "http://localhost.example.org", "http://[::]"} {
		if _, err := New([]string{url}, &Options{Token: "secret"}); err == nil || !strings.Contains(err.Error(), "unencrypted") {
			t.Fatal(url, err)
		}
		if _, err := New([]string{url}, &Options{Token: "secret", InsecureNoTLS: true}); err != nil {
			t.Fatal(url, err)
		}
	}
}

func TestNoErrorShowsASecretOfAURL(t *testing.T) {
	for _, url := range []string{"http://u:s3cr3t@h", "http://h?token=s3cr3t", "http://h#s3cr3t", "http://[s3cr3t", "lockkeeper://token:s3cr3t@h", "s3cr3t", "http://h/s3cr3t"} {
		if _, err := New([]string{url}, nil); err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Fatal(err)
		}
	}
}

// grants is a daemon that grants every lock, or rejects every request.
func grants(t *testing.T, refuse bool) *Client {
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		var answer interface{}
		switch {
		case refuse:
			writer.WriteHeader(403)
			answer = map[string]string{"error": "not_allowed", "message": "no"}
		case request.URL.Path == "/v1/sessions":
			answer = map[string]interface{}{"session": "1", "ttl_ms": 30000}
		case strings.HasSuffix(request.URL.Path, "/acquire"):
			answer = holdReply{Name: "a", Hold: "1-1", Session: "1", Fence: 9223372036854775807, ValidForMs: 30000, TTLMs: 30000}
		case strings.HasSuffix(request.URL.Path, "/release"):
			answer = map[string]bool{"released": true}
		default:
			answer = map[string]interface{}{"lost": []string{}, "valid_for_ms": 30000}
		}
		_ = json.NewEncoder(writer).Encode(answer)
	}))
	t.Cleanup(server.Close)
	client, err := New([]string{server.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestALockerIsASyncLocker(t *testing.T) {
	locker := grants(t, false).Mutex("a").Locker(context.Background())
	var count int
	var group sync.WaitGroup
	for worker := 0; worker < 4; worker++ {
		group.Add(1)
		go func(locker sync.Locker) {
			defer group.Done()
			for turn := 0; turn < 5; turn++ {
				locker.Lock()
				// The race detector watches: the locker excludes the goroutines of this process, too.
				count++
				locker.Unlock()
			}
		}(locker)
	}
	group.Wait()
	locker.Lock()
	if count != 20 || locker.Hold().Fence() != 9223372036854775807 {
		t.Fatal(count, locker.Hold().Fence())
	}
	locker.Unlock()
}

func TestALockerThatCannotLockPanics(t *testing.T) {
	defer func() {
		if err, is := recover().(error); !is || !errors.Is(err, ErrRefused) {
			t.Fatal("no panic with the refusal")
		}
	}()
	grants(t, true).Mutex("a").Locker(context.Background()).Lock()
}

// The file is also that of the other clients, and the daemon's tests read it.
func TestRequestsDoNotChange(t *testing.T) {
	name, owner := "a/b é", "web-3"
	acquire := func(how mode) call { return acquireCall(name, how, "1a", "r1", "backup", 2*time.Second) }
	permit := mode{Mode: "permit", Permits: 3}
	requests := map[string]call{
		"new session":       newSessionCall(30*time.Second, owner),
		"keep-alive":        keepAliveCall("1a", time.Second),
		"end session":       endSessionCall("1a"),
		"acquire exclusive": acquire(mode{Mode: "exclusive"}),
		"acquire shared":    acquire(mode{Mode: "shared"}),
		"acquire permit":    acquire(permit),
		"release":           releaseCall(name, "1a-4"),
		"hold as":           holdAsCall(name, permit, owner, 7*time.Second, "kernel", 2*time.Second),
		"detached":          ownerCall(name, "hold-as", owner),
		"release as":        ownerCall(name, "release-as", owner),
	}
	golden, err := os.ReadFile("../conformance/requests.json")
	if err != nil {
		t.Fatal(err)
	}
	var expected map[string]map[string]interface{}
	if err := json.Unmarshal(golden, &expected); err != nil {
		t.Fatal(err)
	}
	if len(requests) != len(expected) {
		t.Fatal("requests.json has other requests than this test")
	}
	for key, request := range requests {
		sent := map[string]interface{}{"method": request.method, "path": request.path, "body": nil}
		if request.body != nil {
			var body interface{}
			if err := json.Unmarshal(request.body, &body); err != nil {
				t.Fatal(err)
			}
			sent["body"] = body
		}
		if !reflect.DeepEqual(sent, expected[key]) {
			t.Fatal(key, "is", sent, "not", expected[key])
		}
	}
}

// A contender for locks and elections with etcd's package `concurrency`, driven over standard input: see driver.py.
//
//	contender TTL ENDPOINT...
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

var output sync.Mutex

func say(words ...interface{}) {
	output.Lock()
	defer output.Unlock()
	fmt.Println(words...)
}

func failed(err error) { say("failed", strings.ReplaceAll(err.Error(), "\n", " ")) }

func fail(err error) {
	failed(err)
	os.Exit(1)
}

func main() {
	ttl, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fail(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: os.Args[2:], DialTimeout: 10 * time.Second})
	if err != nil {
		fail(err)
	}
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	if err != nil {
		fail(err)
	}
	say("ready", int64(session.Lease()))
	go func() {
		<-session.Done()
		say("session-over")
	}()
	var mutex *concurrency.Mutex
	var election *concurrency.Election
	cancel := func() {}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		ctx, stop := context.WithCancel(context.Background())
		switch words[0] {
		case "lock":
			cancel, mutex = stop, concurrency.NewMutex(session, words[1])
			go func(mutex *concurrency.Mutex) {
				if err := mutex.Lock(ctx); err != nil {
					failed(err)
				} else {
					say("held", mutex.Header().Revision)
				}
			}(mutex)
		case "unlock":
			if err := mutex.Unlock(ctx); err != nil {
				failed(err)
			} else {
				say("released")
			}
		case "campaign":
			cancel, election = stop, concurrency.NewElection(session, words[1])
			go func(election *concurrency.Election) {
				if err := election.Campaign(ctx, words[2]); err != nil {
					failed(err)
				} else {
					say("held", election.Rev())
				}
			}(election)
		case "proclaim":
			if err := election.Proclaim(ctx, words[1]); err != nil {
				failed(err)
			} else {
				say("proclaimed")
			}
		case "resign":
			if err := election.Resign(ctx); err != nil {
				failed(err)
			} else {
				say("released")
			}
		case "observe":
			observed := concurrency.NewElection(session, words[1]).Observe(ctx)
			go func() {
				for leader := range observed {
					say("leader", string(leader.Kvs[0].Value))
				}
			}()
		case "cancel":
			cancel()
		case "revoke":
			if _, err := client.Revoke(ctx, session.Lease()); err != nil {
				failed(err)
			} else {
				say("revoked")
			}
		}
	}
}

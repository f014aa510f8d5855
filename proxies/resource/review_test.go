package resource_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
	"github.com/argomesh/argomesh/proxies/resource"
)

// changing is a registry of edge-1 whose answer changes.
type changing struct {
	mu      sync.Mutex // guards what follows
	target  resource.Target
	err     error
	changed chan struct{}
}

// Target implements resource.Registry.
func (c *changing) Target(identity.AgentName) (resource.Target, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.target, c.err
}

// Changed implements resource.Registry.
func (c *changing) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *changing) set(target resource.Target, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.target, c.err = target, err
	close(c.changed)
	c.changed = make(chan struct{})
}

// endless answers a call with a line, and then says nothing until it ends. An upgrade
// is granted.
func endless(t *testing.T) http.HandlerFunc {
	upgraded := switching(t, func(_ *http.Request, conn net.Conn, reader *bufio.Reader) {
		_, _ = io.WriteString(conn, "hello\n")
		_, _ = io.Copy(io.Discard, reader)
	})
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			upgraded(w, r)
			return
		}
		_, _ = io.WriteString(w, "hello\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// underWay is a call that goes on.
type underWay struct {
	reader *bufio.Reader
	ended  chan error // what a read returns in the end
}

// begin makes a call and waits for its first line.
func (w *proxyEnv) begin(path string) *underWay {
	w.t.Helper()
	res, err := w.client().Do(w.request(w.t.Context(), http.MethodGet, path, nil))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = res.Body.Close() })
	return follow(w.t, bufio.NewReader(res.Body))
}

func follow(t *testing.T, reader *bufio.Reader) *underWay {
	t.Helper()
	if line, err := reader.ReadString('\n'); err != nil || line != "hello\n" {
		t.Fatalf("the call says %q, %v", line, err)
	}
	u := &underWay{reader: reader, ended: make(chan error, 1)}
	go func() {
		rest, err := io.ReadAll(reader)
		if len(rest) > 0 {
			err = errors.Join(err, errors.New("more came: "+string(rest)))
		}
		u.ended <- err
	}()
	return u
}

// A call under way ends when it would be refused, and only then.
func TestWithdrawnAccessEndsCalls(t *testing.T) {
	const watchPods, watchMaps, follows = "/api/v1/namespaces/web/pods?watch=true", "/api/v1/namespaces/web/configmaps?watch=true", "/api/v1/namespaces/web/pods/p/log?follow=true"
	named := "/api/v1/namespaces/web/configmaps?watch=true&fieldSelector=metadata.name%3Da"
	without := func(change func(*access.Config)) access.Config {
		config := everything()
		change(&config)
		return config
	}
	for name, test := range map[string]struct {
		now        access.Config
		uid        string
		generation int64 // of tokens
		err        error
		rules      map[string]string // of the calls that end; "exec" is the upgrade
	}{
		"the same rules in other words": {now: everything()},
		"exec is off":                   {now: without(func(c *access.Config) { c.Exec = false }), rules: map[string]string{"exec": "exec"}},
		"fewer kinds": {
			now: without(func(c *access.Config) {
				c.Rules = []access.Rule{{Name: "pods", Groups: []string{""}, Resources: []string{"pods", "pods/log", "pods/exec"}}}
			}),
			rules: map[string]string{watchMaps: "deny-by-default", named: "deny-by-default"},
		},
		"another namespace": {
			now: without(func(c *access.Config) { c.Rules[0].Namespaces = []string{"other"} }),
			rules: map[string]string{
				watchPods: "deny-by-default", watchMaps: "deny-by-default", named: "deny-by-default", follows: "deny-by-default", "exec": "deny-by-default",
			},
		},
		"live access is disabled": {
			now:   access.Config{},
			rules: map[string]string{watchPods: "enabled", watchMaps: "enabled", named: "enabled", follows: "enabled", "exec": "enabled"},
		},
		"only tracked objects, which nobody looked at": {
			now: without(func(c *access.Config) { c.TrackedOnly = true }),
			rules: map[string]string{
				watchPods: "tracked-only", watchMaps: "tracked-only", named: "everything", follows: "everything", "exec": "everything",
			},
		},
		"another agent of that name": {
			now: everything(), uid: "uid-2",
			rules: map[string]string{watchPods: "registry", watchMaps: "registry", named: "registry", follows: "registry", "exec": "registry"},
		},
		"the agent is suspended": {
			err:   identity.ErrDenied,
			rules: map[string]string{watchPods: "registry", watchMaps: "registry", named: "registry", follows: "registry", "exec": "registry"},
		},
		"its tokens were ended": {
			now: everything(), generation: 1,
			rules: map[string]string{watchPods: "token", watchMaps: "token", named: "token", follows: "token", "exec": "token"},
		},
		"the registry is not known": {err: errors.New("not read yet")},
	} {
		t.Run(name, func(t *testing.T) {
			before := resource.Target{UID: "uid-1", Policy: policy(t, access.Hub, everything())}
			agents := &changing{target: before, changed: make(chan struct{})}
			w := start(t, endless(t), settings{hub: func(c *resource.HubConfig) { c.Agents = agents }})
			calls := map[string]*underWay{}
			for _, path := range []string{watchPods, watchMaps, named, follows} {
				calls[path] = w.begin(path)
			}
			_, _, reader := w.upgrade("GET", execPath, "websocket")
			calls["exec"] = follow(t, reader)

			now := resource.Target{UID: "uid-1", TokenGeneration: test.generation, Policy: policy(t, access.Hub, test.now)}
			if test.uid != "" {
				now.UID = test.uid
			}
			agents.set(now, test.err)
			for call, rule := range test.rules {
				select {
				case err := <-calls[call].ended:
					if err == nil && call != "exec" { // a unix socket has no other end
						t.Errorf("%s ended as if it were complete, by rule %s", call, rule)
					}
				case <-time.After(10 * time.Second):
					t.Fatalf("%s goes on", call)
				}
			}
			rules := map[string]int{}
			for _, record := range w.records.wait(t, audit.End, len(test.rules)) {
				if record.Result != audit.Withdrawn {
					t.Errorf("record = %+v", record)
				}
				rules[record.Rule]++
			}
			for _, rule := range test.rules {
				rules[rule]--
			}
			for rule, n := range rules {
				if n != 0 {
					t.Errorf("rule %q is in %d records too many", rule, n)
				}
			}
			// The others go on, whatever is said again.
			agents.set(now, test.err)
			for call, u := range calls {
				if _, ends := test.rules[call]; ends {
					continue
				}
				select {
				case err := <-u.ended:
					t.Errorf("%s ended: %v", call, err)
				default:
				}
			}
			w.stopHub()
			for _, record := range w.records.wait(t, audit.End, len(calls)) {
				if record.Result != audit.Withdrawn && record.Result != audit.Stopped {
					t.Errorf("a call that may go on: %+v", record)
				}
			}
		})
	}
}

// unbound is a verifier of tokens that are another Agent's of the same name.
type unbound struct{ verifier }

// Bound implements resource.Verifier.
func (unbound) Bound(string, resource.Target) bool { return false }

// A token that was signed for an Agent of that name before, or that was ended, is none.
func TestTokensOfAnAgentBefore(t *testing.T) {
	w := start(t, func(http.ResponseWriter, *http.Request) { t.Error("it reached the API server") },
		settings{hub: func(c *resource.HubConfig) { c.Tokens = unbound{} }})
	if res, _ := w.get("/api/v1/pods"); res.Code != http.StatusUnauthorized {
		t.Errorf("answer %d", res.Code)
	}
	if r := w.records.wait(t, audit.End, 1)[0]; r.Decision != audit.Deny || r.Rule != "token" {
		t.Errorf("record = %+v", r)
	}
}

// revoking is a verifier of tokens of which some are revoked.
type revoking struct {
	verifier

	mu      sync.Mutex // guards what follows
	revoked string
	changed chan struct{}
}

// Revoked implements resource.Verifier.
func (r *revoking) Revoked(token string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return token == r.revoked
}

// Changed implements resource.Verifier.
func (r *revoking) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

func (r *revoking) set(revoked string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.revoked = revoked
	close(r.changed)
	r.changed = make(chan struct{})
}

// A call under way ends when its token is revoked, although nothing else has changed,
// and even when no one knows the registry.
func TestRevokedTokensEndCalls(t *testing.T) {
	for name, err := range map[string]error{"the registry is known": nil, "it is not": errors.New("not read yet")} {
		t.Run(name, func(t *testing.T) {
			tokens := &revoking{changed: make(chan struct{})}
			agents := &changing{target: resource.Target{UID: "uid-1", Policy: policy(t, access.Hub, everything())}, changed: make(chan struct{})}
			w := start(t, endless(t), settings{hub: func(c *resource.HubConfig) { c.Tokens, c.Agents = tokens, agents }})
			watch := w.begin("/api/v1/namespaces/web/pods?watch=true")
			_, _, reader := w.upgrade("GET", execPath, "websocket")
			exec := follow(t, reader)
			agents.set(agents.target, err)
			tokens.set("another")
			tokens.set(token("edge-1"))
			for _, u := range []*underWay{watch, exec} {
				select {
				case err := <-u.ended:
					if err == nil && u == watch { // a unix socket has no other end
						t.Error("it ended as if it were complete")
					}
				case <-time.After(10 * time.Second):
					t.Fatal("it goes on")
				}
			}
			for _, record := range w.records.wait(t, audit.End, 2) {
				if record.Result != audit.Withdrawn || record.Rule != "token" {
					t.Errorf("record = %+v", record)
				}
			}
		})
	}
}

// A call that is let through while the rules change does not slip through.
func TestAccessIsWithdrawnBetweenDecisionAndCall(t *testing.T) {
	before := resource.Target{UID: "uid-1", Policy: policy(t, access.Hub, everything())}
	agents := &narrowing{target: before, then: resource.Target{UID: "uid-1", Policy: policy(t, access.Hub, access.Config{})}}
	w := start(t, endless(t), settings{hub: func(c *resource.HubConfig) { c.Agents = agents }})
	res, err := w.client().Do(w.request(t.Context(), http.MethodGet, "/api/v1/namespaces/web/pods?watch=true", nil))
	if err == nil {
		_, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
	}
	if err == nil {
		t.Error("the call came to an end")
	}
	if record := w.records.wait(t, audit.End, 1)[0]; record.Result != audit.Withdrawn || record.Rule != "enabled" {
		t.Errorf("record = %+v", record)
	}
}

// narrowing is a registry that tells something else from the second question on, and
// told so before anybody listened.
type narrowing struct {
	mu           sync.Mutex // guards asked
	asked        bool
	target, then resource.Target
}

// Target implements resource.Registry.
func (n *narrowing) Target(identity.AgentName) (resource.Target, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asked {
		return n.then, nil
	}
	n.asked = true
	return n.target, nil
}

// Changed implements resource.Registry.
func (*narrowing) Changed() <-chan struct{} { return nil }

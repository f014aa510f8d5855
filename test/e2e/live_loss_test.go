//go:build linux

package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/argomesh/argomesh/test/harness"
)

// watchPath watches what nobody changes but the test that has the name.
func watchPath(name string) string {
	// Without a time an API server ends a watch after 30 to 60 minutes.
	return "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=7200&fieldSelector=metadata.name%3D" + name
}

// session is an exec that says back what it hears.
type session struct {
	*follower
	input *io.PipeWriter
	ended chan error // what client-go says in the end
}

// exec opens a session over a WebSocket. (Over SPDY client-go cannot tell a lost
// connection from an end.)
func (c *caller) exec(command ...string) *session {
	c.t.Helper()
	request := c.clients().CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(livePod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: liveContainer, Command: command, Stdin: true, Stdout: true}, scheme.ParameterCodec)
	config := rest.CopyConfig(c.config)
	executor, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, request.URL().String())
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	in, input := io.Pipe()
	out, output := io.Pipe()
	s := &session{follower: newFollower(c.t, "exec", out, cancel), input: input, ended: make(chan error, 1)}
	c.t.Cleanup(func() { _ = input.Close() })
	go func() {
		err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: output})
		s.ended <- err
		_ = output.CloseWithError(errors.Join(err, io.EOF)) // never fails
		_ = in.Close()
	}()
	return s
}

// echoes has the session say something back.
func (s *session) echoes(t *testing.T) {
	t.Helper()
	text := "heard " + rand.Text()
	if _, err := io.WriteString(s.input, text+"\n"); err != nil {
		t.Fatal(err)
	}
	s.until(t, text)
}

// breaks waits until the session ends, with an error.
func (s *session) breaks(t *testing.T) {
	t.Helper()
	begun, late := time.Now(), time.NewTimer(patience)
	defer late.Stop()
	select {
	case err := <-s.ended:
		if err == nil {
			t.Error("exec ended as if it were complete")
		}
		t.Logf("exec ended after %v: %v", time.Since(begun).Round(time.Millisecond), err)
	case <-late.C:
		t.Fatal("exec goes on")
	}
}

// pairedWatch is a watch through the hub, and the same one that asks the API server of the
// spoke directly and began before it. An API server may end a watch in order whenever it
// likes, as it does when etcd did not answer for a while. It ends both then. Where only the
// one through the hub ends, we have lost it.
type pairedWatch struct {
	through, direct *caller
	object          string
	*follower                 // through the hub
	beside          *follower // asks the API server
}

// watchPaired watches an object.
func watchPaired(through, direct *caller, object string) *pairedWatch {
	w := &pairedWatch{through: through, direct: direct, object: object}
	w.begin()
	return w
}

func (w *pairedWatch) begin() {
	w.beside = w.direct.follow(watchPath(w.object))
	w.follower = w.through.follow(watchPath(w.object))
}

// until reads lines up to one with text. When the API server ends the watch it watches
// again, as every client does.
func (w *pairedWatch) until(t *testing.T, text string) {
	t.Helper()
	for {
		_, err := w.find(t, text)
		if err == nil {
			return
		}
		w.endedByServer(t, err)
		w.begin()
	}
}

// breaks waits until the watch ends, with an error.
func (w *pairedWatch) breaks(t *testing.T) {
	t.Helper()
	if err := w.end(t); errors.Is(err, io.EOF) {
		w.endedByServer(t, err)
	}
}

// endedByServer wants that the end of the watch is the API server's.
func (w *pairedWatch) endedByServer(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, io.EOF) {
		t.Fatalf("%s broke: %v", w.name, err)
	}
	t.Logf("%s has ended in order: the API server's own is to end, too", w.name)
	if err := w.beside.end(t); !errors.Is(err, io.EOF) {
		t.Fatalf("%s ended in order, the API server's own did not: %v", w.name, err)
	}
}

// underWay are calls of one agent that go on.
type underWay struct {
	*caller
	watches []*pairedWatch // over HTTP/2 and HTTP/1.1
	log     *follower
	exec    *session
	object  string // that is watched
	changes int
}

// open begins one call of each kind, and sees each say something.
func (a *liveAgent) open(t *testing.T) *underWay {
	t.Helper()
	object := "of-" + a.name
	maps := a.direct(t).clients().CoreV1().ConfigMaps("default")
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: object}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := maps.Delete(context.WithoutCancel(t.Context()), object, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return a.openOn(t, object)
}

// openOn is open with an object that is there.
func (a *liveAgent) openOn(t *testing.T, object string) *underWay {
	t.Helper()
	u := &underWay{caller: a.caller(t), object: object}
	older := *u.caller
	older.config = rest.CopyConfig(u.config)
	older.config.NextProtos = []string{"http/1.1"}
	direct := a.direct(t)
	u.watches = []*pairedWatch{watchPaired(u.caller, direct, object), watchPaired(&older, direct, object)}
	u.log = u.follow("/api/v1/namespaces/default/pods/" + livePod + "/log?follow=true")
	u.exec = u.caller.exec("cat")
	u.flow(t)
	return u
}

// flow sees each call say something.
func (u *underWay) flow(t *testing.T) {
	t.Helper()
	u.shows(t)
	u.exec.echoes(t)
}

// shows sees watches and log say something.
func (u *underWay) shows(t *testing.T) {
	t.Helper()
	u.changes++
	text := fmt.Sprintf("change-%d-%s", u.changes, rand.Text())
	patch(t, u.agent.spoke.Resource(configMaps, "default"), u.object, map[string]any{"data": map[string]any{"text": text}})
	for _, watch := range u.watches {
		watch.until(t, text)
	}
	if err := u.agent.w.log.say(text); err != nil {
		t.Fatal(err)
	}
	u.log.until(t, text)
}

// breaks sees each call end with an error. How soon is logged: it is to be 30 s at most,
// of which the tunnel waits 25 for an agent that is silent.
func (u *underWay) breaks(t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	all.Go(func() { u.exec.breaks(t) })
	u.followedBreak(t)
	all.Wait()
}

// followedBreak sees watches and log end with an error.
func (u *underWay) followedBreak(t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	for _, watch := range u.watches {
		all.Go(func() { watch.breaks(t) })
	}
	all.Go(func() { u.log.breaks(t) })
	all.Wait()
}

// Whoever calls a spoke that is lost, or goes on with it, learns so.
func TestLiveLoss(t *testing.T) {
	t.Parallel()
	w := theLiveWorld(t)
	for name, lose := range map[string]func(*harness.Process) error{
		"killed": (*harness.Process).Kill,
		"frozen": func(p *harness.Process) error { return p.Signal(syscall.SIGSTOP) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := w.agent(t, "lost-"+name, everything, everything)
			t.Cleanup(func() {
				if name == "frozen" {
					_ = a.Signal(syscall.SIGCONT) // so that it can end; it may have
				}
			})
			u := a.open(t)
			if err := lose(a.Process); err != nil {
				t.Fatal(err)
			}
			u.breaks(t)
			w.recorded(t, a.name, map[string]any{"verb": "watch", "stage": "end", "result": "agent-gone"})
			w.recorded(t, a.name, map[string]any{"subresource": "exec", "stage": "end", "result": "agent-gone"})
			// What comes after that is answered at once.
			c := a.caller(t)
			begun := time.Now()
			r, err := fetchOne(t.Context(), c.config, "/api/v1/namespaces/default/configmaps")
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("a call without a spoke was answered after %v", time.Since(begun))
			if r.status != http.StatusServiceUnavailable || !strings.Contains(string(r.body), "agent "+a.name+" is not connected") {
				t.Errorf("a call without a spoke: %d %s", r.status, r.body)
			}
			if name == "frozen" {
				if err := a.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
			} else if err := a.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := a.reachable(t.Context()); err != nil {
				t.Fatal(err)
			}
			again := c.exec("cat")
			again.echoes(t)
		})
	}
}

// A spoke that is away still tells which kinds it has, and says how old that is, so
// that Argo CD can create and edit Applications.
func TestLiveAway(t *testing.T) {
	t.Parallel()
	w := theLiveWorld(t)
	a := w.agent(t, "away", everything, everything)
	c := a.caller(t)
	asked := [][]string{{"version", "-o", "json"}, {"api-resources", "-o", "name", "--sort-by=name"}, {"api-versions"}}
	before := map[string]string{}
	for _, args := range asked {
		before[args[0]] = c.run("", args...)
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.refused("", []string{"agent away is not connected"}, "get", "--raw", "/api/v1/namespaces/default/configmaps")
	c.folder = t.TempDir() // without what kubectl has learned
	for _, args := range asked {
		s := c.try("", args...)
		if s.Code != 0 || s.Out != before[args[0]] || !strings.Contains(s.Err, "Warning:") {
			t.Errorf("kubectl %s of a spoke that is away: %+v", args[0], s)
		}
	}
	w.recorded(t, a.name, map[string]any{"path": "/version", "answered_by": "last-known", "status": 200})
	// The same checks hold: no object is told of to whom the hub lets do nothing.
	if err := a.allow(t.Context(), map[string]any{"enabled": false}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the hub tells of no object any more", func() error {
		r, err := fetchOne(t.Context(), c.config, "/api/v1/namespaces/default/configmaps")
		if err == nil && r.status != http.StatusForbidden {
			err = fmt.Errorf("%d %s", r.status, r.body)
		}
		return err
	})
}

// An agent that is suspended or deleted loses live access, calls that are under way
// included.
func TestLiveRevocation(t *testing.T) {
	t.Parallel()
	w := theLiveWorld(t)
	for name, revoke := range map[string]func(t *testing.T, a *liveAgent){
		"suspended": func(t *testing.T, a *liveAgent) {
			patch(t, w.hub.Resource(agents, harness.ArgoCDNamespace), a.name, map[string]any{"spec": map[string]any{"suspended": true}})
		},
		"deleted": func(t *testing.T, a *liveAgent) {
			if err := w.hub.Resource(agents, harness.ArgoCDNamespace).Delete(t.Context(), a.name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := w.agent(t, "is-"+name, everything, everything)
			u := a.open(t)
			revoke(t, a)
			u.breaks(t) // the target is a second, told above
			eventually(t, "calls are refused", func() error {
				r, err := fetchOne(t.Context(), u.config, "/version")
				if err == nil && r.status != http.StatusForbidden && r.status != http.StatusNotFound {
					err = fmt.Errorf("%d %s", r.status, r.body)
				}
				return err
			})
			if name != "suspended" {
				return
			}
			patch(t, w.hub.Resource(agents, harness.ArgoCDNamespace), a.name, map[string]any{"spec": map[string]any{"suspended": false}})
			if err := a.reachable(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Whoever narrows spec.access ends what goes on under the wider one, and nothing else.
func TestLiveNarrowed(t *testing.T) {
	t.Parallel()
	w := theLiveWorld(t)
	a := w.agent(t, "narrowed", everything, everything)
	u := a.open(t)
	if err := a.allow(t.Context(), map[string]any{"exec": false}); err != nil {
		t.Fatal(err)
	}
	u.exec.breaks(t) // the target is a second, told above
	w.recorded(t, a.name, map[string]any{"subresource": "exec", "stage": "end", "result": "withdrawn", "rule": "exec"})
	u.shows(t)
	if err := a.allow(t.Context(), map[string]any{"rules": []any{map[string]any{"name": "elsewhere", "namespaces": []any{"elsewhere"}}}}); err != nil {
		t.Fatal(err)
	}
	u.followedBreak(t)
	for _, what := range []map[string]any{{"verb": "watch"}, {"subresource": "log"}} {
		what["stage"], what["result"], what["rule"] = "end", "withdrawn", "deny-by-default"
		w.recorded(t, a.name, what)
	}
}

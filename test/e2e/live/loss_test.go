//go:build linux

package live

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

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// watchPath watches what no one changes but the test that has the name.
func watchPath(name string) string {
	// Without a time an API server ends a watch after 30 to 60 minutes.
	return "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=7200&fieldSelector=metadata.name%3D" + name
}

// session is an exec that says back what it hears.
type session struct {
	*env.Follower
	input *io.PipeWriter
	ended chan error // what client-go says in the end
}

// execAs opens a session over a WebSocket. (Over SPDY client-go cannot tell a lost
// connection from an end.)
func execAs(c *env.Caller, command ...string) *session {
	c.T.Helper()
	request := c.Clients().CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(env.LivePod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: env.LiveContainer, Command: command, Stdin: true, Stdout: true}, scheme.ParameterCodec)
	config := rest.CopyConfig(c.Config)
	executor, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, request.URL().String())
	if err != nil {
		c.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.T.Context())
	in, input := io.Pipe()
	out, output := io.Pipe()
	s := &session{Follower: env.NewFollower(c.T, "exec", out, cancel), input: input, ended: make(chan error, 1)}
	c.T.Cleanup(func() { _ = input.Close() })
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
	s.Until(t, text)
}

// breaks waits until the session ends, with an error.
func (s *session) breaks(t *testing.T) {
	t.Helper()
	begun, late := time.Now(), time.NewTimer(env.Patience)
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
	through, direct *env.Caller
	object          string
	*env.Follower                 // through the hub
	beside          *env.Follower // asks the API server
}

// watchPaired watches an object.
func watchPaired(through, direct *env.Caller, object string) *pairedWatch {
	w := &pairedWatch{through: through, direct: direct, object: object}
	w.begin()
	return w
}

func (w *pairedWatch) begin() {
	w.beside = w.direct.Follow(watchPath(w.object))
	w.Follower = w.through.Follow(watchPath(w.object))
}

// until reads lines up to one with text. When the API server ends the watch it watches
// again, as every client does.
func (w *pairedWatch) until(t *testing.T, text string) {
	t.Helper()
	for {
		_, err := w.Find(t, text)
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
	if err := w.End(t); errors.Is(err, io.EOF) {
		w.endedByServer(t, err)
	}
}

// endedByServer wants that the end of the watch is the API server's.
func (w *pairedWatch) endedByServer(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, io.EOF) {
		t.Fatalf("%s broke: %v", w.Name, err)
	}
	t.Logf("%s has ended in order: the API server's own is to end, too", w.Name)
	if err := w.beside.End(t); !errors.Is(err, io.EOF) {
		t.Fatalf("%s ended in order, the API server's own did not: %v", w.Name, err)
	}
}

// underWay are calls of one agent that go on.
type underWay struct {
	*env.Caller
	watches []*pairedWatch // over HTTP/2 and HTTP/1.1
	log     *env.Follower
	exec    *session
	object  string // that is watched
	changes int
}

// open begins one call of each kind, and sees each say something.
func open(t *testing.T, a *env.LiveAgent) *underWay {
	t.Helper()
	object := "of-" + a.Name
	maps := a.Direct(t).Clients().CoreV1().ConfigMaps("default")
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: object}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := maps.Delete(context.WithoutCancel(t.Context()), object, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return openOn(t, a, object)
}

// openOn is open with an object that is there.
func openOn(t *testing.T, a *env.LiveAgent, object string) *underWay {
	t.Helper()
	u := &underWay{Caller: a.Caller(t), object: object}
	older := *u.Caller
	older.Config = rest.CopyConfig(u.Config)
	older.Config.NextProtos = []string{"http/1.1"}
	direct := a.Direct(t)
	u.watches = []*pairedWatch{watchPaired(u.Caller, direct, object), watchPaired(&older, direct, object)}
	u.log = u.Follow("/api/v1/namespaces/default/pods/" + env.LivePod + "/log?follow=true")
	u.exec = execAs(u.Caller, "cat")
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
	env.Patch(t, u.Agent.Spoke.Resource(env.ConfigMaps, "default"), u.object, map[string]any{"data": map[string]any{"text": text}})
	for _, watch := range u.watches {
		watch.until(t, text)
	}
	if err := u.Agent.Env.Log.Say(text); err != nil {
		t.Fatal(err)
	}
	u.log.Until(t, text)
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
	all.Go(func() { u.log.Breaks(t) })
	all.Wait()
}

// Anyone who calls a spoke that is lost, or goes on with it, learns so.
func TestLiveLoss(t *testing.T) {
	t.Parallel()
	w := env.SharedLive(t)
	for name, lose := range map[string]func(*harness.Process) error{
		"killed": (*harness.Process).Kill,
		"frozen": func(p *harness.Process) error { return p.Signal(syscall.SIGSTOP) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := w.Agent(t, "lost-"+name, env.Everything, env.Everything)
			t.Cleanup(func() {
				if name == "frozen" {
					_ = a.Signal(syscall.SIGCONT) // so that it can end; it may have
				}
			})
			u := open(t, a)
			if err := lose(a.Process); err != nil {
				t.Fatal(err)
			}
			u.breaks(t)
			w.Recorded(t, a.Name, map[string]any{"verb": "watch", "stage": "end", "result": "agent-gone"})
			w.Recorded(t, a.Name, map[string]any{"subresource": "exec", "stage": "end", "result": "agent-gone"})
			// What comes after that is answered at once.
			c := a.Caller(t)
			begun := time.Now()
			r, err := env.FetchOne(t.Context(), c.Config, "/api/v1/namespaces/default/configmaps")
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("a call without a spoke was answered after %v", time.Since(begun))
			if r.Status != http.StatusServiceUnavailable || !strings.Contains(string(r.Body), "agent "+a.Name+" is not connected") {
				t.Errorf("a call without a spoke: %d %s", r.Status, r.Body)
			}
			if name == "frozen" {
				if err := a.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
			} else if err := a.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := a.Reachable(t.Context()); err != nil {
				t.Fatal(err)
			}
			again := execAs(c, "cat")
			again.echoes(t)
		})
	}
}

// A spoke that is away still tells which kinds it has, and says how old that is, so
// that Argo CD can create and edit Applications.
func TestLiveAway(t *testing.T) {
	t.Parallel()
	w := env.SharedLive(t)
	a := w.Agent(t, "away", env.Everything, env.Everything)
	c := a.Caller(t)
	asked := [][]string{{"version", "-o", "json"}, {"api-resources", "-o", "name", "--sort-by=name"}, {"api-versions"}}
	before := map[string]string{}
	for _, args := range asked {
		before[args[0]] = c.Run("", args...)
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Refused("", []string{"agent away is not connected"}, "get", "--raw", "/api/v1/namespaces/default/configmaps")
	c.Folder = t.TempDir() // without what kubectl has learned
	for _, args := range asked {
		s := c.Try("", args...)
		if s.Code != 0 || s.Out != before[args[0]] || !strings.Contains(s.Err, "Warning:") {
			t.Errorf("kubectl %s of a spoke that is away: %+v", args[0], s)
		}
	}
	w.Recorded(t, a.Name, map[string]any{"path": "/version", "answered_by": "last-known", "status": 200})
	// The same checks hold: no object is told of to whom the hub lets do nothing.
	if err := a.Allow(t.Context(), map[string]any{"enabled": false}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the hub tells of no object any more", func() error {
		r, err := env.FetchOne(t.Context(), c.Config, "/api/v1/namespaces/default/configmaps")
		if err == nil && r.Status != http.StatusForbidden {
			err = fmt.Errorf("%d %s", r.Status, r.Body)
		}
		return err
	})
}

// An agent that is suspended or deleted loses live access, calls that are under way
// included.
func TestLiveRevocation(t *testing.T) {
	t.Parallel()
	w := env.SharedLive(t)
	for name, revoke := range map[string]func(t *testing.T, a *env.LiveAgent){
		"suspended": func(t *testing.T, a *env.LiveAgent) {
			env.Patch(t, w.Hub.Resource(env.Agents, harness.ArgoCDNamespace), a.Name, map[string]any{"spec": map[string]any{"suspended": true}})
		},
		"deleted": func(t *testing.T, a *env.LiveAgent) {
			if err := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Delete(t.Context(), a.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := w.Agent(t, "is-"+name, env.Everything, env.Everything)
			u := open(t, a)
			revoke(t, a)
			u.breaks(t) // the target is a second, told above
			env.Eventually(t, "calls are refused", func() error {
				r, err := env.FetchOne(t.Context(), u.Config, "/version")
				if err == nil && r.Status != http.StatusForbidden && r.Status != http.StatusNotFound {
					err = fmt.Errorf("%d %s", r.Status, r.Body)
				}
				return err
			})
			if name != "suspended" {
				return
			}
			env.Patch(t, w.Hub.Resource(env.Agents, harness.ArgoCDNamespace), a.Name, map[string]any{"spec": map[string]any{"suspended": false}})
			if err := a.Reachable(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Anyone who narrows spec.access ends what goes on under the wider one, and nothing else.
func TestLiveNarrowed(t *testing.T) {
	t.Parallel()
	w := env.SharedLive(t)
	a := w.Agent(t, "narrowed", env.Everything, env.Everything)
	u := open(t, a)
	if err := a.Allow(t.Context(), map[string]any{"exec": false}); err != nil {
		t.Fatal(err)
	}
	u.exec.breaks(t) // the target is a second, told above
	w.Recorded(t, a.Name, map[string]any{"subresource": "exec", "stage": "end", "result": "withdrawn", "rule": "exec"})
	u.shows(t)
	if err := a.Allow(t.Context(), map[string]any{"rules": []any{map[string]any{"name": "elsewhere", "namespaces": []any{"elsewhere"}}}}); err != nil {
		t.Fatal(err)
	}
	u.followedBreak(t)
	for _, what := range []map[string]any{{"verb": "watch"}, {"subresource": "log"}} {
		what["stage"], what["result"], what["rule"] = "end", "withdrawn", "deny-by-default"
		w.Recorded(t, a.Name, what)
	}
}

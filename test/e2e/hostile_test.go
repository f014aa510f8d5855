//go:build linux

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/harness"
)

// nameOfB is the name of an object that is not the attacker's, which it guesses;
// secretOfB is in all such objects, and it cannot know it.
const (
	nameOfB   = "name-of-b"
	secretOfB = "secret-of-b"
)

// frames is either end of an open stream.
type frames interface {
	Send(*streampb.Frame) error
	Recv() (*streampb.Frame, error)
}

// attacker is a peer with a good identity that keeps to no rule. Methods may be
// called concurrently.
type attacker struct {
	frames
	over chan struct{} // closed when the stream has ended

	mu    sync.Mutex // guards what follows
	heard []*streampb.Frame
	err   error // of the end
	next  chan struct{}
}

// listen keeps all that the attacked side says.
func listen(f frames) *attacker {
	a := &attacker{frames: f, over: make(chan struct{}), next: make(chan struct{})}
	go func() {
		defer close(a.over)
		for {
			frame, err := f.Recv()
			a.mu.Lock()
			a.heard, a.err = append(a.heard, frame), err
			close(a.next)
			a.next = make(chan struct{})
			a.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return a
}

// answer waits for the answer to an event, or for the end of the stream.
func (a *attacker) answer(t *testing.T, event string) (*streampb.Result, error) {
	t.Helper()
	return a.result(t, "an answer to event "+event, func(r *streampb.Result) bool { return r.GetEvent() == event })
}

// result waits for the first result that is wanted.
func (a *attacker) result(t *testing.T, what string, wanted func(*streampb.Result) bool) (*streampb.Result, error) {
	t.Helper()
	patience := time.NewTimer(patience)
	defer patience.Stop()
	for {
		a.mu.Lock()
		next, err := a.next, a.err
		for _, frame := range a.heard {
			for _, r := range frame.GetApplied().GetResults() {
				if wanted(r) {
					a.mu.Unlock()
					return r, nil
				}
			}
		}
		a.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-next:
		case <-patience.C:
			t.Fatalf("%s does not come", what)
		}
	}
}

// end waits for the end of the stream.
func (a *attacker) end(t *testing.T) error {
	t.Helper()
	select {
	case <-a.over:
	case <-time.After(patience):
		t.Fatal("the stream goes on")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// goodbye is the reason with which the attacked side ended the stream.
func (a *attacker) goodbye() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, frame := range a.heard {
		if bye := frame.GetGoodbye(); bye != nil {
			return bye.GetReason()
		}
	}
	return ""
}

// leaks fails the test when the attacker heard of what is not its own.
func (a *attacker) leaks(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, frame := range a.heard {
		if text := frame.String(); strings.Contains(text, secretOfB) {
			t.Errorf("the attacker is told of somebody else's: %.300s", text)
		}
	}
}

func withSecret(app *unstructured.Unstructured) *unstructured.Unstructured {
	app.SetLabels(map[string]string{"secret": secretOfB})
	return app
}

// hostileEvent asks for an object that looks like one of ours.
func hostileEvent(c stream.Collection, verb stream.Verb, namespace, name, uid string) stream.Event {
	e := stream.Event{ID: "x.1", Key: stream.EntryKey{Collection: c, Namespace: namespace, Name: name}, Verb: verb}
	if verb == stream.Apply {
		e.Data = []byte(`{"annotations":{},"labels":{},"spec":{"project":"taken","destination":{},"sourceRepos":["*"]},` +
			`"status":{"sync":{"status":"Synced"}},"operation":{"info":[{"name":"argomesh.io/command","value":"c"}],"sync":{}}}`)
		e.Version = stream.Version{SourceUID: uid, Hash: stream.HashOf(e.Data)}
		e.Revision = 1 << 62
	}
	return e
}

func batchOf(events ...stream.Event) *streampb.Frame {
	return stream.FrameOf(stream.Batch{Events: events})
}

// shapes are objects of whatever may be attacked, with how their states compare.
var shapes = []schema.GroupVersionResource{
	harness.Applications,
	{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"},
	{Version: "v1", Resource: "secrets"}, configMaps, {Version: "v1", Resource: "namespaces"},
}

// states returns the resourceVersion of every object that is not excepted.
func states(t *testing.T, c *harness.ControlPlane, except func(unstructured.Unstructured) bool) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, resource := range shapes {
		list, err := c.Resource(resource, "").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			if !except(o) {
				out[resource.Resource+" "+o.GetNamespace()+"/"+o.GetName()] = string(o.GetUID()) + "@" + o.GetResourceVersion()
			}
		}
	}
	return out
}

// unchanged fails the test when an object was made, changed or removed.
func unchanged(t *testing.T, before, after map[string]string) {
	t.Helper()
	for key, state := range before {
		if after[key] != state {
			t.Errorf("%s was %s and is %q", key, state, after[key])
		}
	}
	for key := range after {
		if _, known := before[key]; !known {
			t.Errorf("%s was made", key)
		}
	}
}

func hostileLeaf(t *testing.T, w *quietWorld, id string) tls.Certificate {
	t.Helper()
	ca, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(trustDomain), CADir: w.h.Path("ca")})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := ca.Sign(devworkload.Leaf{URIs: []string{id}})
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// TestHostileAgent has a registered agent send whatever it is not entitled to. No
// object of the hub that is not its own changes, nothing of another's is told, and
// each answer is of the documented kind (I6, I7).
func TestHostileAgent(t *testing.T) {
	t.Parallel()
	w, ctx := theQuietWorldAlone(t), t.Context()
	// The name of the other begins with the attacker's, and so do its projects'.
	for _, tt := range []struct {
		name string
		mode stream.Mode
	}{{"mal-a", stream.Autonomous}, {"mal-m", stream.Managed}} {
		t.Run(tt.mode.String(), func(t *testing.T) {
			w.settled(t)
			other := w.connect(t, tt.name+"-x", "autonomous")
			theirs := create(t, other.spoke, withSecret(other.application(nameOfB)))
			create(t, other.spoke, withSecret(other.application(secretOfB)))
			projects := schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"}
			project := func(namespace, name string) *unstructured.Unstructured {
				return &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"namespace": namespace, "name": name},
					"spec": map[string]any{"description": secretOfB, "sourceNamespaces": []any{"none"}},
				}}
			}
			create(t, w.spoke.Resource(projects, other.namespace), project(other.namespace, "team"))
			create(t, w.hub.Resource(projects, harness.ArgoCDNamespace), project(harness.ArgoCDNamespace, tt.name+"-of-the-hub"))
			create(t, w.hub.Resource(harness.Applications, harness.ArgoCDNamespace), withSecret(other.application(nameOfB+"-"+tt.name)))
			eventually(t, "the other's mirrors are there", func() error {
				_, err := other.hub.Get(ctx, nameOfB, metav1.GetOptions{})
				_, serr := other.hub.Get(ctx, secretOfB, metav1.GetOptions{})
				_, perr := w.hub.Resource(projects, harness.ArgoCDNamespace).Get(ctx, other.name+"-team", metav1.GetOptions{})
				return errors.Join(err, serr, perr)
			})
			if _, err := w.h.Agentctl(ctx, w.hub, "agent", "create", tt.name, "--mode", tt.mode.String(), "--spiffe-id", idOf(tt.name), "--wait"); err != nil {
				t.Fatal(err)
			}
			own := func(o unstructured.Unstructured) bool {
				return o.GetName() == "argomesh-hub" /* what is left of the budget of all */ || o.GetName() == "argomesh-unknown-ids" /* who knocks once it is revoked */ || o.GetNamespace() == tt.name || o.GetName() == tt.name || o.GetName() == "cluster-"+tt.name ||
					strings.Contains(o.GetAnnotations()["argomesh.io/source"], `"agent":"`+tt.name+`"`)
			}
			before := states(t, w.hub, own)
			check := func(t *testing.T) {
				t.Helper()
				unchanged(t, before, states(t, w.hub, own))
			}
			certificate := hostileLeaf(t, w, idOf(tt.name))
			dial := func(t *testing.T) frames {
				t.Helper()
				cc, err := grpc.NewClient(w.principal.Address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
					MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true, // it is the attacker
				})))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = cc.Close() })
				f, err := streampb.NewStreamClient(cc).Connect(ctx)
				if err != nil {
					t.Fatal(err)
				}
				return f
			}
			send := func(t *testing.T, f frames, frame *streampb.Frame) {
				t.Helper()
				if err := f.Send(frame); err != nil && !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
			}
			name, err := identity.ParseAgentName(tt.name)
			if err != nil {
				t.Fatal(err)
			}
			helloFrame := stream.HelloFrame(stream.Hello{Protocol: stream.Protocol, Agent: name, Mode: tt.mode, ClusterUID: "none"})
			connect := func(t *testing.T) *attacker {
				t.Helper()
				for {
					f := dial(t)
					send(t, f, helloFrame)
					_, err := f.Recv()
					switch status.Code(err) {
					case codes.OK:
						return listen(f)
					case codes.Aborted: // it has begun too often
						continue
					}
					t.Fatal(err)
				}
			}
			violates := func(t *testing.T, err error, want stream.Violation) {
				t.Helper()
				// Which limit it was comes after the kind.
				kind, limit, named := strings.Cut(status.Convert(err).Message(), ": argomesh.stream.v1.")
				if status.Code(err) != codes.InvalidArgument || kind != want.Err().Error() || named && (want != stream.ViolationLimit || limit == "") {
					t.Errorf("the stream ends with %v, want %q", err, want)
				}
			}
			held := stream.Version{SourceUID: string(theirs.GetUID()), Hash: stream.HashOf(nil)}
			var every stream.BucketSet
			for b := range stream.BucketCount {
				every.Add(uint8(b))
			}

			t.Run("events", func(t *testing.T) {
				for _, c := range stream.Collections() {
					for _, verb := range []stream.Verb{stream.Apply, stream.Delete} {
						for _, namespace := range []string{other.name, harness.ArgoCDNamespace, tt.name, "default"} {
							a := connect(t)
							send(t, a, batchOf(hostileEvent(c, verb, namespace, nameOfB, string(theirs.GetUID()))))
							r, err := a.answer(t, "x.1")
							switch {
							case c.Source(tt.mode) != stream.Spoke:
								violates(t, err, stream.ViolationDirection)
							case err != nil || r.GetRefusal().GetKind() != string(stream.RefusalNotOwned):
								t.Errorf("%s of %q in %s is answered by %v, %v", verb, c, namespace, r, err)
							}
							a.leaks(t)
						}
					}
				}
				check(t)
			})
			t.Run("projects that look like its own", func(t *testing.T) {
				if tt.mode != stream.Autonomous {
					t.Skip("a managed agent has no say about projects")
				}
				for _, project := range []string{"x-team", "of-the-hub"} {
					for _, verb := range []stream.Verb{stream.Apply, stream.Delete} {
						a := connect(t)
						send(t, a, batchOf(hostileEvent(stream.AppProjects, verb, "", project, string(theirs.GetUID()))))
						r, err := a.answer(t, "x.1")
						// What it does not hold there is nothing to be removed.
						if want := map[stream.Verb]string{stream.Apply: string(stream.RefusalNotOwned)}[verb]; err != nil || r.GetRefusal().GetKind() != want {
							t.Errorf("%s of project %s is answered by %v, %v, want %q", verb, project, r, err, want)
						}
						a.leaks(t)
					}
				}
				check(t)
			})
			t.Run("names at the limits", func(t *testing.T) {
				long := strings.Repeat("n", 253)
				for _, c := range stream.Collections() {
					if c.Source(tt.mode) != stream.Spoke {
						continue
					}
					a := connect(t)
					send(t, a, batchOf(hostileEvent(c, stream.Delete, "", long, "")))
					if r, err := a.answer(t, "x.1"); err != nil || r.GetRefusal() != nil {
						t.Errorf("the longest name is answered by %v, %v", r, err)
					}
					send(t, a, batchOf(hostileEvent(c, stream.Delete, "", long+"n", "")))
					violates(t, a.end(t), stream.ViolationMalformed)
				}
				check(t)
			})
			t.Run("statuses of another's UID", func(t *testing.T) {
				a := connect(t)
				send(t, a, batchOf(hostileEvent(stream.Statuses, stream.Apply, "", nameOfB, string(theirs.GetUID()))))
				if r, err := a.answer(t, "x.1"); err != nil || r.GetHeld() != nil {
					t.Errorf("it is answered by %v, %v, want nothing held", r, err)
				}
				a.leaks(t)
				check(t)
			})
			t.Run("frames", func(t *testing.T) {
				for _, c := range stream.Collections() {
					of := map[string]*streampb.Frame{
						"buckets":   stream.FrameOf(stream.Buckets{Collection: c, Sums: [stream.BucketCount]stream.Sum{{1}}}),
						"inventory": stream.FrameOf(stream.Inventory{Collection: c, Buckets: every, Entries: []stream.Entry{{Name: nameOfB, Version: held}}}),
						"applied":   stream.FrameOf(stream.Applied{Results: []stream.Result{{Key: stream.EntryKey{Collection: c, Name: nameOfB}, Held: held}}}),
					}
					for kind, frame := range of {
						a := connect(t)
						send(t, a, frame)
						asks, source := kind == "buckets", c.Source(tt.mode)
						if asks == (source == stream.Spoke) && source != 0 {
							// It flows that way: what follows is about the attacker's own.
							if kind == "inventory" {
								violates(t, a.end(t), stream.ViolationOrder)
							} else {
								send(t, a, batchOf(hostileEvent(stream.Statuses, stream.Delete, other.name, nameOfB, "")))
								if _, err := a.answer(t, "x.1"); err != nil {
									t.Errorf("after %s of %q the link ends: %v", kind, c, err)
								}
							}
						} else {
							violates(t, a.end(t), stream.ViolationDirection)
						}
						if kind == "buckets" {
							a.leaks(t)
						}
					}
				}
				for what, row := range map[string]struct {
					frame *streampb.Frame
					want  stream.Violation
				}{
					"hello":      {helloFrame, stream.ViolationOrder},
					"welcome":    {stream.WelcomeFrame(stream.Welcome{HubUID: "h", Connection: "c"}), stream.ViolationOrder},
					"history":    {stream.FrameOf(stream.History{ID: "mine", Token: "t", Revision: 1 << 62}), stream.ViolationDirection},
					"a lie":      {lyingBatch(), stream.ViolationHash},
					"many lists": {stream.FrameOf(stream.Digests{Digests: slices.Repeat([]stream.Digest{{Collection: stream.Commands}}, 65)}), stream.ViolationLimit},
				} {
					a := connect(t)
					send(t, a, row.frame)
					err := a.end(t)
					t.Run(what, func(t *testing.T) { violates(t, err, row.want) })
				}
				check(t)
			})
			t.Run("before hello", func(t *testing.T) {
				for what, frame := range map[string]*streampb.Frame{
					"a batch":   batchOf(hostileEvent(stream.Statuses, stream.Apply, "", nameOfB, "u")),
					"a digest":  stream.FrameOf(stream.Digests{}),
					"a goodbye": stream.FrameOf(stream.Goodbye{Reason: stream.GoodbyeDrain}),
					"a welcome": stream.WelcomeFrame(stream.Welcome{HubUID: "h", Connection: "c"}),
					"nothing":   {},
				} {
					f := dial(t)
					send(t, f, frame)
					_, err := f.Recv()
					t.Run(what, func(t *testing.T) { violates(t, err, stream.ViolationOrder) })
				}
				check(t)
			})
			t.Run("after goodbye", func(t *testing.T) {
				a := connect(t)
				send(t, a, stream.FrameOf(stream.Goodbye{Reason: stream.GoodbyeDrain}))
				send(t, a, batchOf(hostileEvent(stream.Statuses, stream.Apply, "", nameOfB, "u")))
				if err := a.end(t); status.Code(err) != codes.Unavailable {
					t.Errorf("the stream ends with %v", err)
				}
				check(t)
			})
			t.Run("events that nobody knows", func(t *testing.T) {
				a := connect(t)
				f := batchOf(hostileEvent(stream.Statuses, stream.Delete, "", "a", ""), hostileEvent(stream.Statuses, stream.Delete, "", "a", ""))
				f.GetBatch().GetEvents()[0].Id, f.GetBatch().GetEvents()[0].Type = "x.0", "io.argomesh.secret.apply"
				send(t, a, f)
				if r, err := a.answer(t, "x.0"); err != nil || r.GetRefusal().GetKind() != string(stream.RefusalUnsupported) {
					t.Errorf("it is answered by %v, %v", r, err)
				}
				if r, err := a.answer(t, "x.1"); err != nil || r.GetRefusal() != nil {
					t.Errorf("the one beside it is answered by %v, %v", r, err)
				}
			})
			t.Run("what is its own", func(t *testing.T) {
				if tt.mode != stream.Autonomous {
					t.Skip("the hub owns it")
				}
				a := connect(t)
				send(t, a, batchOf(hostileEvent(stream.Applications, stream.Apply, "", "mine", "u")))
				if r, err := a.answer(t, "x.1"); err != nil || r.GetRefusal() != nil {
					t.Fatalf("it is answered by %v, %v", r, err)
				}
				if _, err := w.hub.Resource(harness.Applications, tt.name).Get(ctx, "mine", metav1.GetOptions{}); err != nil {
					t.Error(err)
				}
				check(t)
			})
			t.Run("revoked", func(t *testing.T) {
				registered := w.hub.Resource(agents, harness.ArgoCDNamespace)
				spec := func(field string, value any) func() error {
					return func() error {
						patch(t, registered, tt.name, map[string]any{"spec": map[string]any{field: value}})
						return nil
					}
				}
				ids := func(id string) any { return map[string]any{"spiffeIDs": []any{id}} }
				for _, way := range []struct {
					name         string
					revoke, undo func() error
				}{
					{"suspended", spec("suspended", true), spec("suspended", false)},
					{"without its id", spec("identity", ids(idOf("nobody"))), spec("identity", ids(idOf(tt.name)))},
					{"deleted", func() error { return registered.Delete(ctx, tt.name, metav1.DeleteOptions{}) }, nil},
				} {
					var a *attacker
					eventually(t, "the agent is admitted", func() error {
						f := dial(t)
						send(t, f, helloFrame)
						if _, err := f.Recv(); err != nil {
							return err
						}
						a = listen(f)
						return nil
					})
					began := time.Now()
					if err := way.revoke(); err != nil {
						t.Fatal(err)
					}
					written := time.Now()
					if err := a.end(t); status.Code(err) != codes.PermissionDenied || a.goodbye() != string(stream.GoodbyeRevoked) {
						t.Errorf("%s: the stream ends with %v after goodbye %q", way.name, err, a.goodbye())
					}
					// The target is a second; a busy machine is no reason to fail.
					t.Logf("%s: the stream ended %s after the write began and %s after it returned", way.name, time.Since(began), time.Since(written))
					f := dial(t)
					send(t, f, helloFrame)
					if _, err := f.Recv(); status.Code(err) != codes.PermissionDenied {
						t.Errorf("%s: the next connection ends with %v", way.name, err)
					}
					if way.undo != nil {
						if err := way.undo(); err != nil {
							t.Fatal(err)
						}
					}
				}
				check(t)
			})
		})
	}
}

// lyingBatch has an event whose hash is not that of its data.
func lyingBatch() *streampb.Frame {
	e := hostileEvent(stream.Statuses, stream.Apply, "", "a", "u")
	e.Version.Hash[0]++
	return batchOf(e)
}

// hostilePrincipal hands out the streams of whoever connects.
type hostilePrincipal struct {
	streampb.UnimplementedStreamServer
	streams chan *attacker
}

func (p *hostilePrincipal) Connect(g grpc.BidiStreamingServer[streampb.Frame, streampb.Frame]) error {
	h, err := g.Recv()
	if err != nil {
		return err
	}
	name, err := identity.ParseAgentName(h.GetHello().GetAgent())
	if err != nil {
		return err
	}
	if err := g.Send(stream.WelcomeFrame(stream.Welcome{Protocol: stream.Protocol, Agent: name, HubUID: "hostile", Connection: fmt.Sprint(time.Now().UnixNano())})); err != nil {
		return err
	}
	a := listen(g)
	select {
	case p.streams <- a:
	case <-g.Context().Done():
	}
	<-a.over
	return nil
}

// TestHostilePrincipal has whoever holds the principal's identity ask an agent for
// what is not in the agent's namespace.
func TestHostilePrincipal(t *testing.T) {
	t.Parallel()
	w, ctx := theQuietWorld(t), t.Context()
	const name, victims = "mal-p", "victims"
	if err := errors.Join(w.spoke.EnsureNamespace(ctx, name), w.spoke.EnsureNamespace(ctx, victims)); err != nil {
		t.Fatal(err)
	}
	victim := create(t, w.spoke.Resource(harness.Applications, victims), withSecret((&remote{w: w, name: name, mode: "autonomous"}).application(nameOfB)))
	p := &hostilePrincipal{streams: make(chan *attacker)}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{hostileLeaf(t, w, principalID)}, ClientAuth: tls.RequireAnyClientCert,
	})))
	streampb.RegisterStreamServer(server, p)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	api, err := w.identify(ctx, idOf(name))
	if err != nil {
		t.Fatal(err)
	}
	agent, err := w.h.StartAgent(ctx, harness.AgentConfig{
		Name: name, Mode: "managed", ControlPlane: w.spoke, WorkloadAPI: api,
		PrincipalAddress: l.Addr().String(), PrincipalIDs: []string{principalID}, Settings: harness.Settings{"namespace": name},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := agent.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	next := func() *attacker {
		t.Helper()
		select {
		case a := <-p.streams:
			return a
		case <-time.After(patience):
			t.Fatal("the agent does not connect")
		}
		return nil
	}
	own := func(o unstructured.Unstructured) bool { return o.GetNamespace() != victims }
	before := states(t, w.spoke, own)
	a := next()
	n := 0
	for _, c := range []stream.Collection{stream.Applications, stream.AppProjects, stream.Commands} {
		for _, verb := range []stream.Verb{stream.Apply, stream.Delete} {
			for _, namespace := range []string{victims, "default", "kube-system", name} {
				n++
				e := hostileEvent(c, verb, namespace, nameOfB, string(victim.GetUID()))
				e.ID = fmt.Sprint("x.", n)
				if err := a.Send(batchOf(e)); err != nil {
					t.Fatal(err)
				}
				want := stream.RefusalDenied // by mapping.namespaces of the spoke
				if namespace == name {
					want = stream.RefusalNotOwned // the link calls it by no name
				}
				if r, err := a.answer(t, e.ID); err != nil || r.GetRefusal().GetKind() != string(want) {
					t.Errorf("%s of %q in %s is answered by %v, %v", verb, c, namespace, r, err)
				}
			}
		}
	}
	// Its own namespace it may use, with an AppProject of its own.
	for _, own := range []stream.EntryKey{{Collection: stream.AppProjects, Name: "taken"}, {Collection: stream.Applications, Name: "ordered"}} {
		e := hostileEvent(own.Collection, stream.Apply, "", own.Name, "u-"+own.Name)
		e.ID = "x.own-" + own.Name
		if own.Collection == stream.AppProjects {
			e.Data = []byte(`{"annotations":{},"labels":{},"spec":{"sourceRepos":["*"],"destinations":[{"server":"*","namespace":"*"}]}}`)
			e.Version.Hash = stream.HashOf(e.Data)
		}
		if err := a.Send(batchOf(e)); err != nil {
			t.Fatal(err)
		}
		r, err := a.answer(t, e.ID)
		if err == nil && r.GetRefusal().GetAwaits() != "" { // the agent has yet to see the project that it made
			if _, err := a.result(t, "a second chance for "+own.String(), func(r *streampb.Result) bool {
				return r.GetRetry() && r.GetName() == own.Name && r.GetEvent() == ""
			}); err != nil {
				t.Fatal(err)
			}
			e.ID += "-again"
			if err := a.Send(batchOf(e)); err != nil {
				t.Fatal(err)
			}
			r, err = a.answer(t, e.ID)
		}
		if err != nil || r.GetRefusal() != nil {
			t.Errorf("%s in its namespace is answered by %v, %v", own, r, err)
		}
	}
	a.leaks(t)
	// What flows the other way ends the connection, and the next one comes later.
	began := time.Now()
	if err := a.Send(stream.FrameOf(stream.SpokeInfo{Applications: 1})); err != nil {
		t.Fatal(err)
	}
	if err := a.end(t); a.goodbye() != string(stream.GoodbyeProtocol) {
		t.Errorf("the agent ends with %v after goodbye %q, want %q", err, a.goodbye(), stream.GoodbyeProtocol)
	}
	next()
	const longest = 7 * time.Second // call.BackOff's
	if pause := time.Since(began); pause < longest/4 {
		t.Errorf("the agent comes again after %s, want at least a quarter of its longest pause", pause)
	}
	unchanged(t, before, states(t, w.spoke, own))
}

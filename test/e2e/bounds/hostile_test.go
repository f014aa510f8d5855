//go:build linux

package bounds

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/kit"
)

// nameOfB is the name of an object that is not the attacker's, which it guesses;
// secretOfB is in all such objects, and it cannot know it.
const (
	nameOfB = "name-of-b"
)

// TestHostileAgent has a registered agent send whatever it is not entitled to. No
// object of the hub that is not its own changes, nothing of another's is told, and
// each answer is of the documented kind (I6, I7).
func TestHostileAgent(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnBare(t), t.Context()
	// The name of the other begins with the attacker's, and so do its projects'.
	for _, tt := range []struct {
		name string
		mode stream.Mode
	}{{"mal-a", stream.Autonomous}, {"mal-m", stream.Managed}} {
		t.Run(tt.mode.String(), func(t *testing.T) {
			w.Settled(t)
			other := w.Connect(t, tt.name+"-x", "autonomous")
			theirs := env.Create(t, other.Spoke, env.WithSecret(other.Application(nameOfB)))
			env.Create(t, other.Spoke, env.WithSecret(other.Application(env.SecretOfB)))
			projects := schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"}
			project := func(namespace, name string) *unstructured.Unstructured {
				return &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"namespace": namespace, "name": name},
					"spec": map[string]any{"description": env.SecretOfB, "sourceNamespaces": []any{"none"}},
				}}
			}
			env.Create(t, w.Spoke.Resource(projects, other.Namespace), project(other.Namespace, "team"))
			env.Create(t, w.Hub.Resource(projects, harness.ArgoCDNamespace), project(harness.ArgoCDNamespace, tt.name+"-of-the-hub"))
			env.Create(t, w.Hub.Resource(harness.Applications, harness.ArgoCDNamespace), env.WithSecret(other.Application(nameOfB+"-"+tt.name)))
			env.Eventually(t, "the other's mirrors are there", func() error {
				_, err := other.Hub.Get(ctx, nameOfB, metav1.GetOptions{})
				_, serr := other.Hub.Get(ctx, env.SecretOfB, metav1.GetOptions{})
				_, perr := w.Hub.Resource(projects, harness.ArgoCDNamespace).Get(ctx, other.Name+"-team", metav1.GetOptions{})
				return errors.Join(err, serr, perr)
			})
			if _, err := w.Harness.Agentctl(ctx, w.Hub, "agent", "create", tt.name, "--mode", tt.mode.String(), "--spiffe-id", env.SPIFFEID(tt.name), "--wait"); err != nil {
				t.Fatal(err)
			}
			own := func(o unstructured.Unstructured) bool {
				return o.GetName() == "argomesh-hub" /* what is left of the budget of all */ || o.GetName() == "argomesh-unknown-ids" /* who knocks once it is revoked */ || o.GetNamespace() == tt.name || o.GetName() == tt.name || o.GetName() == "cluster-"+tt.name ||
					strings.Contains(o.GetAnnotations()["argomesh.io/source"], `"agent":"`+tt.name+`"`)
			}
			before := env.ResourceVersions(t, w.Hub, own)
			check := func(t *testing.T) {
				t.Helper()
				env.Unchanged(t, before, env.ResourceVersions(t, w.Hub, own))
			}
			certificate := env.HostileLeaf(t, w, env.SPIFFEID(tt.name))
			dial := func(t *testing.T) env.Frames {
				t.Helper()
				cc, err := grpc.NewClient(w.Principal.Address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
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
			send := func(t *testing.T, f env.Frames, frame *streampb.Frame) {
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
			connect := func(t *testing.T) *env.Attacker {
				t.Helper()
				for {
					f := dial(t)
					send(t, f, helloFrame)
					_, err := f.Recv()
					switch status.Code(err) {
					case codes.OK:
						return env.Listen(f)
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
						for _, namespace := range []string{other.Name, harness.ArgoCDNamespace, tt.name, "default"} {
							a := connect(t)
							send(t, a, env.BatchOf(env.HostileEvent(c, verb, namespace, nameOfB, string(theirs.GetUID()))))
							r, err := a.Answer(t, "x.1")
							switch {
							case c.Source(tt.mode) != stream.Spoke:
								violates(t, err, stream.ViolationDirection)
							case err != nil || r.GetRefusal().GetKind() != string(stream.RefusalNotOwned):
								t.Errorf("%s of %q in %s is answered by %v, %v", verb, c, namespace, r, err)
							}
							a.Leaks(t)
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
						send(t, a, env.BatchOf(env.HostileEvent(stream.AppProjects, verb, "", project, string(theirs.GetUID()))))
						r, err := a.Answer(t, "x.1")
						// What it does not hold there is nothing to be removed.
						if want := map[stream.Verb]string{stream.Apply: string(stream.RefusalNotOwned)}[verb]; err != nil || r.GetRefusal().GetKind() != want {
							t.Errorf("%s of project %s is answered by %v, %v, want %q", verb, project, r, err, want)
						}
						a.Leaks(t)
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
					send(t, a, env.BatchOf(env.HostileEvent(c, stream.Delete, "", long, "")))
					if r, err := a.Answer(t, "x.1"); err != nil || r.GetRefusal() != nil {
						t.Errorf("the longest name is answered by %v, %v", r, err)
					}
					send(t, a, env.BatchOf(env.HostileEvent(c, stream.Delete, "", long+"n", "")))
					violates(t, a.End(t), stream.ViolationMalformed)
				}
				check(t)
			})
			t.Run("statuses of another's UID", func(t *testing.T) {
				a := connect(t)
				send(t, a, env.BatchOf(env.HostileEvent(stream.Statuses, stream.Apply, "", nameOfB, string(theirs.GetUID()))))
				if r, err := a.Answer(t, "x.1"); err != nil || r.GetHeld() != nil {
					t.Errorf("it is answered by %v, %v, want nothing held", r, err)
				}
				a.Leaks(t)
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
								violates(t, a.End(t), stream.ViolationOrder)
							} else {
								send(t, a, env.BatchOf(env.HostileEvent(stream.Statuses, stream.Delete, other.Name, nameOfB, "")))
								if _, err := a.Answer(t, "x.1"); err != nil {
									t.Errorf("after %s of %q the link ends: %v", kind, c, err)
								}
							}
						} else {
							violates(t, a.End(t), stream.ViolationDirection)
						}
						if kind == "buckets" {
							a.Leaks(t)
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
					err := a.End(t)
					t.Run(what, func(t *testing.T) { violates(t, err, row.want) })
				}
				check(t)
			})
			t.Run("before hello", func(t *testing.T) {
				for what, frame := range map[string]*streampb.Frame{
					"a batch":   env.BatchOf(env.HostileEvent(stream.Statuses, stream.Apply, "", nameOfB, "u")),
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
				send(t, a, env.BatchOf(env.HostileEvent(stream.Statuses, stream.Apply, "", nameOfB, "u")))
				if err := a.End(t); status.Code(err) != codes.Unavailable {
					t.Errorf("the stream ends with %v", err)
				}
				check(t)
			})
			t.Run("events that nobody knows", func(t *testing.T) {
				a := connect(t)
				f := env.BatchOf(env.HostileEvent(stream.Statuses, stream.Delete, "", "a", ""), env.HostileEvent(stream.Statuses, stream.Delete, "", "a", ""))
				f.GetBatch().GetEvents()[0].Id, f.GetBatch().GetEvents()[0].Type = "x.0", "io.argomesh.secret.apply"
				send(t, a, f)
				if r, err := a.Answer(t, "x.0"); err != nil || r.GetRefusal().GetKind() != string(stream.RefusalUnsupported) {
					t.Errorf("it is answered by %v, %v", r, err)
				}
				if r, err := a.Answer(t, "x.1"); err != nil || r.GetRefusal() != nil {
					t.Errorf("the one beside it is answered by %v, %v", r, err)
				}
			})
			t.Run("what is its own", func(t *testing.T) {
				if tt.mode != stream.Autonomous {
					t.Skip("the hub owns it")
				}
				a := connect(t)
				send(t, a, env.BatchOf(env.HostileEvent(stream.Applications, stream.Apply, "", "mine", "u")))
				if r, err := a.Answer(t, "x.1"); err != nil || r.GetRefusal() != nil {
					t.Fatalf("it is answered by %v, %v", r, err)
				}
				if _, err := w.Hub.Resource(harness.Applications, tt.name).Get(ctx, "mine", metav1.GetOptions{}); err != nil {
					t.Error(err)
				}
				check(t)
			})
			t.Run("revoked", func(t *testing.T) {
				registered := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace)
				spec := func(field string, value any) func() error {
					return func() error {
						env.Patch(t, registered, tt.name, map[string]any{"spec": map[string]any{field: value}})
						return nil
					}
				}
				ids := func(id string) any { return map[string]any{"spiffeIDs": []any{id}} }
				for _, way := range []struct {
					name         string
					revoke, undo func() error
				}{
					{"suspended", spec("suspended", true), spec("suspended", false)},
					{"without its id", spec("identity", ids(env.SPIFFEID("nobody"))), spec("identity", ids(env.SPIFFEID(tt.name)))},
					{"deleted", func() error { return registered.Delete(ctx, tt.name, metav1.DeleteOptions{}) }, nil},
				} {
					var a *env.Attacker
					env.Eventually(t, "the agent is admitted", func() error {
						f := dial(t)
						send(t, f, helloFrame)
						if _, err := f.Recv(); err != nil {
							return err
						}
						a = env.Listen(f)
						return nil
					})
					began := time.Now()
					if err := way.revoke(); err != nil {
						t.Fatal(err)
					}
					written := time.Now()
					if err := a.End(t); status.Code(err) != codes.PermissionDenied || a.Goodbye() != string(stream.GoodbyeRevoked) {
						t.Errorf("%s: the stream ends with %v after goodbye %q", way.name, err, a.Goodbye())
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
	e := env.HostileEvent(stream.Statuses, stream.Apply, "", "a", "u")
	e.Version.Hash[0]++
	return env.BatchOf(e)
}

// hostilePrincipal hands out the streams of anyone who connects.
type hostilePrincipal struct {
	streampb.UnimplementedStreamServer
	streams chan *env.Attacker
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
	a := env.Listen(g)
	select {
	case p.streams <- a:
	case <-g.Context().Done():
	}
	<-a.Over
	return nil
}

// TestHostilePrincipal has anyone who holds the principal's identity ask an agent for
// what is not in the agent's namespace.
func TestHostilePrincipal(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	const name, victims = "mal-p", "victims"
	if err := errors.Join(w.Spoke.EnsureNamespace(ctx, name), w.Spoke.EnsureNamespace(ctx, victims)); err != nil {
		t.Fatal(err)
	}
	victim := env.Create(t, w.Spoke.Resource(harness.Applications, victims), env.WithSecret((&env.BareAgent{Env: w, Name: name, Mode: "autonomous"}).Application(nameOfB)))
	p := &hostilePrincipal{streams: make(chan *env.Attacker)}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{env.HostileLeaf(t, w, env.PrincipalID)}, ClientAuth: tls.RequireAnyClientCert,
	})))
	streampb.RegisterStreamServer(server, p)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	kit.Serve(t, server, l)
	api, err := w.Identify(ctx, env.SPIFFEID(name))
	if err != nil {
		t.Fatal(err)
	}
	agent, err := w.Harness.StartAgent(ctx, harness.AgentConfig{
		Name: name, Mode: "managed", ControlPlane: w.Spoke, WorkloadAPI: api,
		PrincipalAddress: l.Addr().String(), PrincipalIDs: []string{env.PrincipalID}, Settings: harness.Settings{"namespace": name},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := agent.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	next := func() *env.Attacker {
		t.Helper()
		select {
		case a := <-p.streams:
			return a
		case <-time.After(env.Patience):
			t.Fatal("the agent does not connect")
		}
		return nil
	}
	own := func(o unstructured.Unstructured) bool { return o.GetNamespace() != victims }
	before := env.ResourceVersions(t, w.Spoke, own)
	a := next()
	n := 0
	for _, c := range []stream.Collection{stream.Applications, stream.AppProjects, stream.Commands} {
		for _, verb := range []stream.Verb{stream.Apply, stream.Delete} {
			for _, namespace := range []string{victims, "default", "kube-system", name} {
				n++
				e := env.HostileEvent(c, verb, namespace, nameOfB, string(victim.GetUID()))
				e.ID = fmt.Sprint("x.", n)
				if err := a.Send(env.BatchOf(e)); err != nil {
					t.Fatal(err)
				}
				want := stream.RefusalDenied // by mapping.namespaces of the spoke
				if namespace == name {
					want = stream.RefusalNotOwned // the link calls it by no name
				}
				if r, err := a.Answer(t, e.ID); err != nil || r.GetRefusal().GetKind() != string(want) {
					t.Errorf("%s of %q in %s is answered by %v, %v", verb, c, namespace, r, err)
				}
			}
		}
	}
	// Its own namespace it may use, with an AppProject of its own.
	for _, own := range []stream.EntryKey{{Collection: stream.AppProjects, Name: "taken"}, {Collection: stream.Applications, Name: "ordered"}} {
		e := env.HostileEvent(own.Collection, stream.Apply, "", own.Name, "u-"+own.Name)
		e.ID = "x.own-" + own.Name
		if own.Collection == stream.AppProjects {
			e.Data = []byte(`{"annotations":{},"labels":{},"spec":{"sourceRepos":["*"],"destinations":[{"server":"*","namespace":"*"}]}}`)
			e.Version.Hash = stream.HashOf(e.Data)
		}
		if err := a.Send(env.BatchOf(e)); err != nil {
			t.Fatal(err)
		}
		r, err := a.Answer(t, e.ID)
		if err == nil && r.GetRefusal().GetAwaits() != "" { // the agent has yet to see the project that it made
			if _, err := a.Result(t, "a second chance for "+own.String(), func(r *streampb.Result) bool {
				return r.GetRetry() && r.GetName() == own.Name && r.GetEvent() == ""
			}); err != nil {
				t.Fatal(err)
			}
			e.ID += "-again"
			if err := a.Send(env.BatchOf(e)); err != nil {
				t.Fatal(err)
			}
			r, err = a.Answer(t, e.ID)
		}
		if err != nil || r.GetRefusal() != nil {
			t.Errorf("%s in its namespace is answered by %v, %v", own, r, err)
		}
	}
	a.Leaks(t)
	// What flows the other way ends the connection, and the next one comes later.
	began := time.Now()
	if err := a.Send(stream.FrameOf(stream.SpokeInfo{Applications: 1})); err != nil {
		t.Fatal(err)
	}
	if err := a.End(t); a.Goodbye() != string(stream.GoodbyeProtocol) {
		t.Errorf("the agent ends with %v after goodbye %q, want %q", err, a.Goodbye(), stream.GoodbyeProtocol)
	}
	next()
	const longest = 7 * time.Second // call.BackOff's
	if pause := time.Since(began); pause < longest/4 {
		t.Errorf("the agent comes again after %s, want at least a quarter of its longest pause", pause)
	}
	env.Unchanged(t, before, env.ResourceVersions(t, w.Spoke, own))
}

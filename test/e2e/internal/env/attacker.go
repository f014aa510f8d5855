//go:build linux

package env

import (
	"crypto/tls"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/harness"
)

// SecretOfB is a label of what an attacker must not hear of.
const SecretOfB = "secret-of-b"

// Frames is either end of an open stream.
type Frames interface {
	Send(*streampb.Frame) error
	Recv() (*streampb.Frame, error)
}

// Attacker is a peer with a good identity that keeps to no rule. Methods may be
// called concurrently.
type Attacker struct {
	Frames
	Over chan struct{} // closed when the stream has ended

	mu    sync.Mutex // guards what follows
	heard []*streampb.Frame
	err   error // of the end
	next  chan struct{}
}

// Listen keeps all that the attacked side says.
func Listen(f Frames) *Attacker {
	a := &Attacker{Frames: f, Over: make(chan struct{}), next: make(chan struct{})}
	go func() {
		defer close(a.Over)
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

// Answer waits for the answer to an event, or for the end of the stream.
func (a *Attacker) Answer(t *testing.T, event string) (*streampb.Result, error) {
	t.Helper()
	return a.Result(t, "an answer to event "+event, func(r *streampb.Result) bool { return r.GetEvent() == event })
}

// Result waits for the first result that is wanted.
func (a *Attacker) Result(t *testing.T, what string, wanted func(*streampb.Result) bool) (*streampb.Result, error) {
	t.Helper()
	patience := time.NewTimer(Patience)
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

// End waits for the end of the stream.
func (a *Attacker) End(t *testing.T) error {
	t.Helper()
	select {
	case <-a.Over:
	case <-time.After(Patience):
		t.Fatal("the stream goes on")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// Goodbye is the reason with which the attacked side ended the stream.
func (a *Attacker) Goodbye() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, frame := range a.heard {
		if bye := frame.GetGoodbye(); bye != nil {
			return bye.GetReason()
		}
	}
	return ""
}

// Leaks fails the test when the attacker heard of what is not its own.
func (a *Attacker) Leaks(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, frame := range a.heard {
		if text := frame.String(); strings.Contains(text, SecretOfB) {
			t.Errorf("the attacker is told of another's: %.300s", text)
		}
	}
}

// WithSecret labels an Application with SecretOfB.
func WithSecret(app *unstructured.Unstructured) *unstructured.Unstructured {
	app.SetLabels(map[string]string{"secret": SecretOfB})
	return app
}

// HostileEvent asks for an object that looks like one of ours.
func HostileEvent(c stream.Collection, verb stream.Verb, namespace, name, uid string) stream.Event {
	e := stream.Event{ID: "x.1", Key: stream.EntryKey{Collection: c, Namespace: namespace, Name: name}, Verb: verb}
	if verb == stream.Apply {
		e.Data = []byte(`{"annotations":{},"labels":{},"spec":{"project":"taken","destination":{},"sourceRepos":["*"]},` +
			`"status":{"sync":{"status":"Synced"}},"operation":{"info":[{"name":"argomesh.io/command","value":"c"}],"sync":{}}}`)
		e.Version = stream.Version{SourceUID: uid, Hash: stream.HashOf(e.Data)}
		e.Revision = 1 << 62
	}
	return e
}

// BatchOf is a frame with events.
func BatchOf(events ...stream.Event) *streampb.Frame {
	return stream.FrameOf(stream.Batch{Events: events})
}

// shapes are objects of whatever may be attacked, with how their states compare.
var shapes = []schema.GroupVersionResource{
	harness.Applications,
	{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"},
	{Version: "v1", Resource: "secrets"}, ConfigMaps, {Version: "v1", Resource: "namespaces"},
}

// ResourceVersions returns the resourceVersion of every object that is not excepted.
func ResourceVersions(t *testing.T, c *harness.ControlPlane, except func(unstructured.Unstructured) bool) map[string]string {
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

// Unchanged fails the test when an object was made, changed or removed.
func Unchanged(t *testing.T, before, after map[string]string) {
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

// HostileLeaf signs an SVID of any SPIFFE ID.
func HostileLeaf(t *testing.T, w *Bare, id string) tls.Certificate {
	t.Helper()
	ca, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(TrustDomain), CADir: w.CADir})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := ca.Sign(devworkload.Leaf{URIs: []string{id}})
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

package meshpolicy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh/objects"
	"github.com/argomesh/argomesh/test/kit"
)

func TestConditionOf(t *testing.T) {
	edge := kit.Agent(t, "edge-1")
	agent := &v1alpha1.Agent{Spec: v1alpha1.AgentSpec{Identity: v1alpha1.AgentIdentity{SPIFFEIDs: []string{"spiffe://hub.test/edge-1"}}}}
	agent.Generation = 7
	own := objects.Difference{Text: "P does not admit hub.test/edge-1, and should.", About: "hub.test/edge-1"}
	other := objects.Difference{Text: "P does not admit hub.test/edge-10, and should.", About: "hub.test/edge-10"}
	general := objects.Difference{Text: "S is missing."}
	for title, tt := range map[string]struct {
		findings []finding
		reason   string // empty: all is well
		message  string
	}{
		"as it should be":      {[]finding{{}, {}}, "", ""},
		"what is of others":    {[]finding{{differences: []objects.Difference{other}}}, "", ""},
		"its own comes first":  {[]finding{{differences: []objects.Difference{general, other}}, {differences: []objects.Difference{own}}}, "Differs", own.Text + " " + general.Text},
		"another is refused":   {[]finding{{refused: map[identity.AgentName]error{kit.Agent(t, "edge-2"): errors.New("no")}}}, "", ""},
		"it is refused":        {[]finding{{refused: map[identity.AgentName]error{edge: errors.New("no")}, differences: []objects.Difference{general}}}, "Refused", "no " + general.Text},
		"they cannot be read":  {[]finding{{err: errors.Join(errors.New("a"), errors.New("b"))}, {differences: []objects.Difference{own}}}, "Failed", "a; b " + own.Text},
		"refused and not read": {[]finding{{err: errors.New("a")}, {refused: map[identity.AgentName]error{edge: errors.New("no")}}}, "Refused", "no a"},
	} {
		t.Run(title, func(t *testing.T) {
			want := metav1.Condition{Type: "MeshPolicy", Status: metav1.ConditionTrue, Reason: "AsExpected", ObservedGeneration: 7}
			if tt.reason != "" {
				want.Status, want.Reason, want.Message = metav1.ConditionFalse, tt.reason, tt.message
			}
			if diff := cmp.Diff(want, conditionOf(edge, agent, tt.findings)); diff != "" {
				t.Errorf("conditionOf() (-want +got):\n%s", diff)
			}
		})
	}
}

// A message is bounded, whatever there is to say, and says that there is more.
func TestMessageIsBounded(t *testing.T) {
	long := strings.Repeat("ä", maxMessageBytes)
	for title, tt := range map[string]struct {
		sentences []string
		more      string // empty: all are there
	}{
		"what just fits":       {[]string{strings.Repeat("x", maxMessageBytes-100)}, ""},
		"one that does not":    {[]string{long}, "And 1 more: agentctl mesh verify."},
		"many":                 {slices.Repeat([]string{"twenty bytes, a word"}, 1000), "more: agentctl mesh verify."},
		"a short and a long":   {[]string{"short.", long, "short."}, "And 2 more: agentctl mesh verify."},
		"two that fit exactly": {[]string{"a.", "b."}, ""},
	} {
		t.Run(title, func(t *testing.T) {
			got := message(tt.sentences)
			if len(got) > maxMessageBytes {
				t.Errorf("it has %d bytes, at most %d are allowed", len(got), maxMessageBytes)
			}
			if got != strings.ToValidUTF8(got, "") {
				t.Error("a rune is cut in two")
			}
			if tt.more == "" && got != strings.Join(tt.sentences, " ") || !strings.HasSuffix(got, tt.more) {
				t.Errorf("message() = %q", got)
			}
		})
	}
}

// One agent that the mesh cannot keep does not stop the others.
func TestRenderLeavesOutWhoIsRefused(t *testing.T) {
	id := spiffeid.RequireFromString
	good, bad, worse := kit.Agent(t, "good"), kit.Agent(t, "bad"), kit.Agent(t, "worse")
	admitted := map[identity.AgentName][]spiffeid.ID{good: {id("spiffe://a/good")}, bad: {id("spiffe://a/bad")}, worse: {id("spiffe://a/bad-too")}}
	part := Part{Render: func(agents map[identity.AgentName][]spiffeid.ID) ([]*unstructured.Unstructured, error) {
		var problems []error
		var names []string
		for n, ids := range agents {
			names = append(names, n.String())
			if strings.Contains(ids[0].Path(), "bad") {
				problems = append(problems, fmt.Errorf("%s cannot be kept", ids[0]))
			}
		}
		slices.Sort(names)
		return []*unstructured.Unstructured{{Object: map[string]any{"who": strings.Join(names, " ")}}}, errors.Join(problems...)
	}}
	who := func(t *testing.T, agents map[identity.AgentName][]spiffeid.ID) (string, []string) {
		t.Helper()
		want, refused, err := render(part, agents)
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for n, why := range refused {
			left = append(left, n.String()+": "+why.Error())
		}
		slices.Sort(left)
		return fmt.Sprint(want[0].Object["who"]), left
	}
	got, left := who(t, admitted)
	if want := []string{"bad: spiffe://a/bad cannot be kept", "worse: spiffe://a/bad-too cannot be kept"}; got != "good" || !slices.Equal(left, want) {
		t.Errorf("render() = %q without %q", got, left)
	}
	only := maps.Clone(admitted)
	delete(only, good)
	if got, left := who(t, only); got != "" || len(left) != 2 {
		t.Errorf("render() of none that can be kept = %q without %q", got, left)
	}
	if got, left := who(t, map[identity.AgentName][]spiffeid.ID{good: admitted[good]}); got != "good" || len(left) != 0 {
		t.Errorf("render() = %q without %q", got, left)
	}
	// What is no one's fault is told, and nothing is rendered.
	tooLarge := Part{Render: func(agents map[identity.AgentName][]spiffeid.ID) ([]*unstructured.Unstructured, error) {
		if len(agents) > 1 {
			return nil, errors.New("too large")
		}
		return nil, nil
	}}
	if want, refused, err := render(tooLarge, admitted); err == nil || want != nil || refused != nil {
		t.Errorf("render() of too many = %v, %v, %v", want, refused, err)
	}
	broken := Part{Render: func(map[identity.AgentName][]spiffeid.ID) ([]*unstructured.Unstructured, error) {
		return nil, errors.New("broken")
	}}
	if want, refused, err := render(broken, admitted); err == nil || want != nil || refused != nil {
		t.Errorf("render() of what never works = %v, %v, %v", want, refused, err)
	}
}

// What we made counts as there until its cache shows it, or that it went: someone may
// delete it before a pass has looked.
func TestHaveBeforeTheShelf(t *testing.T) {
	object := func(uid string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "networking.istio.io/v1", "kind": "Sidecar"}}
		o.SetNamespace("argocd")
		o.SetName("argomesh-principal")
		o.SetUID(types.UID(uid))
		o.SetResourceVersion("7")
		return o
	}
	for name, test := range map[string]struct {
		cache  func(*objectCache) error
		after  time.Duration
		want   []string
		again  time.Duration
		unseen bool
	}{
		"not shown":                {after: 2 * time.Second, want: []string{"ours"}, again: maxUnconfirmed - 2*time.Second, unseen: true},
		"not shown for long":       {after: maxUnconfirmed},
		"shown":                    {cache: func(s *objectCache) error { return s.Add(object("ours")) }, want: []string{"ours"}},
		"shown, and gone":          {cache: func(s *objectCache) error { return errors.Join(s.Add(object("ours")), s.Delete(object("ours"))) }},
		"one before it gone":       {cache: func(s *objectCache) error { return s.Delete(object("before")) }, want: []string{"ours"}, again: maxUnconfirmed, unseen: true},
		"another one in its place": {cache: func(s *objectCache) error { return s.Add(object("theirs")) }, want: []string{"theirs"}},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1_800_000_000, 0)
			s := newObjectCache(dynamic.NewForConfigOrDie(&rest.Config{Host: "127.0.0.1:1"}), objects.Scope{}, func() {}, zerolog.Nop())
			if err := s.Replace(nil, ""); err != nil { // listed
				t.Fatal(err)
			}
			ours := &written{reply: object("ours"), at: now, unconfirmed: true}
			k := &partReconciler{caches: []*objectCache{s}, written: map[string]*written{objects.Name(ours.reply): ours}, deleted: map[types.UID]bool{}}
			if test.cache != nil {
				if err := test.cache(s); err != nil {
					t.Fatal(err)
				}
			}
			all, again, known, err := k.have(now.Add(test.after))
			var got []string
			for _, o := range all {
				got = append(got, string(o.GetUID()))
			}
			if err != nil || !known || !slices.Equal(got, test.want) || again != test.again || ours.unconfirmed != test.unseen {
				t.Errorf("have() = %q, %s, %t, %v, unseen %t; want %q, %s, unseen %t", got, again, known, err, ours.unconfirmed, test.want, test.again, test.unseen)
			}
		})
	}
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	_, err := New(Config{Parts: []Part{{Name: "istio"}}})
	for _, want := range []string{"client", "namespace", "registry", "metrics", `part "istio"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New() = %v, want an error about %s", err, want)
		}
	}
}

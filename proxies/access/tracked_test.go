package access_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/proxies/access"
)

func object(apiVersion, kind, namespace, name, trackingID string, owners ...string) *metav1.PartialObjectMetadata {
	out := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)},
	}
	if trackingID != "" {
		out.Annotations = map[string]string{access.TrackingAnnotation: trackingID}
	}
	for _, owner := range owners {
		out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{Kind: "Any", Name: owner, UID: types.UID("uid-" + owner)})
	}
	return out
}

func TestTracks(t *testing.T) {
	labelled := object("v1", "Service", "web", "shop", "")
	labelled.Labels = map[string]string{"app.kubernetes.io/instance": "shop"}
	tests := map[string]struct {
		object *metav1.PartialObjectMetadata
		label  string
		want   bool
	}{
		"nothing":                    {object("v1", "Service", "web", "shop", ""), "", false},
		"by annotation":              {object("apps/v1", "Deployment", "web", "shop", "shop:apps/Deployment:web/shop"), "", true},
		"of the core group":          {object("v1", "Service", "web", "shop", "shop:/Service:web/shop"), "", true},
		"in another app's namespace": {object("v1", "Service", "web", "shop", "team_shop:/Service:web/shop"), "", true},
		"a name with a colon":        {object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "a:b", "shop:rbac.authorization.k8s.io/ClusterRole:web/a:b"), "", true},
		"without a namespace":        {object("v1", "Namespace", "", "web", "shop:/Namespace:anything/web"), "", true},
		"a copied annotation":        {object("apps/v1", "ReplicaSet", "web", "shop-1", "shop:apps/Deployment:web/shop"), "", false},
		"copied to another name":     {object("v1", "Service", "web", "shop2", "shop:/Service:web/shop"), "", false},
		"copied to another space":    {object("v1", "Service", "api", "shop", "shop:/Service:web/shop"), "", false},
		"copied to another group":    {object("extensions/v1beta1", "Deployment", "web", "shop", "shop:apps/Deployment:web/shop"), "", false},
		"of no application":          {object("v1", "Service", "web", "shop", ":/Service:web/shop"), "", false},
		"not an id":                  {object("v1", "Service", "web", "shop", "shop"), "", false},
		"half an id":                 {object("v1", "Service", "web", "shop", "shop:/Service"), "", false},
		"a label nobody asked for":   {labelled, "", false},
		"by label":                   {labelled, "app.kubernetes.io/instance", true},
		"by another label":           {labelled, "argocd.argoproj.io/instance", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := access.Tracks(tt.object, tt.label); got != tt.want {
				t.Errorf("Tracks() = %v, want %v", got, tt.want)
			}
		})
	}
}

// memory has objects by name, and counts how often it is asked.
type memory struct {
	objects map[string]*metav1.PartialObjectMetadata
	broken  map[string]error
	asked   int
	last    types.NamespacedName
}

func (m *memory) Object(_ context.Context, resource schema.GroupVersionResource, name types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	m.last = name
	return m.get(resource.GroupResource(), name.Name)
}

func (m *memory) Owner(_ context.Context, _ string, reference metav1.OwnerReference) (*metav1.PartialObjectMetadata, error) {
	return m.get(schema.GroupResource{Resource: "any"}, reference.Name)
}

func (m *memory) get(resource schema.GroupResource, name string) (*metav1.PartialObjectMetadata, error) {
	m.asked++
	if err := m.broken[name]; err != nil {
		return nil, err
	}
	if o, found := m.objects[name]; found {
		return o, nil
	}
	return nil, apierrors.NewNotFound(resource, name)
}

func TestCheck(t *testing.T) {
	const id = "shop:apps/Deployment:web/shop"
	shop := object("apps/v1", "Deployment", "web", "shop", id)
	chain := func(length int) []*metav1.PartialObjectMetadata {
		out := []*metav1.PartialObjectMetadata{object("v1", "Pod", "web", "pod", "", "owner-1")}
		for i := 1; i < length; i++ {
			out = append(out, object("x/v1", "X", "web", fmt.Sprintf("owner-%d", i), "", fmt.Sprintf("owner-%d", i+1)))
		}
		last := fmt.Sprintf("owner-%d", length)
		return append(out, object("x/v1", "X", "web", last, "shop:x/X:web/"+last))
	}
	stranger := object("apps/v1", "Deployment", "web", "shop", id)
	stranger.UID = "another"
	var crowd []string
	for i := range 40 {
		crowd = append(crowd, fmt.Sprintf("nobody-%d", i))
	}
	tests := map[string]struct {
		objects []*metav1.PartialObjectMetadata
		broken  map[string]error
		allowed bool
		asked   int
	}{
		"the object itself":          {[]*metav1.PartialObjectMetadata{object("v1", "Pod", "web", "pod", "shop:/Pod:web/pod")}, nil, true, 1},
		"nobody's":                   {[]*metav1.PartialObjectMetadata{object("v1", "Pod", "web", "pod", "")}, nil, false, 1},
		"of a ReplicaSet":            {[]*metav1.PartialObjectMetadata{object("v1", "Pod", "web", "pod", "", "rs"), object("apps/v1", "ReplicaSet", "web", "rs", id, "shop"), shop}, nil, true, 3},
		"of an owner too far":        {chain(6), nil, false, 6},
		"of the farthest owner":      {chain(5), nil, true, 6},
		"of an owner that is gone":   {[]*metav1.PartialObjectMetadata{object("v1", "Pod", "web", "pod", "", "shop")}, nil, false, 2},
		"of an owner's successor":    {[]*metav1.PartialObjectMetadata{object("v1", "Pod", "web", "pod", "", "shop"), stranger}, nil, false, 2},
		"of one another":             {[]*metav1.PartialObjectMetadata{object("v1", "Pod", "web", "pod", "", "b"), object("v1", "Pod", "web", "b", "", "pod", "b")}, nil, false, 2},
		"of many":                    {[]*metav1.PartialObjectMetadata{object("v1", "Pod", "web", "pod", "", append(crowd, "shop")...), shop}, nil, false, 16},
		"of one that is unreadable":  {[]*metav1.PartialObjectMetadata{object("v1", "Pod", "web", "pod", "", "b")}, map[string]error{"b": errors.New("forbidden")}, false, 2},
		"of a readable one, besides": {[]*metav1.PartialObjectMetadata{object("v1", "Pod", "web", "pod", "", "b", "shop"), shop}, map[string]error{"b": errors.New("forbidden")}, true, 3},
	}
	p := policy(t, access.Spoke, access.Config{Enabled: true, TrackedOnly: true})
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := &memory{objects: map[string]*metav1.PartialObjectMetadata{}, broken: tt.broken}
			for _, o := range tt.objects {
				m.objects[o.Name] = o
			}
			d := p.Decide(call(t, "GET /api/v1/namespaces/web/pods/pod/log"))
			if !d.Allowed || !d.Tracked {
				t.Fatalf("it is decided %+v", d)
			}
			got, err := (&access.Tracker{Objects: m}).Check(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			if got.Allowed != tt.allowed || m.asked != tt.asked {
				t.Errorf("allowed %v after %d lookups, want %v after %d: %s", got.Allowed, m.asked, tt.allowed, tt.asked, got.Message)
			}
			if !got.Allowed && (got.Rule != access.RuleTrackedOnly || got.Side != access.Spoke || got.Status().Details.Name != "pod") {
				t.Errorf("the refusal is %+v", got)
			}
		})
	}
}

func TestCheckPassesOnWhatTheServerSays(t *testing.T) {
	p := policy(t, access.Spoke, access.Config{Enabled: true, TrackedOnly: true})
	m := &memory{}
	_, err := (&access.Tracker{Objects: m}).Check(t.Context(), p.Decide(call(t, "GET /api/v1/namespaces/web")))
	if !apierrors.IsNotFound(err) {
		t.Errorf("error is %v, want NotFound", err)
	}
	if m.last != (types.NamespacedName{Name: "web"}) {
		t.Errorf("a namespace was looked for as %v", m.last)
	}
	refused := p.Decide(call(t, "GET /api/v1/namespaces/web/secrets/s"))
	if d, err := (&access.Tracker{Objects: &memory{}}).Check(t.Context(), refused); err != nil || d.Allowed || d.Rule != access.RuleSecrets {
		t.Errorf("what was refused is %+v, %v", d, err)
	}
}

func TestTrackedOnly(t *testing.T) {
	p := policy(t, access.Hub, access.Config{Enabled: true, Writes: true, TrackedOnly: true, Exec: true})
	const web = "/api/v1/namespaces/web"
	tests := map[string]struct {
		call             string
		allowed, tracked bool
	}{
		"discovery":              {"GET /apis", true, false},
		"an object":              {"GET " + web + "/pods/p", true, true},
		"its subresource":        {"POST " + web + "/pods/p/exec", true, true},
		"a watch of one":         {"GET " + web + "/pods?watch=1&fieldSelector=metadata.name%3Dp", true, true},
		"a delete":               {"DELETE " + web + "/pods/p", true, true},
		"a list":                 {"GET " + web + "/pods", false, false},
		"a create":               {"POST " + web + "/pods", false, false},
		"a delete of many":       {"DELETE " + web + "/pods", false, false},
		"all events":             {"GET " + web + "/events", false, false},
		"all events but of one":  {"GET " + web + "/events?fieldSelector=involvedObject.name!%3Dp", false, false},
		"events of an object":    {"GET " + web + "/events?fieldSelector=involvedObject.uid%3Du,involvedObject.name%3Dp", true, false},
		"its new events":         {"GET /apis/events.k8s.io/v1/namespaces/web/events?watch=1&fieldSelector=regarding.name%3Dp", true, false},
		"another kind of events": {"GET /api/v1/watch/namespaces/web/events?fieldSelector=involvedObject.uid%3Du", false, false},
		"who am I":               {"POST /apis/authentication.k8s.io/v1/selfsubjectreviews", true, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := p.Decide(call(t, tt.call))
			if d.Allowed != tt.allowed || d.Tracked != tt.tracked {
				t.Errorf("Decide() = %+v, want allowed %v, tracked %v", d, tt.allowed, tt.tracked)
			}
			if !d.Allowed && d.Rule != access.RuleTrackedOnly {
				t.Errorf("it is refused by rule %s: %s", d.Rule, d.Message)
			}
		})
	}
}

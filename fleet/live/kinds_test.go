package live

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/identity"
)

// For each connection of an agent an API version is asked for once, and so many of them.
func TestKindsAreAskedForOnce(t *testing.T) {
	name, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	application := func(resources ...string) backends.Object {
		return backends.Object{Raw: []byte(`{"status":{"resources":[` + strings.Join(resources, ",") + `]}}`)}
	}
	const deployment, service, pod = `{"group":"apps","version":"v1","kind":"Deployment"}`, `{"version":"v1","kind":"Service"}`, `{"version":"v1","kind":"Pod"}`
	shop := versionsOf(application(deployment, service, pod, deployment))
	want := []schema.GroupVersion{{Group: "apps", Version: "v1"}, {Version: "v1"}}
	if diff := cmp.Diff(want, shop); diff != "" {
		t.Error(diff)
	}
	if got := versionsOf(backends.Object{Raw: []byte("{")}); len(got) != 0 {
		t.Errorf("of what cannot be read: %v", got)
	}
	var k Kinds
	for i, c := range []struct {
		session string
		want    []schema.GroupVersion
	}{{"1", want}, {"1", nil}, {"2", want}} {
		if diff := cmp.Diff(c.want, k.news(name, c.session, shop)); diff != "" {
			t.Errorf("%d: %s", i, diff)
		}
	}
	var many []string
	for i := range maxKinds + 1 {
		many = append(many, fmt.Sprintf(`{"group":"g%d.example.org","version":"v1"}`, i))
	}
	all := versionsOf(application(many...))
	if len(all) != maxKinds {
		t.Errorf("at the limit there are %d of one Application", len(all))
	}
	if got := k.news(name, "3", append(all, shop...)); len(got) != maxKinds {
		t.Errorf("at the limit %d are asked for", len(got))
	}
	if got := k.news(name, "3", shop); len(got) != 0 {
		t.Errorf("beyond the limit %v are asked for", got)
	}
}

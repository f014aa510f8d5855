package strangers

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

var begin = time.Date(2026, 11, 23, 18, 0, 0, 0, time.UTC)

func id(t *testing.T, name string) spiffeid.ID {
	t.Helper()
	id, err := spiffeid.FromString("spiffe://mesh.test/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// knock returns l with one more refusal.
func knock(l List, id spiffeid.ID, at time.Time) List {
	return l.merge(List{{ID: id, Times: 1, First: at, Last: at}})
}

func TestCounted(t *testing.T) {
	a, b := id(t, "a"), id(t, "b")
	l := knock(knock(knock(nil, a, begin), b, begin.Add(time.Second)), a, begin.Add(time.Minute))
	want := List{
		{ID: a, Times: 2, First: begin, Last: begin.Add(time.Minute)},
		{ID: b, Times: 1, First: begin.Add(time.Second), Last: begin.Add(time.Second)},
	}
	data, err := l.data()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(spiffeid.ID{}, spiffeid.TrustDomain{})); diff != "" {
		t.Errorf("Parse() (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[1:], got.Without(func(id spiffeid.ID) bool { return id == a }), cmp.AllowUnexported(spiffeid.ID{}, spiffeid.TrustDomain{})); diff != "" {
		t.Errorf("Without() (-want +got):\n%s", diff)
	}
}

// However many come, the newest stay.
func TestNewestStay(t *testing.T) {
	var l List
	for i := range 3 * Max {
		l = knock(l, id(t, fmt.Sprint("n", i)), begin.Add(time.Duration(i)*time.Second))
	}
	l, dropped := l.newest()
	if dropped != 2*Max || len(l) != Max || l[0].ID != id(t, fmt.Sprint("n", 3*Max-1)) || l[Max-1].ID != id(t, fmt.Sprint("n", 2*Max)) {
		t.Errorf("%d stay, from %v to %v", len(l), l[0].ID, l[len(l)-1].ID)
	}
}

// The longest IDs that there are fit into a ConfigMap, which has 1 MiB.
func TestLongestFit(t *testing.T) {
	var l List
	for i := range Max {
		name := fmt.Sprintf("%0*d", 2048-len("spiffe://mesh.test/"), i)
		l = knock(l, id(t, name), begin)
	}
	data, err := l.data()
	if err != nil || len(data[dataKey]) > 1<<20-4096 {
		t.Errorf("they have %d bytes, %v", len(data[dataKey]), err)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"", "x", `{"id":"spiffe://a/b"}`, `[{"id":"no id"}]`} {
		if l, err := Parse(map[string]string{dataKey: text}); err == nil {
			t.Errorf("%q is read as %v", text, l)
		}
	}
}

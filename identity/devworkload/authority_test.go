package devworkload

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

var testDomain = spiffeid.RequireTrustDomainFromString("td.test")

// at returns the time sec seconds after an arbitrary beginning.
func at(sec int) time.Time {
	return time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC).Add(time.Duration(sec) * time.Second)
}

func TestGenerationsThroughTime(t *testing.T) {
	g, err := newGenerations(testDomain, at(0))
	if err != nil {
		t.Fatal(err)
	}
	g, _ = g.withLongestTTL(60 * time.Second)
	rotate := func(sec int) {
		t.Helper()
		if g, err = g.rotated(at(sec), 5*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	rotate(100) // signs from 105, the first leaves at 105+62
	rotate(102) // signs from 110, the second leaves at 110+62

	names := map[*authority]string{}
	for i, a := range g.authorities {
		names[a] = string(rune('A' + i))
	}
	for second, want := range map[int]struct{ signer, trusted string }{
		0:   {"A", "ABC"}, // a root is trusted as soon as it exists
		104: {"A", "ABC"},
		105: {"B", "ABC"},
		109: {"B", "ABC"},
		110: {"C", "ABC"},
		166: {"C", "ABC"},
		167: {"C", "BC"},
		171: {"C", "BC"},
		172: {"C", "C"},
		999: {"C", "C"},
	} {
		now := at(second)
		trusted := ""
		for _, a := range g.trusted(now) {
			trusted += names[a]
		}
		if signer := names[g.signer(now)]; signer != want.signer || trusted != want.trusted {
			t.Errorf("after %d s: signer %s of %s, want %s of %s", second, signer, trusted, want.signer, want.trusted)
		}
	}

	var changes []int
	for now := at(0); ; {
		now = g.nextChange(now)
		if now.IsZero() {
			break
		}
		changes = append(changes, int(now.Sub(at(0))/time.Second))
	}
	if diff := cmp.Diff([]int{105, 110, 167, 172}, changes); diff != "" {
		t.Errorf("nextChange() (-want +got)\n%s", diff)
	}

	rotate(500)
	if len(g.authorities) != 2 {
		t.Errorf("a rotation long after the others keeps %d authorities, want 2", len(g.authorities))
	}
}

func TestGenerationsSurviveTheFile(t *testing.T) {
	g, err := newGenerations(testDomain, at(0))
	if err != nil {
		t.Fatal(err)
	}
	g, _ = g.withLongestTTL(1500 * time.Millisecond)
	if g, err = g.rotated(at(1), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	text, err := g.marshal()
	if err != nil {
		t.Fatal(err)
	}
	back, err := parseGenerations(text)
	if err != nil {
		t.Fatal(err)
	}
	again, err := back.marshal()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(text), string(again)); diff != "" {
		t.Errorf("written, read and written again (-first +second)\n%s", diff)
	}
	if back.longestTTL != 2*time.Second {
		t.Errorf("longest ttl came back as %s, want 2s: rounded up", back.longestTTL)
	}
	if _, changed := back.withLongestTTL(1500 * time.Millisecond); changed {
		t.Error("the same ttl again is a change")
	}
}

func FuzzParseGenerations(f *testing.F) {
	g, err := newGenerations(testDomain, at(0))
	if err != nil {
		f.Fatal(err)
	}
	text, err := g.marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"trust_domain":"td.test","authorities":[]}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := parseGenerations(data)
		if err != nil {
			return
		}
		text, err := g.marshal()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if _, err := parseGenerations(text); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if signer := g.signer(at(0)); signer == nil {
			t.Fatal("nobody signs")
		}
	})
}

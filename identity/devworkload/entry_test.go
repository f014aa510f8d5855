package devworkload_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

func TestParseEntry(t *testing.T) {
	id := spiffeid.RequireFromString("spiffe://td.test/a")
	tests := map[string]struct {
		in   string
		want devworkload.Entry // zero: an error that wraps ErrInvalid
	}{
		"an id":              {"spiffe://td.test/a", devworkload.Entry{ID: id}},
		"everything":         {"spiffe://td.test/a,hint=x,ttl=30s,dns=a.test,dns=b.test", devworkload.Entry{ID: id, Hint: "x", TTL: 30 * time.Second, DNSNames: []string{"a.test", "b.test"}}},
		"an equals sign":     {"spiffe://td.test/a,hint=x=y", devworkload.Entry{ID: id, Hint: "x=y"}},
		"empty":              {in: ""},
		"no path":            {in: "spiffe://td.test"},
		"a spire id":         {in: "spiffe://td.test/spire/agent/x"},
		"an unknown key":     {in: "spiffe://td.test/a,colour=red"},
		"no value":           {in: "spiffe://td.test/a,hint="},
		"no equals sign":     {in: "spiffe://td.test/a,hint"},
		"a comma at the end": {in: "spiffe://td.test/a,"},
		"a bad duration":     {in: "spiffe://td.test/a,ttl=soon"},
		"a ttl too short":    {in: "spiffe://td.test/a,ttl=1s"},
		"a negative ttl":     {in: "spiffe://td.test/a,ttl=-5m"},
		"a hint twice":       {in: "spiffe://td.test/a,hint=x,hint=y"},
		"a dns name of ours": {in: "spiffe://td.test/a,dns=a b"},
		"a hint too long":    {in: "spiffe://td.test/a,hint=" + strings.Repeat("x", 1025)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := devworkload.ParseEntry(tc.in)
			if tc.want.ID.IsZero() != errors.Is(err, identity.ErrInvalid) {
				t.Fatalf("ParseEntry(%q) = %+v, %v", tc.in, got, err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.Comparer(func(a, b spiffeid.ID) bool { return a == b })); diff != "" {
				t.Errorf("ParseEntry() (-want +got)\n%s", diff)
			}
		})
	}
}

func FuzzParseEntry(f *testing.F) {
	f.Add("spiffe://td.test/a,hint=x,ttl=30s,dns=a.test")
	f.Add("spiffe://td.test/a")
	f.Add("spiffe://td.test/a,ttl=1h,ttl=2h")
	f.Fuzz(func(t *testing.T, s string) {
		entry, err := devworkload.ParseEntry(s)
		if err != nil {
			if !errors.Is(err, identity.ErrInvalid) {
				t.Fatalf("ParseEntry(%q) error %v does not wrap ErrInvalid", s, err)
			}
			return
		}
		text := entry.ID.String()
		if entry.Hint != "" {
			text += ",hint=" + entry.Hint
		}
		if entry.TTL != 0 {
			text += ",ttl=" + entry.TTL.String()
		}
		for _, name := range entry.DNSNames {
			text += ",dns=" + name
		}
		again, err := devworkload.ParseEntry(text)
		if err != nil {
			t.Fatalf("%q means %q, which is refused: %v", s, text, err)
		}
		if diff := cmp.Diff(entry, again, cmp.Comparer(func(a, b spiffeid.ID) bool { return a == b })); diff != "" {
			t.Fatalf("%q means %q, which differs (-first +second)\n%s", s, text, diff)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	td := spiffeid.RequireTrustDomainFromString("td.test")
	id := spiffeid.RequireFromString("spiffe://td.test/a")
	other := spiffeid.RequireFromString("spiffe://td.test/b")
	tests := map[string]struct {
		cfg  devworkload.Config
		want string
	}{
		"no trust domain":       {devworkload.Config{}, "trust domain is missing"},
		"a foreign entry":       {devworkload.Config{TrustDomain: td, Entries: []devworkload.Entry{{ID: spiffeid.RequireFromString("spiffe://evil.test/a")}}}, "not in trust domain td.test"},
		"an entry without path": {devworkload.Config{TrustDomain: td, Entries: []devworkload.Entry{{ID: td.ID()}}}, "no path"},
		"the same entry twice":  {devworkload.Config{TrustDomain: td, Entries: []devworkload.Entry{{ID: id}, {ID: id}}}, "given twice"},
		"the same hint twice":   {devworkload.Config{TrustDomain: td, Entries: []devworkload.Entry{{ID: id, Hint: "x"}, {ID: other, Hint: "x"}}}, "belongs to another"},
		"a ttl too short":       {devworkload.Config{TrustDomain: td, X509TTL: time.Second}, "at least 2s"},
		"a jwt ttl too short":   {devworkload.Config{TrustDomain: td, JWTTTL: time.Second}, "at least 2s"},
		"a negative prepare":    {devworkload.Config{TrustDomain: td, Prepare: -1}, "negative"},
		"a file as directory":   {devworkload.Config{TrustDomain: td, CADir: "entry_test.go"}, "ca directory"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := devworkload.New(tc.cfg)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("New() error = %v, want one that says %q", err, tc.want)
			}
		})
	}
}

package bounds_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/backends/bounds"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/stream"
)

// of is an object with a text of n bytes, as we write it.
func of(c string, n int) []byte {
	return object.Encode(map[string]any{"spec": map[string]any{"text": strings.Repeat(c, n)}})
}

// Sizes are those that the object has once an API server has stored it.
func TestSizesAreThoseThatAreStored(t *testing.T) {
	for _, c := range []string{"a", "<", ">", "&", "\u2028", "\u2029", "é", "\"", "\\", "\n"} {
		raw := of(c, 100)
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		stored, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if got := object.StoredBytes(raw); got != len(stored) {
			t.Errorf("%q: %d bytes, stored are %d", c, got, len(stored))
		}
		if got := object.StoredBytes(stored); got != len(stored) {
			t.Errorf("%q as it is stored: %d bytes, stored are %d", c, got, len(stored))
		}
	}
}

func TestAdmits(t *testing.T) {
	const most = 10_000
	key := stream.ResourceKey{Kind: stream.Application, Namespace: "argocd", Name: "a"}
	secret := stream.ResourceKey{Kind: stream.Secret, Namespace: "argocd", Name: "s"}
	limits := bounds.Bounds{Applications: 2, AppProjects: 1, ApplicationBytes: most, AppProjectBytes: 100, TotalBytes: 3 * most}
	for title, tt := range map[string]struct {
		key    stream.ResourceKey
		raw    []byte
		before int // bytes of the object now
		others int // bytes of other objects
		says   string
	}{
		"one that fits":                                {key, of("a", most/2), 0, 0, ""},
		"one that is too large":                        {key, of("a", most), 0, 0, "applicationBytes"},
		"one that is stored too large":                 {key, of("<", most/5), 0, 0, "applicationBytes"},
		"one that what the server adds made larger":    {key, of("a", 2*most), most + 500, 0, "applicationBytes"},
		"one as large as what the server adds made it": {key, of("a", most+550), most + 500, 0, ""},
		"one that was larger before the bound":         {key, of("a", 2*most), 2 * most, 0, ""},
		"one with which all are too much":              {key, of("a", most/2), 0, 3*most - 100, "totalBytes"},
		"one that grows, stored, beyond all":           {key, of("<", 1500), 7000, 3*most - 7500, ""}, // small ones may
		"a Secret":                                     {secret, of("a", 2*most), 0, 0, ""},
		"a Secret with which all are too much":         {secret, of("a", 2*most), 0, 2 * most, "totalBytes"},
	} {
		t.Run(title, func(t *testing.T) {
			w := bounds.NewWeights()
			if tt.before > 0 {
				w.Set(tt.key, bounds.Weight{Bytes: tt.before, Copy: true})
			}
			if tt.others > 0 {
				w.Set(stream.ResourceKey{Kind: stream.Application, Name: "other"}, bounds.Weight{Bytes: tt.others, Copy: true})
			}
			op := ownership.Update
			if tt.before == 0 {
				op = ownership.Create
			}
			got := w.Room(tt.key, limits).Admits(stream.Hub, tt.key.Kind, []ownership.Write{{Op: op, Raw: tt.raw}}, tt.before)
			if tt.says == "" && got != nil || tt.says != "" && (got == nil || got.Kind != stream.RefusalOverLimit || !strings.Contains(got.Message, tt.says)) {
				t.Errorf("it says %v, want %q", got, tt.says)
			}
		})
	}
}

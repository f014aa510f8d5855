package memory_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/stream"
)

// knowing is the schema of a kind whose spec has these fields.
func knowing(t *testing.T, fields ...string) *schema.Schema {
	t.Helper()
	s, err := schema.Parse([]byte(`{"spec":{"versions":[{"name":"v1alpha1","schema":{"openAPIV3Schema":{"properties":{"spec":{"properties":{"`+
		strings.Join(fields, `":{},"`)+`":{}}}}}}}]}}`), "v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A server drops what its schema does not know, refuses it in a strict write, and
// after an upgrade shows what the new one knows.
func TestSchema(t *testing.T) {
	store := memory.New(memory.Config{Schemas: map[stream.Kind]*schema.Schema{stream.Application: knowing(t, "a", "b")}})
	upgrades := 0
	cancel := store.SubscribeSchemas(func() { upgrades++ })
	key := stream.ResourceKey{Kind: stream.Application, Namespace: "argocd", Name: "app"}
	raw := func(spec string) []byte {
		return []byte(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":"argocd","name":"app"},"spec":` + spec + `}`)
	}
	specIs := func(o backends.Object, want string) {
		t.Helper()
		if !strings.Contains(string(o.Raw), `"spec":`+want) {
			t.Errorf("it keeps %s, want %s", o.Raw, want)
		}
	}
	if _, err := store.Create(t.Context(), key, raw(`{"a":1,"c":2}`), backends.Strict); !errors.Is(err, stream.ErrRefused) || !strings.Contains(err.Error(), "spec.c") {
		t.Errorf("a strict Create() of a field that is not known = %v", err)
	}
	o, err := store.Create(t.Context(), key, raw(`{"a":1,"c":2}`))
	if err != nil {
		t.Fatal(err)
	}
	specIs(o, `{"a":1}`)
	if _, err := store.Update(t.Context(), o, raw(`{"c":2}`), backends.Strict); !errors.Is(err, stream.ErrRefused) {
		t.Errorf("a strict Update() with a field that is not known = %v", err)
	}
	if o, err = store.Update(t.Context(), o, raw(`{"a":1,"b":2}`), backends.Strict); err != nil {
		t.Fatal(err)
	}
	specIs(o, `{"a":1,"b":2}`)

	store.SetSchema(stream.Application, knowing(t, "b", "c"))
	if o, ok := store.Get(key); !ok || upgrades != 1 {
		t.Errorf("after an upgrade the object is there: %t, and %d were told", ok, upgrades)
	} else {
		specIs(o, `{"b":2}`)
	}
	cancel()
	store.SetSchema(stream.Application, nil)
	if store.Schema(stream.Application) != nil || upgrades != 1 {
		t.Errorf("without a schema there is %v, and %d were told", store.Schema(stream.Application), upgrades)
	}
	if o, err = store.Update(t.Context(), o, raw(`{"d":4}`), backends.Strict); err != nil {
		t.Fatal(err)
	}
	specIs(o, `{"d":4}`)
}

// A server that is restored shows of a backup what its schema knows.
func TestRestorePrunes(t *testing.T) {
	s := memory.New(memory.Config{Schemas: map[stream.Kind]*schema.Schema{stream.Application: knowing(t, "a", "b")}})
	key := stream.ResourceKey{Kind: stream.Application, Namespace: "argocd", Name: "app"}
	if _, err := s.Create(t.Context(), key, []byte(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":"argocd","name":"app"},"spec":{"a":1,"b":2}}`)); err != nil {
		t.Fatal(err)
	}
	backup := s.Snapshot()
	for _, c := range []struct {
		knows []string
		want  string
	}{{[]string{"a"}, `"spec":{"a":1}`}, {[]string{"a", "b"}, `"spec":{"a":1,"b":2}`}} {
		s.SetSchema(stream.Application, knowing(t, c.knows...))
		s.Restore(backup, 0)
		if o, there := s.Get(key); !there || !strings.Contains(string(o.Raw), c.want) {
			t.Errorf("a server that knows %q shows %s, want %s", c.knows, o.Raw, c.want)
		}
	}
}

package projects_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/projects"
	"github.com/argomesh/argomesh/stream"
)

func TestDeletingProjectGoesWithItsLastApplication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 1
		store := memory.New(memory.Config{Fault: func(op memory.Op, key stream.ResourceKey) error {
			if op == memory.OpUpdate && key.Name == "shop" && failures > 0 {
				failures--
				return stream.ErrUnavailable
			}
			return nil
		}})
		create := func(kind stream.Kind, namespace, name, rest string) backends.Object {
			t.Helper()
			o, err := store.Create(t.Context(), stream.ResourceKey{Kind: kind, Namespace: namespace, Name: name},
				[]byte(`{"apiVersion":"argoproj.io/v1alpha1","kind":"`+string(kind)+`","metadata":{"namespace":"`+namespace+`","name":"`+name+`"`+rest+`}`))
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		remove := func(o backends.Object) {
			t.Helper()
			if err := store.Delete(t.Context(), o.Key, backends.Preconditions{UID: o.UID}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		gone := func(o backends.Object) bool {
			_, err := store.Read(t.Context(), o.Key)
			return errors.Is(err, stream.ErrNotFound)
		}
		const finalizer = `,"finalizers":["resources-finalizer.argocd.argoproj.io"]}`
		shop := create(stream.AppProject, "argocd", "shop", finalizer)
		foreign := create(stream.AppProject, "argocd", "foreign", `,"finalizers":["example.org/mine"]}`)
		app := create(stream.Application, "edge-1", "web", `},"spec":{"project":"shop"}`)
		create(stream.Application, "edge-1", "other", `},"spec":{"project":"other"}`)
		standard := create(stream.AppProject, "argocd", "default", finalizer)
		nameless := create(stream.Application, "edge-1", "nameless", `},"spec":{}`) // which is of that one

		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- (&projects.Collector{Store: store, Namespace: "argocd", Log: zerolog.Nop()}).Run(ctx)
		}()
		synctest.Wait()
		remove(shop)
		remove(foreign)
		remove(standard)
		rest(2 * time.Second)
		if gone(shop) || gone(standard) {
			t.Error("a project went while an Application referred to it")
		}
		remove(nameless)
		remove(app)
		rest(2 * time.Second)
		if gone(shop) {
			t.Error("the project went although the write failed")
		}
		rest(6 * time.Second) // the pause after a failed write
		synctest.Wait()
		if !gone(shop) || !gone(standard) {
			t.Error("a project is still there after its last Application went")
		}
		if gone(foreign) {
			t.Error("a foreign finalizer was removed")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// rest lets virtual time pass until all is at rest.
func rest(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

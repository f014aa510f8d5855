package resource_test

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
)

// As many connections as the bound says are kept for the next calls, to the agent and
// to its API server, and no more.
func TestConnectionsAreKept(t *testing.T) {
	const kept, beyond = 128, 20
	var mu sync.Mutex
	arrived, all := 0, make(chan struct{})
	w := start(t, func(rw http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		together := all
		if arrived++; arrived == kept+beyond {
			arrived, all = 0, make(chan struct{})
			close(together)
		}
		mu.Unlock()
		<-together // so that each call has a connection of its own
		_, _ = io.WriteString(rw, "{}")
	}, settings{})
	for round, want := range []int{kept + beyond, kept + beyond + beyond} {
		var g errgroup.Group
		for range kept + beyond {
			r := w.request(t.Context(), http.MethodGet, "/api/v1/namespaces/web/configmaps/a", nil)
			client := w.client()
			g.Go(func() error {
				res, err := client.Do(r)
				if err != nil {
					return err
				}
				_, err = io.Copy(io.Discard, res.Body)
				return errors.Join(err, res.Body.Close())
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		toServer := map[string]bool{}
		for _, r := range w.calls() {
			toServer[r.RemoteAddr] = true
		}
		w.mu.Lock()
		toAgent := len(w.conns)
		w.mu.Unlock()
		if toAgent != want || len(toServer) != want {
			t.Errorf("after round %d of %d calls at a time %d connections to the agent and %d to its API server were made, want %d",
				round+1, kept+beyond, toAgent, len(toServer), want)
		}
	}
}

package live

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
)

// revoke-tokens ends the tokens of one agent, and the calls that came with them. Argo CD has
// another token a moment later, and other agents notice nothing.
func TestLiveRevokedTokens(t *testing.T) {
	t.Parallel()
	w := env.SharedLive(t)
	leaked, beside := w.Agent(t, "leaked", env.Everything, env.Everything), w.Agent(t, "beside", env.Everything, env.Everything)
	stolen, other := open(t, leaked), open(t, beside)
	if out, err := w.Harness.Agentctl(t.Context(), w.Hub, "agent", "revoke-tokens", leaked.Name); err != nil {
		t.Fatalf("agentctl: %v\n%s", err, out)
	}
	stolen.breaks(t)
	env.Eventually(t, "the token that was there is refused", func() error {
		r, err := env.FetchOne(t.Context(), stolen.Config, "/version")
		if err == nil && r.Status != http.StatusUnauthorized && r.Status != http.StatusForbidden {
			err = fmt.Errorf("%d %s", r.Status, r.Body)
		}
		return err
	})
	if err := leaked.Reachable(t.Context()); err != nil { // by the cluster Secret of now
		t.Error(err)
	}
	if r, err := env.FetchOne(t.Context(), stolen.Config, "/version"); err != nil || r.Status < http.StatusUnauthorized {
		t.Errorf("the token that was there: %d %s %v", r.Status, r.Body, err)
	}
	other.flow(t)
}

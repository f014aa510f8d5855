package e2e

import (
	"fmt"
	"net/http"
	"testing"
)

// revoke-tokens ends the tokens of one agent, and the calls that came with them. Argo CD has
// another token a moment later, and other agents notice nothing.
func TestLiveRevokedTokens(t *testing.T) {
	t.Parallel()
	w := theLiveWorld(t)
	leaked, beside := w.agent(t, "leaked", everything, everything), w.agent(t, "beside", everything, everything)
	stolen, other := leaked.open(t), beside.open(t)
	if out, err := w.h.Agentctl(t.Context(), w.hub, "agent", "revoke-tokens", leaked.name); err != nil {
		t.Fatalf("agentctl: %v\n%s", err, out)
	}
	stolen.breaks(t)
	eventually(t, "the token that was there is refused", func() error {
		r, err := fetchOne(t.Context(), stolen.config, "/version")
		if err == nil && r.status != http.StatusUnauthorized && r.status != http.StatusForbidden {
			err = fmt.Errorf("%d %s", r.status, r.body)
		}
		return err
	})
	if err := leaked.reachable(t.Context()); err != nil { // by the cluster Secret of now
		t.Error(err)
	}
	if r, err := fetchOne(t.Context(), stolen.config, "/version"); err != nil || r.status < http.StatusUnauthorized {
		t.Errorf("the token that was there: %d %s %v", r.status, r.body, err)
	}
	other.flow(t)
}

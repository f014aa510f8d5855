//go:build linux

package live

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// Under rotation of SVIDs and authorities on both sides, at different times, no watch,
// log or session ends and no handshake fails, whether agents prove themselves by mutual
// TLS or by tokens behind a load balancer. Others would go on with the authorities that
// they have read, so this environment is of its own.
func TestRotation(t *testing.T) {
	t.Parallel()
	rotate(t, env.OwnLive(t), 3)
}

// often is how often something is asked of what is under way.
const often = 2 * time.Second

// rotate keeps two agents in use for some lives of their SVIDs. In every third of them,
// from the first on, the authority of principal and Envoy rotates, and from the second
// on that of the agents.
func rotate(t *testing.T, w *env.Live, lives int) {
	t.Helper()
	ctx := t.Context()
	all := rotatingAgents(t, w)
	failed := handshakeFailures(t, w)
	counted := map[string]float64{}
	for name := range wantUpdates(lives) {
		var err error
		if counted[name], err = env.Metric(ctx, w.FrontDoor.AdminAddress, name); err != nil {
			t.Fatal(err)
		}
	}
	for life := 1; life <= lives; life++ {
		if authority := map[int]*harness.WorkloadAPI{1: w.Identity, 2: all[0].api}[life%3]; authority != nil {
			if err := authority.Signal(syscall.SIGUSR1); err != nil { // rotates it for all that have it
				t.Fatal(err)
			}
		}
		over, again := time.NewTimer(env.SvidTTL), time.NewTicker(often)
		for open := true; open; {
			select {
			case <-over.C:
				open = false
			case <-again.C:
			case <-ctx.Done():
				t.Fatal(ctx.Err())
			}
			for _, a := range all {
				a.use.flow(t)
			}
		}
		again.Stop()
		for _, a := range all {
			a.lived(t, fmt.Sprint("life-", life))
		}
	}
	for _, a := range all {
		a.wasNeverAway(t, lives)
	}
	for name, least := range wantUpdates(lives) {
		if n, err := env.Metric(ctx, w.FrontDoor.AdminAddress, name); err != nil || n < counted[name]+least {
			t.Errorf("%s of the principal went from %v to %v, want %v more: nothing rotated: %v", name, counted[name], n, least, err)
		}
	}
	for where, before := range failed {
		if now := handshakeFailures(t, w)[where]; now != before {
			t.Errorf("%v handshakes failed at %s", now-before, where)
		}
	}
}

// wantUpdates are how often, at least, metrics of the principal count up in some lives:
// SVIDs are renewed at half of doorTTL, and another authority comes. The agents' earlier
// one goes in the life after that, the hub's stays for other agents with longer SVIDs.
func wantUpdates(lives int) map[string]float64 {
	bundles := float64((lives+2)/3 + (lives+1)/3 + lives/3)
	return map[string]float64{
		"argomesh_identity_svid_updates_total":       float64(lives) * float64(env.SvidTTL) / float64(env.FrontDoorTTL),
		"argomesh_identity_bundle_updates_total":     bundles,
		"argomesh_identity_jwt_bundle_updates_total": bundles,
	}
}

// rotatingAgent is one whose SVIDs are short.
type rotatingAgent struct {
	*env.LiveAgent
	api    *harness.WorkloadAPI
	use    *underWay
	since  string
	from   int64  // where its log was when all began
	proves string // what it logs when it has proven itself again
}

// rotatingAgents starts one agent that proves itself by mutual TLS and one by tokens, of
// the trust domain with which the principal federates.
func rotatingAgents(t *testing.T, w *env.Live) []*rotatingAgent {
	t.Helper()
	ctx := t.Context()
	balancer, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString("balancer.test")})
	if err != nil {
		t.Fatal(err)
	}
	roots := filepath.Join(t.TempDir(), "ca.pem")
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: balancer.Bundle().X509Authorities()[0].Raw})
	if err := os.WriteFile(roots, root, 0o600); err != nil {
		t.Fatal(err)
	}
	mutual := env.Enrolment{Name: "rotates"}
	token := env.Enrolment{
		Name: "rotates-tokens", Address: env.StartTerminator(t, env.SignLeaf(t, balancer, devworkload.NoURILeaf(env.GatewayName)), w.ByToken),
		Settings: harness.Settings{
			"principal.method": identity.MethodJWT, "principal.gateway.server_name": env.GatewayName, "principal.gateway.ca_file": roots,
		},
	}
	var all []*rotatingAgent
	for e, proves := range map[*env.Enrolment]string{&mutual: "connected to the principal", &token: "identity proven again"} {
		a := &rotatingAgent{proves: proves}
		e.Mode, e.Spoke, e.Namespace, e.OnHub, e.OnSpoke = "managed", w.Spokes[env.Managed], e.Name, env.Everything, env.Everything
		e.ID = "spiffe://" + env.ForeignDomain + "/argomesh/agent/" + e.Name
		if a.api, err = w.IdentifyForeign(ctx, e.ID, env.SvidTTL); err != nil {
			t.Fatal(err)
		}
		e.API = a.api
		a.LiveAgent = w.Start(t, *e)
		env.Create(t, w.Hub.Resource(harness.Applications, e.Name), a.remote().Application("rotating"))
		env.Eventually(t, e.Name+" is connected", func() (err error) {
			a.since, err = a.connectedSince(ctx)
			return err
		})
		a.use = open(t, a.LiveAgent)
		a.from = env.FileSize(t, a.Process)
		all = append(all, a)
	}
	return all
}

// remote is the agent as env.Bare knows one.
func (a *rotatingAgent) remote() *env.BareAgent { return &env.BareAgent{Name: a.Name, Mode: "managed"} }

// connectedSince returns what the hub shows, or that it shows no connection.
func (a *rotatingAgent) connectedSince(ctx context.Context) (string, error) {
	return env.ConnectedSince(ctx, a.Env.Hub, a.Name)
}

// lived has a change flow, and a call on a new connection.
func (a *rotatingAgent) lived(t *testing.T, revision string) {
	t.Helper()
	ctx := t.Context()
	env.Patch(t, a.Env.Hub.Resource(harness.Applications, a.Name), "rotating", map[string]any{"spec": map[string]any{"source": map[string]any{"targetRevision": revision}}})
	env.Eventually(t, "a change flows to "+a.Name+" after "+revision, func() error {
		return env.FieldIs(ctx, a.Spoke.Resource(harness.Applications, a.Name), "rotating", revision, "spec", "source", "targetRevision")
	})
	config, err := a.Access(ctx) // with the authorities of the moment
	if err != nil {
		t.Fatal(err)
	}
	if r, err := env.FetchOne(ctx, config, "/version"); err != nil || r.Status != http.StatusOK {
		t.Errorf("a call of %s after %s: %d %s: %v", a.Name, revision, r.Status, r.Body, err)
	}
	if now, err := a.connectedSince(ctx); err != nil || now != a.since {
		t.Fatalf("%s was away: connected since %q, before %q: %v", a.Name, now, a.since, err)
	}
}

// wasNeverAway holds the log of the agent against that: it proved itself in each life,
// and never lost a connection.
func (a *rotatingAgent) wasNeverAway(t *testing.T, lives int) {
	t.Helper()
	proven := 0
	for _, line := range env.LogLines(t, a.Process, a.from) {
		switch message := fmt.Sprint(line["message"]); message {
		case a.proves:
			proven++
		case "connection to the principal ended", "cannot connect to the principal", "cannot open the tunnel to the principal":
			t.Errorf("%s: %s: %v", a.Name, message, line["error"])
		}
	}
	if proven < lives {
		t.Errorf("%s proved itself %d times in %d lives of its SVID", a.Name, proven, lives)
	}
}

// handshakeFailures counts what failed where TLS terminates, by metrics.
func handshakeFailures(t *testing.T, w *env.Live) map[string]float64 {
	t.Helper()
	principal, err := env.Metric(t.Context(), w.FrontDoor.AdminAddress, "argomesh_identity_handshake_failures_total")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]float64{"the principal": principal, "Envoy": env.FailedHandshakes(t, w.FrontDoor.Envoy, "resource_proxy")}
}

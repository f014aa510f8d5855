//go:build linux && matrix

package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// spireEnv is a hub and a spoke of two trust domains, each with a real SPIRE server and
// agent. What they know of each other, and of our programs, agentctl has told them.
type spireEnv struct {
	h          *harness.Harness
	hub, spoke *harness.ControlPlane
	near, far  *spireDomain // of hub and spoke
	bundles    string       // the folder from which the principal pushes
	byToken    string       // the principal's listener of method spiffe-jwt
	principal  *harness.Principal
	agents     map[string]*harness.Agent
}

// realTTL is the life of SVIDs. SPIRE renews one of 30 s about every 9 s, and it should
// not be shorter.
const realTTL = "30s"

// With a real SPIRE on both sides, in two trust domains that federate: registration
// through its API, X.509-SVIDs and JWT-SVIDs, renewal under changing authorities, bundles
// that the principal pushes, a SPIRE agent that goes away, and revocation.
func TestRealSPIRE(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "spire-server", "spire-agent", "etcd", "kube-apiserver")
	w := &spireEnv{h: harnesstest.New(t), agents: map[string]*harness.Agent{}}
	var err error
	for name, at := range map[string]**harness.ControlPlane{"hub": &w.hub, "spoke": &w.spoke} {
		if *at, err = env.StartBareControlPlane(t.Context(), w.h, name, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.spoke.EnsureNamespace(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	w.near, w.far = startSPIRE(t, w.h, "near", env.TrustDomain), startSPIRE(t, w.h, "far", env.ForeignDomain)
	w.bundles = w.h.Path("bundles")
	if err := os.Mkdir(w.bundles, 0o700); err != nil {
		t.Fatal(err)
	}
	// Each goes on from the one before.
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"federate", w.testFederate},
		{"register", w.testRegister},
		{"connect", w.testConnect},
		{"doctor", w.testDoctor},
		{"administrator over TCP", w.testAdministrator},
		{"rotation", w.testRotation},
		{"the SPIRE agent goes away", w.testAgentAway},
		{"revocation", w.testRevocation},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

// ctl runs agentctl, in words between blanks, and then others.
func (w *spireEnv) ctl(t *testing.T, words string, more ...string) (string, error) {
	t.Helper()
	return w.h.Agentctl(t.Context(), w.hub, append(strings.Fields(words), more...)...)
}

// says fails the test unless agentctl succeeds and prints just this.
func (w *spireEnv) says(t *testing.T, want, words string, more ...string) {
	t.Helper()
	if out, err := w.ctl(t, words, more...); err != nil || out != want {
		t.Fatalf("agentctl %s %v: %v, %q, want %q", words, more, err, out, want)
	}
}

// refuses fails the test unless agentctl fails and says why.
func (w *spireEnv) refuses(t *testing.T, why, words string, more ...string) {
	t.Helper()
	if out, err := w.ctl(t, words, more...); err == nil || !strings.Contains(err.Error(), why) {
		t.Fatalf("agentctl %s %v: %v, %q, want %q", words, more, err, out, why)
	}
}

// at returns the flags that register a program of ours with a domain.
func (w *spireEnv) at(t *testing.T, d *spireDomain, program string) []string {
	t.Helper()
	path, err := w.h.Binary(program)
	if err != nil {
		t.Fatal(err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		t.Fatal(err)
	}
	return []string{"--selector", "unix:path:" + path, "--parent-id", d.node, "--x509-svid-ttl", realTTL, "--jwt-svid-ttl", realTTL, "--spire-server", d.api}
}

// realID is the SPIFFE ID of an agent.
func realID(name string) string { return "spiffe://" + env.ForeignDomain + "/argomesh/agent/" + name }

func (w *spireEnv) testFederate(t *testing.T) {
	principal := append([]string{"--spiffe-id", env.PrincipalID, "--federates-with", env.ForeignDomain}, w.at(t, w.near, "principal")...)
	w.refuses(t, "federate with it first", "identity register principal", principal...)

	// The hub's server is told, and from then on by the principal; the spoke's polls.
	near, far := "federate "+env.ForeignDomain, "federate "+env.TrustDomain
	push := []string{"--push-bundle", "--bundle", w.far.document(t, w.bundles), "--spire-server", w.near.api}
	w.says(t, "bundle/"+env.ForeignDomain+" created\n", "identity "+near, push...)
	w.says(t, "bundle/"+env.ForeignDomain+" unchanged\n", "identity "+near, push...)
	poll := []string{"--bundle-endpoint-url", w.near.bundle, "--bundle", w.near.document(t, w.far.folder), "--spire-server", w.far.api}
	out, err := w.ctl(t, "identity "+far+" --dry-run", poll...)
	if want := "+ federation/" + env.TrustDomain + "\n    bundle_endpoint_url: " + w.near.bundle + "\n"; err != nil || !strings.HasPrefix(out, want) {
		t.Fatalf("--dry-run: %v, %s", err, out)
	}
	w.says(t, "federation/"+env.TrustDomain+" created\n", "identity "+far, poll...)
	w.says(t, "federation/"+env.TrustDomain+" unchanged\n", "identity "+far, poll...)
	w.refuses(t, "it is the SPIRE server's own trust domain", "identity "+near, "--bundle-endpoint-url", "https://127.0.0.1:1/", "--bundle", w.far.document(t, w.bundles), "--spire-server", w.far.api)
}

func (w *spireEnv) testRegister(t *testing.T) {
	principal := append([]string{"--spiffe-id", env.PrincipalID, "--federates-with", env.ForeignDomain, "--admin"}, w.at(t, w.near, "principal")...)
	out, err := w.ctl(t, "identity register principal --dry-run", principal...)
	if err != nil || !strings.HasPrefix(out, "+ entry/argomesh.principal.") || !strings.Contains(out, "    admin: true\n") {
		t.Fatalf("--dry-run: %v, %s", err, out)
	}
	entry := strings.TrimPrefix(strings.SplitN(out, "\n", 2)[0], "+ ")
	w.says(t, entry+" created\n", "identity register principal", principal...)
	w.says(t, entry+" unchanged\n", "identity register principal", principal...)
	w.says(t, "~ "+entry+"\n    hint: unset -> \"hub\"\n", "identity register principal --hint hub --dry-run", principal...)
	w.says(t, entry+" updated\n", "identity register principal --hint hub", principal...)
	w.says(t, entry+" updated\n", "identity register principal", principal...)
	w.says(t, entry+" unchanged: this entry, which is not of this registration, says the same\n", "identity register twin", principal...)
	w.refuses(t, "it is of registration principal", "identity register twin", append(principal, "--x509-svid-ttl", "45s")...)
	elsewhere := append(w.at(t, w.far, "principal"), "--spire-server", w.near.api)
	w.refuses(t, "signs nothing for "+env.ForeignDomain, "identity register x --spiffe-id spiffe://"+env.ForeignDomain+"/x", elsewhere...)

	// Agent and identity in one step. Both agents are one program, so its Workload API
	// offers both SVIDs.
	for _, name := range []string{"edge-1", "edge-2"} {
		if err := errors.Join(w.hub.EnsureNamespace(t.Context(), name), w.spoke.EnsureNamespace(t.Context(), name)); err != nil {
			t.Fatal(err)
		}
		w.enrol(t, name, "created", "created")
		w.enrol(t, name, "unchanged", "unchanged")
	}
	out, err = w.ctl(t, "identity list --no-headers --spire-server", w.far.api)
	if err != nil || !strings.Contains(out, "edge-1   "+realID("edge-1")+"   "+env.TrustDomain+"\n") || !strings.Contains(out, env.TrustDomain+"   "+w.near.bundle+"   https_spiffe\n") {
		t.Errorf("list: %v\n%s", err, out)
	}
}

// enrol registers an agent on the hub and with SPIRE, and says what came of each.
func (w *spireEnv) enrol(t *testing.T, name, entry, agent string) {
	t.Helper()
	flags := append([]string{"--mode", "managed", "--spiffe-id", realID(name), "--federates-with", env.TrustDomain}, w.at(t, w.far, "agent")...)
	out, err := w.ctl(t, "agent create "+name+" --register", flags...)
	if err != nil || !strings.HasPrefix(out, "entry/argomesh."+name+".") || !strings.HasSuffix(out, " "+entry+"\nagent.argomesh.io/"+name+" "+agent+"\n") {
		t.Fatalf("create --register: %v, %s", err, out)
	}
}

func (w *spireEnv) testConnect(t *testing.T) {
	ctx := t.Context()
	var err error
	if w.byToken, err = w.h.Address(); err != nil {
		t.Fatal(err)
	}
	if w.principal, err = w.h.StartPrincipal(ctx, harness.PrincipalConfig{ControlPlane: w.hub, WorkloadAPI: w.near.agent, Settings: harness.Settings{
		"stream.listeners": []map[string]any{{"listen": w.byToken, "method": identity.MethodJWT}},
		"spire.server":     w.near.tcp, "spire.bundles": w.bundles, "spire.every": "1s",
	}}); err != nil {
		t.Fatal(err)
	}
	for name, by := range map[string]struct{ address, method string }{
		"edge-1": {w.principal.Address, identity.MethodX509}, "edge-2": {w.byToken, identity.MethodJWT},
	} {
		if w.agents[name], err = w.h.StartAgent(ctx, harness.AgentConfig{
			Name: name, Mode: "managed", ControlPlane: w.spoke, WorkloadAPI: w.far.agent, PrincipalAddress: by.address, PrincipalIDs: []string{env.PrincipalID},
			Settings: harness.Settings{"namespace": name, "identity.spiffe_id": realID(name), "principal.method": by.method, "log.level": "debug"},
		}); err != nil {
			t.Fatal(err)
		}
		w.flows(t, name, "first")
	}
	env.Eventually(t, "the principal finds the bundle that it is to push at the server", func() error {
		return w.principalSays(ctx, `argomesh_spire_bundles{state="current"} 1`)
	})
}

// flows checks that an Application of the hub reaches the spoke of an agent.
func (w *spireEnv) flows(t *testing.T, name, app string) {
	t.Helper()
	env.Create(t, w.hub.Resource(harness.Applications, name), (&env.BareAgent{Name: name, Mode: "managed"}).Application(app))
	env.Eventually(t, app+" is on the spoke of "+name, func() error {
		return env.FieldIs(t.Context(), w.spoke.Resource(harness.Applications, name), app, "1", "spec", "source", "targetRevision")
	})
}

// principalSays returns nil when there is this line among the metrics of the principal.
func (w *spireEnv) principalSays(ctx context.Context, line string) error {
	_, body, err := env.Fetch(ctx, "http://"+w.principal.AdminAddress+"/metrics")
	if err == nil && !strings.Contains(body, "\n"+line+"\n") {
		err = fmt.Errorf("the metrics lack %s", line)
	}
	return err
}

func atLeast(ctx context.Context, admin, name string, least float64) error {
	n, err := env.Metric(ctx, admin, name)
	if err == nil && n < least {
		err = fmt.Errorf("%s is %v, want %v", name, n, least)
	}
	return err
}

func (w *spireEnv) testDoctor(t *testing.T) {
	doctor := []string{"--socket", w.far.agent.Socket, "--principal", w.principal.Address, "--principal-id", env.PrincipalID, "--agent", "edge-1", "-o", "wide"}
	out, err := w.ctl(t, "identity doctor", doctor...)
	if err == nil || !strings.Contains(out, "issues no identity to this process") || !strings.Contains(out, "register this process with SPIRE") {
		t.Fatalf("doctor without an identity: %v\n%s", err, out)
	}
	// Let it have the SVID of the agent.
	flags := append([]string{"--spiffe-id", realID("edge-1"), "--federates-with", env.TrustDomain}, w.at(t, w.far, "agentctl")...)
	if out, err := w.ctl(t, "identity register doctor", flags...); err != nil {
		t.Fatalf("register: %v, %s", err, out)
	}
	known := "ok: principal " + w.principal.Address + " is " + env.PrincipalID + ", and knows our SPIFFE ID for agent edge-1 (managed)\n"
	env.Eventually(t, "the doctor is content", func() error {
		if out, err := w.ctl(t, "identity doctor", doctor...); err != nil || !strings.Contains(out, known) {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	byToken := append([]string{"--method", identity.MethodJWT}, doctor...)
	if out, err := w.ctl(t, "identity doctor", append(byToken, "--principal", w.byToken)...); err != nil || !strings.Contains(out, "for agent edge-1 (managed)\n") {
		t.Errorf("doctor by token: %v\n%s", err, out)
	}
	out, err = w.ctl(t, "identity show --audience x -o wide --socket", w.far.agent.Socket)
	for _, part := range []string{realID("edge-1"), env.ForeignDomain + "   own", env.TrustDomain + "   federated"} {
		if err != nil || !strings.Contains(strings.Join(strings.Fields(out), "   "), part) {
			t.Errorf("show lacks %q: %v\n%s", part, err, out)
		}
	}
	if _, err := w.ctl(t, "identity revoke doctor --spire-server", w.far.api); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the doctor has no identity any more", func() error {
		if out, err := w.ctl(t, "identity doctor", doctor...); err == nil || !strings.Contains(out, "issues no identity to this process") {
			return fmt.Errorf("doctor: %w\n%s", err, out)
		}
		return nil
	})
}

func (w *spireEnv) testAdministrator(t *testing.T) {
	over := []string{"--spire-server", w.near.tcp, "--socket", w.near.agent.Socket}
	w.refuses(t, "register this process with SPIRE", "identity list", over...)
	ops := []string{"--spiffe-id", "spiffe://" + env.TrustDomain + "/ops"}
	if _, err := w.ctl(t, "identity register ops", append(ops, w.at(t, w.near, "agentctl")...)...); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "who is no administrator is told so", func() error {
		if out, err := w.ctl(t, "identity list", over...); err == nil || !strings.Contains(err.Error(), "be an administrator") {
			return fmt.Errorf("list: %w, %s", err, out)
		}
		return nil
	})
	if _, err := w.ctl(t, "identity register ops --admin", append(ops, w.at(t, w.near, "agentctl")...)...); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "an administrator may list", func() error {
		if out, err := w.ctl(t, "identity list --no-headers", over...); err != nil || !strings.Contains(out, env.PrincipalID) {
			return fmt.Errorf("list: %w, %s", err, out)
		}
		return nil
	})
	if _, err := w.ctl(t, "identity revoke ops", over...); err != nil {
		t.Error(err)
	}
}

// Both authorities rotate while SVIDs are renewed, and no one is away. The hub learns of
// the spoke's by what the principal pushes, the spoke of the hub's by polling.
func (w *spireEnv) testRotation(t *testing.T) {
	ctx := t.Context()
	const renewed, bundles, failed = "argomesh_identity_svid_updates_total", "argomesh_identity_bundle_updates_total", "argomesh_identity_handshake_failures_total"
	admins := map[string]string{"principal": w.principal.AdminAddress, "edge-1": w.agents["edge-1"].AdminAddress, "edge-2": w.agents["edge-2"].AdminAddress}
	before := func(name string) map[string]float64 {
		t.Helper()
		values := map[string]float64{}
		for who, admin := range admins {
			n, err := env.Metric(ctx, admin, name)
			if err != nil {
				t.Fatal(err)
			}
			values[who] = n
		}
		return values
	}
	grow := func(name string, from map[string]float64, by float64) {
		t.Helper()
		for who, admin := range admins {
			env.Eventually(t, fmt.Sprintf("%s of %s grows by %v", name, who, by), func() error { return atLeast(ctx, admin, name, from[who]+by) })
		}
	}
	since, from := map[string]string{}, map[string]int64{}
	for name, agent := range w.agents {
		env.Eventually(t, name+" is connected", func() (err error) {
			since[name], err = env.ConnectedSince(ctx, w.hub, name)
			return err
		})
		from[name] = env.FileSize(t, agent.Process)
	}
	wrong := before(failed)["principal"]

	known := before(bundles)
	near, far := w.near.prepare(t), w.far.prepare(t)
	w.far.document(t, w.bundles)
	for _, d := range []*spireDomain{w.near, w.far} {
		w.handsOut(t, d, 2)
	}
	grow(bundles, known, 1) // those of both domains may come at once
	env.Eventually(t, "the principal has pushed", func() error { return w.principalSays(ctx, `argomesh_spire_bundle_pushes_total{result="pushed"} 1`) })
	w.near.activate(t, near)
	w.far.activate(t, far)
	grow(renewed, before(renewed), 3)

	for name, agent := range w.agents {
		w.flows(t, name, "rotated")
		if now, err := env.ConnectedSince(ctx, w.hub, name); err != nil || now != since[name] {
			t.Errorf("%s was away: connected since %q, before %q: %v", name, now, since[name], err)
		}
		proofs := 0
		for _, line := range env.LogLines(t, agent.Process, from[name]) {
			switch message := fmt.Sprint(line["message"]); message {
			case "connected to the principal", "identity proven again":
				proofs++
			case "connection to the principal ended", "cannot connect to the principal":
				t.Errorf("%s: %s: %v", name, message, line["error"])
			}
		}
		if proofs < 2 {
			t.Errorf("%s proved itself %d times", name, proofs)
		}
	}
	if n := before(failed)["principal"]; n != wrong {
		t.Errorf("%v handshakes failed at the principal", n-wrong)
	}
}

// handsOut waits until the SPIRE agent of a domain hands out the bundles of both with so
// many roots in each.
func (w *spireEnv) handsOut(t *testing.T, d *spireDomain, roots int) {
	t.Helper()
	other := map[*spireDomain]*spireDomain{w.near: w.far, w.far: w.near}[d]
	flags := append([]string{"--spiffe-id", "spiffe://" + d.name + "/watcher", "--federates-with", other.name}, w.at(t, d, "agentctl")...)
	if _, err := w.ctl(t, "identity register watcher", flags...); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, fmt.Sprintf("%d roots of each domain are handed out in %s", roots, d.name), func() error {
		out, err := w.ctl(t, "identity show -o json --socket", d.agent.Socket)
		if err != nil {
			return err
		}
		var seen struct {
			Bundles []struct {
				TrustDomain string
				Roots       []any
			}
		}
		if err := json.Unmarshal([]byte(out), &seen); err != nil {
			return err
		}
		if len(seen.Bundles) != 2 || len(seen.Bundles[0].Roots) != roots || len(seen.Bundles[1].Roots) != roots {
			return fmt.Errorf("it hands out %+v", seen.Bundles)
		}
		return nil
	})
	if _, err := w.ctl(t, "identity revoke watcher --spire-server", d.api); err != nil {
		t.Error(err)
	}
}

func (w *spireEnv) testAgentAway(t *testing.T) {
	ctx := t.Context()
	admin := w.agents["edge-1"].AdminAddress
	readiness := func(away bool) func() error {
		return func() error {
			code, body, err := env.Fetch(ctx, "http://"+admin+"/readyz?verbose")
			if err == nil && (code != http.StatusOK || strings.Contains(body, "Workload API") != away) {
				err = fmt.Errorf("/readyz is %d, %s", code, body)
			}
			return err
		}
	}
	if err := w.far.agent.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the agent says that the Workload API is away, and stays ready", readiness(true))
	if err := w.far.agent.Start(ctx); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "all is well again", readiness(false))
	w.flows(t, "edge-1", "awake")
}

// An entry that is taken back ends its agent, and that one alone; given again, the agent
// comes back by itself.
func (w *spireEnv) testRevocation(t *testing.T) {
	ctx := t.Context()
	up := func(name, want string) func() error {
		return func() error {
			got, err := env.Gauge(ctx, w.agents[name].AdminAddress, "argomesh_stream_up")
			if err == nil && got != want {
				err = fmt.Errorf("argomesh_stream_up of %s is %s", name, got)
			}
			return err
		}
	}
	if out, err := w.ctl(t, "identity revoke edge-1 --spire-server", w.far.api); err != nil || !strings.HasSuffix(out, " deleted\n") {
		t.Fatalf("revoke: %v, %s", err, out)
	}
	w.refuses(t, "has nothing that agentctl registered under that name", "identity revoke edge-1 --spire-server", w.far.api)
	env.Eventually(t, "its connection ends", up("edge-1", "0"))
	if code, body, err := env.Fetch(ctx, "http://"+w.agents["edge-1"].AdminAddress+"/readyz"); err != nil || code == http.StatusOK {
		t.Errorf("/readyz is %d, %s, %v without an identity", code, body, err)
	}
	w.flows(t, "edge-2", "alone")
	if err := up("edge-2", "1")(); err != nil {
		t.Error(err)
	}
	w.enrol(t, "edge-1", "created", "unchanged")
	env.Eventually(t, "it is back", up("edge-1", "1"))
	w.flows(t, "edge-1", "back")
}

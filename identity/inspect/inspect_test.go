package inspect_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/inspect"
	"github.com/argomesh/argomesh/test/kit/spiffekit"
)

var (
	hub     = spiffeid.RequireTrustDomainFromString("hub.test")
	spoke   = spiffeid.RequireTrustDomainFromString("spoke.test")
	agentID = spiffeid.RequireFromString("spiffe://spoke.test/argomesh/agent/edge-1")
	otherID = spiffeid.RequireFromString("spiffe://spoke.test/other")
)

func ask(t *testing.T, cfg inspect.Config) (inspect.Offer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return inspect.Ask(ctx, cfg)
}

func TestAskTellsAll(t *testing.T) {
	partner, err := devworkload.New(devworkload.Config{TrustDomain: hub})
	if err != nil {
		t.Fatal(err)
	}
	server, socket := spiffekit.Serve(t, devworkload.Config{TrustDomain: spoke, Entries: []devworkload.Entry{
		{ID: agentID, Hint: "stream", TTL: time.Hour, DNSNames: []string{"edge-1.test"}}, {ID: otherID},
	}})
	if err := server.SetFederated(partner.Bundle()); err != nil {
		t.Fatal(err)
	}
	got, err := ask(t, inspect.Config{Socket: socket, Audience: "spiffe://hub.test/principal"})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.SVIDs) != 2 || len(got.Bundles) != 2 || len(got.JWTSVIDs) != 2 || got.JWTBundlesError+got.JWTSVIDsError != "" {
		t.Fatalf("Ask() = %+v", got)
	}
	first := got.SVIDs[0]
	if first.SPIFFEID != agentID.String() || first.ID() != agentID || first.Hint != "stream" || first.Key != "ECDSA P-256" || first.Chain != 1 ||
		!cmp.Equal(first.DNSNames, []string{"edge-1.test"}) {
		t.Errorf("SVID is %+v", first)
	}
	if left := first.NotAfter.Sub(got.Asked); left < 59*time.Minute || left > time.Hour+time.Second {
		t.Errorf("it is valid for %s more", left)
	}
	for i, want := range []struct {
		td  string
		own bool
	}{{"hub.test", false}, {"spoke.test", true}} {
		b := got.Bundles[i]
		if b.TrustDomain != want.td || b.Own != want.own || len(b.Roots) != 1 || len(b.JWTKeys) != 1 || b.Roots[0].Subject == "" {
			t.Errorf("bundle is %+v, want %v", b, want)
		}
	}
	if jwt := got.JWTSVIDs[0]; jwt.SPIFFEID != agentID.String() || jwt.Hint != "stream" || !cmp.Equal(jwt.Audience, []string{"spiffe://hub.test/principal"}) ||
		!jwt.Expires.After(got.Asked) {
		t.Errorf("JWT-SVID is %+v", jwt)
	}
	if got, err = ask(t, inspect.Config{Socket: socket}); err != nil || len(got.JWTSVIDs) != 0 {
		t.Errorf("without audience: %+v, %v", got.JWTSVIDs, err)
	}
}

func TestAskSaysWhyNot(t *testing.T) {
	_, nobody := spiffekit.Serve(t, devworkload.Config{TrustDomain: spoke})
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", stale)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) //nolint:forcetypeassert // it is one
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	mute := filepath.Join(dir, "mute.sock")
	silent, err := new(net.ListenConfig).Listen(t.Context(), "unix", mute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	tests := map[string]struct {
		socket string
		want   error
	}{
		"no address":   {"", inspect.ErrSocket},
		"a path":       {"/run/x", inspect.ErrSocket},
		"a name":       {"tcp://host:1", inspect.ErrSocket},
		"no socket":    {"unix://" + filepath.Join(dir, "x.sock"), inspect.ErrAbsent},
		"left behind":  {"unix://" + stale, inspect.ErrNobody},
		"no identity":  {nobody, inspect.ErrNoIdentity},
		"says nothing": {"unix://" + mute, inspect.ErrNoAnswer},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			patience := 30 * time.Second
			if errors.Is(tt.want, inspect.ErrNoAnswer) {
				patience = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := inspect.Ask(ctx, inspect.Config{Socket: tt.socket})
			if !errors.Is(err, tt.want) || inspect.Cure(err) == "" {
				t.Errorf("Ask() = %v, cure %q; want %v", err, inspect.Cure(err), tt.want)
			}
		})
	}
	if os.Geteuid() != 0 { // who is root may open everything
		if err := os.Chmod(stale, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := ask(t, inspect.Config{Socket: "unix://" + stale}); !errors.Is(err, inspect.ErrForbidden) {
			t.Errorf("Ask() = %v", err)
		}
	}
	if cure := inspect.Cure(errors.New("x")); cure != "" {
		t.Errorf("Cure() of another error = %q", cure)
	}
}

func TestDiagnose(t *testing.T) {
	server, socket := spiffekit.Serve(t, devworkload.Config{TrustDomain: spoke, Entries: []devworkload.Entry{{ID: agentID, Hint: "a", TTL: time.Hour}}})
	partner, err := devworkload.New(devworkload.Config{TrustDomain: hub})
	if err != nil {
		t.Fatal(err)
	}
	one, err := ask(t, inspect.Config{Socket: socket, Audience: "hub"})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.SetFederated(partner.Bundle()); err != nil {
		t.Fatal(err)
	}
	if err := server.SetEntries([]devworkload.Entry{{ID: agentID, Hint: "a", TTL: time.Hour}, {ID: otherID, Hint: "b"}}); err != nil {
		t.Fatal(err)
	}
	two, err := ask(t, inspect.Config{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	_, other := spiffekit.Serve(t, devworkload.Config{TrustDomain: spoke, Entries: []devworkload.Entry{{ID: agentID}}})
	foreign, err := ask(t, inspect.Config{Socket: other})
	if err != nil {
		t.Fatal(err)
	}
	at := func(o inspect.Offer, when time.Duration) inspect.Offer {
		o.Asked = o.Asked.Add(when)
		return o
	}
	tests := map[string]struct {
		offer  inspect.Offer
		expect inspect.Expectation
		want   []string // level, about: part of what is said
	}{
		"all is well": {one, inspect.Expectation{}, []string{
			"ok " + agentID.String() + ": is the SVID that is used", "ok " + agentID.String() + ": is valid for ",
		}},
		"all is well with a partner": {two, inspect.Expectation{SPIFFEID: agentID, Peers: []spiffeid.TrustDomain{spoke, hub}}, []string{
			"ok " + agentID.String() + ": is the SVID that is used", "ok " + agentID.String() + ": is valid", "ok " + otherID.String() + ": is valid",
			"ok hub.test: is trusted", "ok spoke.test: is trusted",
		}},
		"no bundle of the principal": {one, inspect.Expectation{Peers: []spiffeid.TrustDomain{hub}}, []string{
			"ok ", "ok ", "problem hub.test: is not trusted",
		}},
		"which of two": {two, inspect.Expectation{}, []string{"problem " + socket + ": offers 2 SVIDs", "ok ", "ok "}},
		"by its hint":  {two, inspect.Expectation{Hint: "b"}, []string{"ok " + otherID.String() + ": is the SVID", "ok ", "ok "}},
		"no such hint": {two, inspect.Expectation{Hint: "c"}, []string{"problem hint c: is on no SVID", "ok ", "ok "}},
		"no such id": {one, inspect.Expectation{SPIFFEID: otherID}, []string{
			"problem " + otherID.String() + `: is not offered; offered: ` + agentID.String() + ` (hint "a")`, "ok ",
		}},
		"expired":        {at(one, 2*time.Hour), inspect.Expectation{}, []string{"ok ", "problem " + agentID.String() + ": expired "}},
		"not yet":        {at(one, -time.Hour), inspect.Expectation{}, []string{"ok ", "problem " + agentID.String() + ": is valid only in "}},
		"not renewed":    {at(one, 45*time.Minute), inspect.Expectation{}, []string{"ok ", "warning " + agentID.String() + ": expires in 1"}},
		"about renewed":  {at(one, 35*time.Minute), inspect.Expectation{}, []string{"ok ", "ok " + agentID.String() + ": is valid for 2"}},
		"after 20 years": {at(one, 20*365*24*time.Hour), inspect.Expectation{}, []string{"ok ", "problem ", "problem spoke.test: has only roots that have expired"}},
		"with JWT": {one, inspect.Expectation{JWT: true}, []string{
			"ok ", "ok ", "ok " + agentID.String() + ": has a JWT-SVID for hub, valid for ",
		}},
		"with JWT that expired": {at(one, 10*time.Minute), inspect.Expectation{JWT: true}, []string{
			"ok ", "ok ", "problem " + agentID.String() + ": has a JWT-SVID that has expired",
		}},
		"without JWT": {without(one), inspect.Expectation{JWT: true}, []string{
			"ok ", "ok ", "problem " + socket + ": hands out no JWT bundles: away", "problem " + socket + ": hands out no JWT-SVIDs: away too",
		}},
		"a bundle of another authority": {inspect.WithBundlesOf(one, foreign), inspect.Expectation{}, []string{"ok ", "problem " + agentID.String() + ": does not stand up"}},
		"bundles without keys": {keyless(two), inspect.Expectation{SPIFFEID: agentID, Peers: []spiffeid.TrustDomain{hub}}, []string{
			"ok ", "ok ", "ok ", "problem hub.test: has a bundle without X.509 keys", "warning spoke.test: has no JWT keys", "problem hub.test: is not trusted",
		}},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			found := inspect.Diagnose(tt.offer, tt.expect)
			worst := inspect.Fine
			for i, f := range found {
				line := string(f.Level) + " " + f.About + ": " + f.Says
				if i >= len(tt.want) || !strings.HasPrefix(line, tt.want[i]) {
					t.Errorf("finding %d is %q", i, line)
				}
				if (f.Cure == "") != (f.Level == inspect.Fine) || strings.Contains(line+f.Cure, "\n") {
					t.Errorf("%q has the cure %q", line, f.Cure)
				}
				if f.Level == inspect.Problem || worst == inspect.Fine {
					worst = f.Level
				}
			}
			if len(found) < len(tt.want) {
				t.Errorf("missing: %q", tt.want[len(found):])
			}
			if got := inspect.Worst(found); got != worst {
				t.Errorf("Worst() = %s, want %s", got, worst)
			}
		})
	}
	if _, ok := (inspect.Expectation{}).Chosen(two); ok {
		t.Error("one of two was chosen")
	}
	if svid, ok := (inspect.Expectation{Hint: "b"}).Chosen(two); !ok || svid.ID() != otherID {
		t.Errorf("Chosen() = %v, %t", svid, ok)
	}
}

func without(o inspect.Offer) inspect.Offer {
	o.JWTBundlesError, o.JWTSVIDsError, o.JWTSVIDs = "away", "away too", nil
	return o
}

func keyless(o inspect.Offer) inspect.Offer {
	o.Bundles = append([]inspect.Bundle{}, o.Bundles...)
	o.Bundles[0].Roots, o.Bundles[1].JWTKeys = nil, nil
	return o
}

// A process says of what it holds what the doctor says of what is handed out, each with its reason.
func TestDiagnoseHeld(t *testing.T) {
	_, socket := spiffekit.Serve(t, devworkload.Config{TrustDomain: spoke, Entries: []devworkload.Entry{{ID: agentID, TTL: time.Hour}}})
	x, err := inspect.X509Context(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	for title, tt := range map[string]struct {
		jwt   *jwtbundle.Set
		peers []spiffeid.TrustDomain
		after time.Duration
		want  []string
	}{
		"all is well":            {want: []string{"ok SVIDExpired"}},
		"a peer, named twice":    {peers: []spiffeid.TrustDomain{spoke, spoke}, want: []string{"ok SVIDExpired", "ok BundleMissing"}},
		"a peer without bundle":  {peers: []spiffeid.TrustDomain{hub}, want: []string{"ok SVIDExpired", "problem BundleMissing"}},
		"expired":                {after: 2 * time.Hour, want: []string{"problem SVIDExpired"}},
		"not renewed":            {after: 45 * time.Minute, want: []string{"warning SVIDExpiring"}},
		"not yet":                {after: -time.Hour, want: []string{"problem SVIDInvalid"}},
		"after 20 years":         {after: 20 * 365 * 24 * time.Hour, want: []string{"problem SVIDExpired", "problem BundleExpired"}},
		"JWT keys that it needs": {jwt: jwtbundle.NewSet(), want: []string{"ok SVIDExpired", "warning JWTKeysMissing"}},
	} {
		t.Run(title, func(t *testing.T) {
			var got []string
			for _, f := range inspect.DiagnoseHeld(x, tt.jwt, tt.peers, time.Now().Add(tt.after)).Findings {
				got = append(got, string(f.Level)+" "+f.Reason)
				if (f.Cure == "") != (f.Level == inspect.Fine) || f.Says == "" || f.About == "" {
					t.Errorf("it says %+v", f)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}
		})
	}
	if got := inspect.DiagnoseHeld(&workloadapi.X509Context{Bundles: x.Bundles}, nil, nil, time.Now()); got.Findings != nil {
		t.Errorf("without an SVID it says %+v", got)
	}
}

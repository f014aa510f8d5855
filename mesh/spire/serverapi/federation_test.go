package serverapi_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/mesh/spire/serverapi"
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
)

func ignore[T any](diff.Change[T]) {}

func federate(t testing.TB, client *serverapi.Client, overwrite bool, desired ...spire.Federation) (map[string]diff.Action, error) {
	t.Helper()
	observed, err := client.Federations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := map[string]diff.Action{}
	err = client.ApplyFederations(t.Context(), spire.PlanFederations(desired, observed, overwrite), func(c diff.Change[spire.Federation]) { done[c.Name] = c.Action })
	return done, err
}

func TestFederationComesAndGoes(t *testing.T) {
	server, client := start(t)
	want := spiretest.Federation(t, partner)
	done, err := federate(t, client, false, want)
	if diff := cmp.Diff(map[string]diff.Action{"federation/partner.test": diff.Create}, done); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
	stored := server.Relationships()["partner.test"]
	if stored.GetBundleEndpointUrl() != "https://partner.test:8443/" || stored.GetHttpsSpiffe().GetEndpointSpiffeId() != "spiffe://partner.test/spire/server" {
		t.Errorf("stored: %v", stored)
	}
	b, err := client.FederatedBundle(t.Context(), partner)
	if err != nil || !b.Equal(want.Bundle) {
		t.Errorf("FederatedBundle() = %v, %v", b, err)
	}
	if done, err := federate(t, client, false, want); err != nil || len(done) != 0 {
		t.Errorf("again: %v, %v", done, err)
	}

	other := want
	other.EndpointURL, other.EndpointID = "https://new.partner.test/", spiffeid.ID{}
	if done, err := federate(t, client, false, other); !errors.Is(err, spire.ErrRefused) || len(done) != 0 {
		t.Errorf("otherwise: %v, %v", done, err)
	}
	if done, err := federate(t, client, true, other); err != nil || len(done) != 1 {
		t.Errorf("otherwise, insisting: %v, %v", done, err)
	}
	stored = server.Relationships()["partner.test"]
	if stored.GetBundleEndpointUrl() != "https://new.partner.test/" || stored.GetHttpsWeb() == nil {
		t.Errorf("stored: %v", stored)
	}
	if err := client.RefreshBundle(t.Context(), partner); err != nil {
		t.Error(err)
	}

	if err := client.DeleteFederation(t.Context(), partner); err != nil {
		t.Fatal(err)
	}
	if err := client.DeleteFederation(t.Context(), partner); !errors.Is(err, spire.ErrNotFound) {
		t.Errorf("again: %v", err)
	}
	if err := client.RefreshBundle(t.Context(), partner); !errors.Is(err, spire.ErrNotFound) {
		t.Error(err)
	}
	if _, err := client.FederatedBundle(t.Context(), partner); err != nil {
		t.Errorf("the bundle stays, but: %v", err)
	}
	// Entries of anyone who hold it back.
	r := spiretest.Entries(t, spiretest.Registration(func(r *spire.Registration) { r.FederatesWith = []spiffeid.TrustDomain{partner} }))
	if _, err := reconcile(t, client, edge, r); err != nil {
		t.Fatal(err)
	}
	if err := client.DeleteBundle(t.Context(), partner); !errors.Is(err, spire.ErrInUse) {
		t.Errorf("DeleteBundle() = %v", err)
	}
	if _, err := reconcile(t, client, edge, nil); err != nil {
		t.Fatal(err)
	}
	if err := client.DeleteBundle(t.Context(), partner); err != nil {
		t.Error(err)
	}
	if err := client.DeleteBundle(t.Context(), partner); !errors.Is(err, spire.ErrNotFound) {
		t.Errorf("again: %v", err)
	}
}

// A partner with whom something is wrong holds up no other.
func TestPartnersAreApart(t *testing.T) {
	server, client := start(t)
	bad := spiretest.Federation(t, own) // the server's own
	done, err := federate(t, client, false, bad, spiretest.Federation(t, partner), spiretest.Federation(t, other))
	if !errors.Is(err, spire.ErrInvalid) || !strings.Contains(err.Error(), "federation/own.test") {
		t.Errorf("error is %v", err)
	}
	if len(done) != 2 || len(server.Relationships()) != 2 {
		t.Errorf("done: %v", done)
	}
	var pushed []string
	err = client.ApplyBundles(t.Context(), spire.PlanBundles(spiretest.Bundles(t, own, partner, other), nil, false), func(c diff.Change[*spiffebundle.Bundle]) {
		pushed = append(pushed, c.Name)
	})
	if !errors.Is(err, spire.ErrInvalid) || len(pushed) != 2 {
		t.Errorf("pushed %v, %v", pushed, err)
	}
}

// Someone federates between our look and our call: the server then says Internal.
func TestFederationMeetsWhatIsThere(t *testing.T) {
	_, client := start(t)
	want := spiretest.Federation(t, partner)
	plan := spire.PlanFederations([]spire.Federation{want}, nil, false)
	if err := client.ApplyFederations(t.Context(), plan, ignore); err != nil {
		t.Fatal(err)
	}
	if err := client.ApplyFederations(t.Context(), plan, ignore); err != nil {
		t.Errorf("the same: %v", err)
	}
	want.EndpointURL = "https://elsewhere.test/"
	if err := client.ApplyFederations(t.Context(), spire.PlanFederations([]spire.Federation{want}, nil, false), ignore); !errors.Is(err, spire.ErrExists) {
		t.Errorf("otherwise: %v", err)
	}
}

func TestBundleUpdatesArePushed(t *testing.T) {
	_, client := start(t)
	push := func(b *spiffebundle.Bundle, overwrite bool) (diff.Action, error) {
		t.Helper()
		observed, err := client.FederatedBundles(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		plan := spire.PlanBundles([]*spiffebundle.Bundle{b}, observed, overwrite)
		return plan[0].Action, client.ApplyBundles(t.Context(), plan, ignore)
	}
	first, second := spiretest.NewBundle(t, partner), spiretest.NewBundle(t, partner)
	second.SetSequenceNumber(8)
	for _, step := range []struct {
		what      string
		bundle    *spiffebundle.Bundle
		overwrite bool
		want      diff.Action
		err       error
	}{
		{"first", first, false, diff.Create, nil},
		{"again", first, false, diff.Keep, nil},
		{"the next", second, false, diff.Update, nil},
		{"an older one", first, false, diff.Refuse, spire.ErrRefused},
		{"an older one, insisting", first, true, diff.Update, nil},
	} {
		if action, err := push(step.bundle, step.overwrite); action != step.want || !errors.Is(err, step.err) {
			t.Errorf("%s: %s, %v", step.what, action, err)
		}
	}
	if b, err := client.FederatedBundle(t.Context(), partner); err != nil || !b.Equal(first) {
		t.Errorf("FederatedBundle() = %v, %v", b, err)
	}
	// More than a page.
	if err := client.ApplyBundles(t.Context(), spire.PlanBundles(spiretest.Bundles(t, other, spiffeid.RequireTrustDomainFromString("third.test")), nil, false), ignore); err != nil {
		t.Fatal(err)
	}
	if all, err := client.FederatedBundles(t.Context()); err != nil || len(all) != 3 {
		t.Errorf("FederatedBundles() = %d, %v", len(all), err)
	}
}

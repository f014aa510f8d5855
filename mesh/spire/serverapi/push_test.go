package serverapi_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/mesh/spire/serverapi"
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
	"github.com/argomesh/argomesh/test/kit"
)

// generation returns the bundle of a trust domain with new keys, under a number; 0 for
// none.
func generation(t testing.TB, td spiffeid.TrustDomain, number uint64) *spiffebundle.Bundle {
	t.Helper()
	b := spiretest.NewBundle(t, td)
	b.SetSequenceNumber(number)
	if number == 0 {
		b.ClearSequenceNumber()
	}
	return b
}

func TestPlanPush(t *testing.T) {
	first, second := generation(t, partner, 1), generation(t, partner, 2)
	unnumbered, same := generation(t, partner, 0), generation(t, partner, 2)
	empty := spiffebundle.New(partner)
	empty.SetSequenceNumber(9)
	for name, tt := range map[string]struct {
		want, have *spiffebundle.Bundle
		action     diff.Action
		reason     string
	}{
		"the first":                               {first, nil, diff.Create, ""},
		"the first, without a number":             {unnumbered, nil, diff.Create, ""},
		"a newer one":                             {second, first, diff.Update, ""},
		"one for a bundle without a number":       {second, unnumbered, diff.Update, ""},
		"the same keys":                           {second, second, diff.Keep, ""},
		"the server polled a newer one":           {first, second, diff.Keep, "newer"},
		"other keys, without a number":            {unnumbered, first, diff.Refuse, "no spiffe_sequence"},
		"other keys, under the server's number":   {same, second, diff.Refuse, "same spiffe_sequence 2"},
		"a bundle that would revoke all":          {empty, first, diff.Refuse, "no X.509 key"},
		"the first bundle, that would trust none": {empty, nil, diff.Refuse, "no X.509 key"},
	} {
		t.Run(name, func(t *testing.T) {
			var observed []*spiffebundle.Bundle
			if tt.have != nil {
				observed = append(observed, tt.have)
			}
			// Another one, which is well, is not held up.
			plan := serverapi.PlanPush([]*spiffebundle.Bundle{tt.want, generation(t, other, 1)}, observed)
			got := map[string]diff.Change[*spiffebundle.Bundle]{}
			for _, change := range plan {
				got[change.Name] = change
			}
			change := got["bundle/"+partner.Name()]
			if change.Action != tt.action || !strings.Contains(change.Reason, tt.reason) || (tt.reason == "") != (change.Reason == "") {
				t.Errorf("PlanPush() is %s, %q; want %s, %q", change.Action, change.Reason, tt.action, tt.reason)
			}
			if got := got["bundle/"+other.Name()].Action; got != diff.Create {
				t.Errorf("the other one is %s", got)
			}
		})
	}
}

// pushing is a Pusher that runs.
type pushing struct {
	*serverapi.Pusher
	metrics *prometheus.Registry

	mu      sync.Mutex // guards what follows
	desired []*spiffebundle.Bundle
	problem error
}

func (p *pushing) want(problem error, desired ...*spiffebundle.Bundle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.desired, p.problem = desired, problem
}

// push runs a Pusher for a server until the test ends.
func push(t *testing.T, address string) *pushing {
	t.Helper()
	p := &pushing{metrics: prometheus.NewRegistry()}
	var err error
	p.Pusher, err = serverapi.NewPusher(serverapi.PusherConfig{
		Connect: func(context.Context) (*serverapi.Client, error) {
			return serverapi.NewClient(serverapi.ClientConfig{Address: address, CallTimeout: 30 * time.Second})
		},
		Desired: func() ([]*spiffebundle.Bundle, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.desired, p.problem
		},
		Every: 5 * time.Millisecond, Metrics: p.metrics, Log: zerolog.New(zerolog.NewTestWriter(t)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Degraded(); err != nil {
			t.Errorf("Degraded() = %v after Run", err)
		}
	})
	kit.Background(t, p.Run)
	return p
}

// becomes waits until the metrics of a Pusher are these.
func (p *pushing) becomes(t *testing.T, current, older, failed string) {
	t.Helper()
	want := "# HELP argomesh_spire_bundles Bundles of other trust domains that are pushed to the SPIRE server, by how the server has them: current, older (than the server's), failed.\n" +
		"# TYPE argomesh_spire_bundles gauge\n" +
		`argomesh_spire_bundles{state="current"} ` + current + "\n" + `argomesh_spire_bundles{state="failed"} ` + failed + "\n" + `argomesh_spire_bundles{state="older"} ` + older + "\n"
	kit.EventuallyNil(t, "a condition", func() error {
		return testutil.GatherAndCompare(p.metrics, strings.NewReader(want), "argomesh_spire_bundles")
	})
}

// degrades waits until Degraded says a text, or nothing when that is empty.
func (p *pushing) degrades(t *testing.T, text string) {
	t.Helper()
	kit.EventuallyNil(t, "a condition", func() error {
		switch err := p.Degraded(); {
		case err == nil && text != "":
			return errors.New("it is not degraded")
		case err != nil && (text == "" || !strings.Contains(err.Error(), text)):
			return err
		}
		return nil
	})
}

// held returns how many roots the server trusts of a trust domain, and its number.
func held(server *spiretest.Server, td spiffeid.TrustDomain) (roots int, number uint64) {
	b := server.FederatedBundles()[td.Name()]
	return len(b.GetX509Authorities()), b.GetSequenceNumber()
}

func TestPusher(t *testing.T) {
	server := spiretest.New(own)
	p := push(t, serve(t, server))
	p.becomes(t, "0", "0", "0")

	first, second, third := generation(t, partner, 1), generation(t, partner, 2), generation(t, partner, 3)
	p.want(nil, first, generation(t, other, 7))
	p.becomes(t, "2", "0", "0")
	p.want(nil, second)
	kit.EventuallyNil(t, "a condition", func() error {
		if roots, number := held(server, partner); roots != 1 || number != 2 {
			return errors.New("the newer bundle is not there")
		}
		return nil
	})
	if _, number := held(server, other); number != 7 {
		t.Error("a bundle that is wanted no more was touched")
	}

	// The server polls by itself, and is ahead.
	client := connect(t, serverapi.ClientConfig{Address: serve(t, server)})
	if err := client.ApplyBundles(t.Context(), spire.PlanBundles([]*spiffebundle.Bundle{third}, nil, true), func(diff.Change[*spiffebundle.Bundle]) {}); err != nil {
		t.Fatal(err)
	}
	p.becomes(t, "0", "1", "0")
	p.degrades(t, "")
	if _, number := held(server, partner); number != 3 {
		t.Errorf("the server has number %d: it went back", number)
	}

	// What cannot be read or pushed holds up nothing else.
	p.want(errors.New("gone.json: cannot be read"), generation(t, own, 1), generation(t, partner, 0), generation(t, other, 8))
	p.becomes(t, "1", "0", "2")
	for _, text := range []string{"gone.json", "no spiffe_sequence", "own trust domain"} {
		p.degrades(t, text)
	}
	if _, number := held(server, other); number != 8 {
		t.Error("the one that is well was held up")
	}
	p.want(nil, third)
	p.becomes(t, "1", "0", "0")
	p.degrades(t, "")

	// Nothing is written when nothing changes.
	before := strings.Count(strings.Join(server.Calls(), " "), "BatchSetFederatedBundle")
	asked := len(server.Calls())
	kit.EventuallyNil(t, "a condition", func() error {
		if len(server.Calls()) < asked+3 {
			return errors.New("it does not look")
		}
		return nil
	})
	if now := strings.Count(strings.Join(server.Calls(), " "), "BatchSetFederatedBundle"); now != before {
		t.Errorf("it wrote %d times", now-before)
	}
}

func TestPusherWithoutRights(t *testing.T) {
	server := spiretest.New(own)
	p := push(t, serve(t, server))
	p.want(nil, generation(t, partner, 1))
	p.becomes(t, "1", "0", "0")
	server.SetIntercept(func(context.Context, string) error {
		return status.Error(codes.PermissionDenied, "authorization denied")
	})
	p.degrades(t, "not an administrator")
	kit.EventuallyNil(t, "a condition", func() error {
		if failures(t, p.metrics) == 0 {
			return errors.New("no failure is counted")
		}
		return nil
	})
	server.SetIntercept(func(context.Context, string) error { return status.Error(codes.Unavailable, "it restarts") })
	p.degrades(t, "not available")
	server.SetIntercept(nil)
	p.degrades(t, "")
}

// failures is the counter of passes that failed.
func failures(t *testing.T, metrics *prometheus.Registry) (n float64) {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "argomesh_spire_bundle_pushes_total" && m.GetLabel()[0].GetValue() == "failed" {
				n = m.GetCounter().GetValue()
			}
		}
	}
	return n
}

func TestPusherIsChecked(t *testing.T) {
	for name, cfg := range map[string]serverapi.PusherConfig{
		"nothing":  {},
		"negative": {Connect: func(context.Context) (*serverapi.Client, error) { return nil, nil }, Desired: func() ([]*spiffebundle.Bundle, error) { return nil, nil }, Metrics: prometheus.NewRegistry(), Every: -1},
	} {
		if _, err := serverapi.NewPusher(cfg); !errors.Is(err, spire.ErrInvalid) {
			t.Errorf("%s: NewPusher() = %v", name, err)
		}
	}
}

package workload_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	workloadpb "github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"

	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/test/kit"
)

func TestSourceStartsBeforeTheSocket(t *testing.T) {
	t.Parallel()
	a := newAPI(t, devworkload.Config{Entries: entries(principal)})
	s := run(t, workload.Config{Socket: a.socket()})

	s.waitFor(t, "the absence to be noticed", func() bool { return strings.Contains(s.Ready().Error(), "no Workload API at the socket") })
	err := s.Ready()
	if !errors.Is(err, workload.ErrNotReady) || !strings.Contains(err.Error(), a.socket()) || !strings.Contains(err.Error(), "identity.socket") {
		t.Errorf("Ready() = %v, want ErrNotReady that names the socket and the key", err)
	}
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := s.WaitReady(short); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, workload.ErrNotReady) {
		t.Errorf("WaitReady() = %v, want DeadlineExceeded and ErrNotReady", err)
	}
	if id, err := s.WaitID(short); !errors.Is(err, context.DeadlineExceeded) || !id.IsZero() {
		t.Errorf("WaitID() = %v, %v, want DeadlineExceeded", id, err)
	}
	if _, err := s.GetX509SVID(); !errors.Is(err, workload.ErrNotReady) {
		t.Errorf("GetX509SVID() = %v", err)
	}
	if _, err := s.GetX509BundleForTrustDomain(domain); !errors.Is(err, workload.ErrNoBundle) {
		t.Errorf("GetX509BundleForTrustDomain() = %v", err)
	}
	for range 3 { // three more attempts
		updated := s.Updated()
		<-updated
	}
	warnings := s.log.Find("level", "warn")
	if len(warnings) != 1 || !strings.Contains(warnings[0]["message"].(string), "start the SPIRE agent or set identity.socket") ||
		warnings[0]["socket"] != a.socket() {
		t.Errorf("several attempts log %v, want one warning with socket and cure", warnings)
	}

	a.start()
	if err := s.WaitReady(kit.Context(t)); err != nil {
		t.Fatal(err)
	}
	if svid, err := s.GetX509SVID(); err != nil || svid.ID != principal {
		t.Errorf("GetX509SVID() = %v, %v", svid, err)
	}
	if id, err := s.WaitID(kit.Context(t)); err != nil || id != principal {
		t.Errorf("WaitID() = %v, %v", id, err)
	}
	if err := s.Degraded(); err != nil {
		t.Errorf("Degraded() = %v", err)
	}
	if got := s.log.Find("message", "SVID received"); len(got) != 1 || got[0]["level"] != "info" || got[0]["spiffe_id"] != principal.String() {
		t.Errorf("log of the first svid: %v", got)
	}
}

func TestSourceSaysWhatIsWrongWithTheSocket(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	t.Run("nobody serves it", func(t *testing.T) {
		path := dir + "/stale"
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		s := run(t, workload.Config{Socket: "unix://" + path})
		s.waitFor(t, "its message", func() bool { return strings.Contains(s.Ready().Error(), "nothing listens on the Workload API socket") })
	})
	t.Run("it may not be opened", func(t *testing.T) {
		if os.Getuid() == 0 {
			t.Skip("root may open every socket")
		}
		path := dir + "/locked"
		if _, err := devworkload.Listen(context.Background(), path, 0); err != nil {
			t.Fatal(err)
		}
		s := run(t, workload.Config{Socket: "unix://" + path})
		s.waitFor(t, "its message", func() bool { return strings.Contains(s.Ready().Error(), "may not open") })
	})
	t.Run("something else serves it", func(t *testing.T) {
		path := dir + "/other"
		l, err := devworkload.Listen(context.Background(), path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		other := grpc.NewServer()
		kit.Serve(t, other, l)
		s := run(t, workload.Config{Socket: "unix://" + path})
		s.waitFor(t, "its message", func() bool {
			return strings.Contains(s.Ready().Error(), "the server on the socket is not a Workload API")
		})
	})
	t.Run("it accepts and says nothing", func(t *testing.T) {
		path := dir + "/mute"
		l, err := devworkload.Listen(context.Background(), path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		s := run(t, workload.Config{Socket: "unix://" + path})
		s.waitFor(t, "its message", func() bool { return strings.Contains(s.Ready().Error(), "the Workload API does not answer") })
	})
	t.Run("it speaks grpc and sends no svid", func(t *testing.T) {
		path := dir + "/slow"
		l, err := devworkload.Listen(context.Background(), path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		slow := grpc.NewServer()
		workloadpb.RegisterSpiffeWorkloadAPIServer(slow, silentAPI{})
		kit.Serve(t, slow, l)
		s := run(t, workload.Config{Socket: "unix://" + path})
		s.waitFor(t, "its message", func() bool { return strings.Contains(s.Ready().Error(), "the Workload API does not answer") })
		if warnings := s.log.Find("level", "warn"); len(warnings) != 1 {
			t.Errorf("log %v, want one warning", warnings)
		}
	})
}

// silentAPI takes every watch and never answers.
type silentAPI struct {
	workloadpb.UnimplementedSpiffeWorkloadAPIServer
}

func (silentAPI) FetchX509SVID(_ *workloadpb.X509SVIDRequest, stream grpc.ServerStreamingServer[workloadpb.X509SVIDResponse]) error {
	<-stream.Context().Done()
	return stream.Context().Err()
}

func TestSourceChoosesAmongSeveral(t *testing.T) {
	t.Parallel()
	web := spiffeid.RequireFromString("spiffe://hub.test/web")
	a := newAPI(t, devworkload.Config{Entries: []devworkload.Entry{{ID: web, Hint: "web"}, {ID: principal, Hint: "stream"}}}).start()

	none := run(t, workload.Config{Socket: a.socket()})
	none.waitFor(t, "the lack of a choice", func() bool { return strings.Contains(none.Ready().Error(), "choose one") })
	for _, want := range []string{"identity.spiffe_id", "identity.hint", web.String(), principal.String()} {
		if err := none.Ready(); !strings.Contains(err.Error(), want) {
			t.Errorf("Ready() = %v, want it to name %s", err, want)
		}
	}
	if line := none.log.Wait(t, "message", "no SVID could be chosen"); !strings.Contains(line["error"].(string), web.String()) {
		t.Errorf("log does not name what is offered: %v", line)
	}

	byID := ready(t, workload.Config{Socket: a.socket(), SPIFFEID: principal})
	byHint := ready(t, workload.Config{Socket: a.socket(), Hint: "stream"})
	for _, s := range []*testSource{byID, byHint} {
		if svid, err := s.GetX509SVID(); err != nil || svid.ID != principal {
			t.Errorf("GetX509SVID() = %v, %v", svid, err)
		}
	}

	// The one it uses goes, another stays: it must not fall back to that.
	if err := a.SetEntries(entries(web)); err != nil {
		t.Fatal(err)
	}
	byID.waitFor(t, "the loss", func() bool { return errors.Is(byID.Ready(), workload.ErrNotReady) })
	if err := byID.Ready(); !strings.Contains(err.Error(), "identity.spiffe_id "+principal.String()) {
		t.Errorf("Ready() = %v", err)
	}
	none.waitFor(t, "the only one", func() bool { return none.Ready() == nil })
}

func TestSourceDropsAnIdentityThatWasRemoved(t *testing.T) {
	t.Parallel()
	a := newAPI(t, devworkload.Config{Entries: entries(principal)}).start()
	s := ready(t, workload.Config{Socket: a.socket()})
	if up, _ := s.metric(t, "argomesh_identity_workload_api_up", ""); up != 1 {
		t.Errorf("workload_api_up = %v", up)
	}
	svid, err := s.GetX509SVID()
	if err != nil {
		t.Fatal(err)
	}
	notAfter, ok := s.metric(t, "argomesh_svid_not_after_timestamp_seconds", principal.String())
	if want := float64(svid.Certificates[0].NotAfter.Unix()); !ok || notAfter != want {
		t.Errorf("svid_not_after = %v, %t, want %v", notAfter, ok, want)
	}

	if err := a.SetEntries(nil); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "the loss", func() bool { return s.Ready() != nil })
	if err := s.Ready(); !errors.Is(err, workload.ErrNotReady) || !strings.Contains(err.Error(), "issues no identity") ||
		!strings.Contains(err.Error(), "register it") {
		t.Errorf("Ready() = %v", err)
	}
	if _, err := s.GetX509SVID(); !errors.Is(err, workload.ErrNotReady) {
		t.Errorf("GetX509SVID() = %v", err)
	}
	if _, err := s.GetX509BundleForTrustDomain(domain); !errors.Is(err, workload.ErrNoBundle) {
		t.Errorf("GetX509BundleForTrustDomain() = %v", err)
	}
	if _, ok := s.metric(t, "argomesh_svid_not_after_timestamp_seconds", ""); ok {
		t.Error("the metric of a lost svid stays")
	}
	if up, _ := s.metric(t, "argomesh_identity_workload_api_up", ""); up != 0 {
		t.Errorf("workload_api_up = %v", up)
	}

	if err := a.SetEntries(entries(principal)); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitReady(kit.Context(t)); err != nil {
		t.Errorf("after registering again: %v", err)
	}
}

func TestSourceOutlivesTheWorkloadAPI(t *testing.T) {
	t.Parallel()
	a := newAPI(t, devworkload.Config{Entries: entries(principal), X509TTL: 4 * time.Second}).start()
	s := ready(t, workload.Config{Socket: a.socket()})
	a.stop()
	s.waitFor(t, "the loss of the API to be seen", func() bool { return s.Degraded() != nil })
	if err := s.Ready(); err != nil {
		t.Errorf("Ready() = %v while the svid is valid and the api away", err)
	}
	if bundles, _ := s.metric(t, "argomesh_identity_bundles", ""); bundles != 1 {
		t.Errorf("bundles = %v, want 1", bundles)
	}

	s.waitFor(t, "the svid to expire", func() bool { return s.Ready() != nil })
	if err := s.Ready(); !errors.Is(err, workload.ErrNotReady) || !strings.Contains(err.Error(), "expired at") ||
		!strings.Contains(err.Error(), "no Workload API at the socket") {
		t.Errorf("Ready() = %v", err)
	}
	s.log.Wait(t, "message", "SVID has expired")

	begin := time.Now()
	a.start()
	if err := s.WaitReady(kit.Context(t)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("ready %s after the api came back, want at most 10s", took)
	}
	if err := s.Degraded(); err != nil {
		t.Errorf("Degraded() = %v", err)
	}
}

func TestSourceFollowsRenewalAndFederation(t *testing.T) {
	t.Parallel()
	a := newAPI(t, devworkload.Config{Entries: entries(principal), X509TTL: 3 * time.Second}).start()
	s := ready(t, workload.Config{Socket: a.socket()})
	svid, err := s.GetX509SVID()
	if err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "a renewal", func() bool {
		if err := s.Ready(); err != nil {
			t.Fatalf("not ready in between: %v", err)
		}
		next, err := s.GetX509SVID()
		return err == nil && !next.Certificates[0].Equal(svid.Certificates[0])
	})

	foreign := spiffeid.RequireTrustDomainFromString("edge.test")
	other := newAPI(t, devworkload.Config{TrustDomain: foreign})
	if err := a.SetFederated(other.Bundle()); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "the foreign bundle", func() bool { _, err := s.GetX509BundleForTrustDomain(foreign); return err == nil })
	if bundles, _ := s.metric(t, "argomesh_identity_bundles", ""); bundles != 2 {
		t.Errorf("bundles = %v, want 2", bundles)
	}
	if updates, _ := s.metric(t, "argomesh_identity_bundle_updates_total", ""); updates < 2 {
		t.Errorf("bundle_updates_total = %v, want at least 2", updates)
	}
	if updates, _ := s.metric(t, "argomesh_identity_svid_updates_total", ""); updates < 2 {
		t.Errorf("svid_updates_total = %v, want at least 2", updates)
	}
	if err := a.SetFederated(); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "the foreign bundle to go", func() bool { _, err := s.GetX509BundleForTrustDomain(foreign); return err != nil })
}

func TestSourceBeforeRun(t *testing.T) {
	s, err := workload.New(workload.Config{Socket: "unix:///nowhere", Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(); !errors.Is(err, workload.ErrNotReady) || !strings.Contains(err.Error(), "waiting for the first answer") {
		t.Errorf("Ready() = %v", err)
	}
}

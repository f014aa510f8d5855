package serverapi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/spire-api-sdk/proto/spire/api/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/mesh/spire/serverapi"
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
)

func TestRegistrationComesAndGoes(t *testing.T) {
	server, client := start(t)
	foreign(t, server, func(e *types.Entry) { e.Id, e.SpiffeId.Path = "theirs", "/other" })
	id := spire.EntryID(edge, edgeID, node)

	steps := []struct {
		what   string
		change func(*spire.Registration)
		want   map[string]diff.Action
	}{
		{"first", nil, map[string]diff.Action{"entry/" + id: diff.Create}},
		{"again", nil, map[string]diff.Action{}},
		{"another life", func(r *spire.Registration) { r.X509TTL = time.Hour },
			map[string]diff.Action{"entry/" + id: diff.Update}},
		{"another node", func(r *spire.Registration) { r.ParentIDs = []spiffeid.ID{alias} }, map[string]diff.Action{
			"entry/" + spire.EntryID(edge, edgeID, alias): diff.Create, "entry/" + id: diff.Delete,
		}},
		{"two IDs", func(r *spire.Registration) { r.IDs = append(r.IDs, newID) }, map[string]diff.Action{
			"entry/" + spire.EntryID(edge, edgeID, alias): diff.Delete, "entry/" + id: diff.Create,
			"entry/" + spire.EntryID(edge, newID, node): diff.Create,
		}},
	}
	for _, step := range steps {
		done, err := reconcile(t, client, edge, spiretest.Entries(t, spiretest.Registration(step.change)))
		if err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if diff := cmp.Diff(step.want, done); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", step.what, diff)
		}
	}
	if done, err := reconcile(t, client, edge, nil); err != nil || len(done) != 2 {
		t.Fatalf("revoked %v, %v", done, err)
	}
	if left := server.Entries(); len(left) != 1 || left[0].GetId() != "theirs" || left[0].GetRevisionNumber() != 0 {
		t.Errorf("what is left: %v", left)
	}
}

func TestEveryFieldArrives(t *testing.T) {
	server, client := start(t)
	if err := client.ApplyBundles(t.Context(), spire.PlanBundles(spiretest.Bundles(t, partner), nil, false),
		ignore); err != nil {
		t.Fatal(err)
	}
	r := spiretest.Registration(func(r *spire.Registration) {
		r.X509TTL, r.JWTTTL, r.FederatesWith = time.Hour, 5*time.Minute, []spiffeid.TrustDomain{partner}
		r.DNSNames, r.Hint, r.Admin = []string{"edge-1.test", "*.edge-1.test"}, "stream", true
	})
	if _, err := reconcile(t, client, edge, spiretest.Entries(t, r)); err != nil {
		t.Fatal(err)
	}
	stored := server.Entries()[0]
	got := fmt.Sprintf("%s %s%s %s %v %d %d %v %v %q %v", stored.GetId(), stored.GetSpiffeId().
		GetTrustDomain(), stored.GetSpiffeId().GetPath(),
		stored.GetParentId().GetPath(), selectorTexts(stored), stored.GetX509SvidTtl(), stored.GetJwtSvidTtl(),
		stored.GetFederatesWith(),
		stored.GetDnsNames(), stored.GetHint(), stored.GetAdmin())
	want := spire.EntryID(edge, edgeID, node) + ` own.test/argomesh/agent/edge-1 /spire/agent/k8s_psat/edge/1 ` +
		`[k8s:ns:argocd k8s:sa:agent] 3600 300 [partner.test] [edge-1.test *.edge-1.test] "stream" true`
	if got != want {
		t.Errorf("stored\n%s, want\n%s", got, want)
	}
	seen, err := client.Observe(t.Context(), edge, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(spiretest.Entries(t, r), seen.Entries, spiretest.ByValue); diff != "" {
		t.Errorf("Observe() (-want +got):\n%s", diff)
	}
	// Each field alone is found to differ and set again, nothing else with it.
	for field, spoil := range map[string]func(*types.Entry){
		"x509_svid_ttl":  func(e *types.Entry) { e.X509SvidTtl = 1 },
		"jwt_svid_ttl":   func(e *types.Entry) { e.JwtSvidTtl = 1 },
		"federates_with": func(e *types.Entry) { e.FederatesWith = nil },
		"dns_names":      func(e *types.Entry) { e.DnsNames = nil },
		"hint":           func(e *types.Entry) { e.Hint = "" }, "admin": func(e *types.Entry) { e.Admin = false },
		"downstream": func(e *types.Entry) { e.Downstream = true }, "store_svid": func(e *types.Entry) { e.StoreSvid = true },
		"expires_at": func(e *types.Entry) { e.ExpiresAt = 4e9 },
		"selectors":  func(e *types.Entry) { e.Selectors = e.GetSelectors()[:1] },
	} {
		spoiled := server.Entries()[0]
		spoil(spoiled)
		server.Collect("")
		if err := server.AddEntry(spoiled); err != nil {
			t.Fatal(err)
		}
		seen, err := client.Observe(t.Context(), edge, spiretest.Entries(t, r))
		if err != nil {
			t.Fatal(err)
		}
		plan := spire.PlanEntries(edge, spiretest.Entries(t, r), seen.Entries)
		if len(plan) != 1 || plan[0].Action != diff.Update || len(plan[0].Fields) != 1 || plan[0].Fields[0].Path != field {
			t.Errorf("%s: plan is %v", field, plan)
		}
		if err := client.ApplyEntries(t.Context(), plan, func(diff.Change[spire.Entry]) {}); err != nil {
			t.Errorf("%s: %v", field, err)
		}
		seen, err = client.Observe(t.Context(), edge, spiretest.Entries(t, r))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(spiretest.Entries(t, r), seen.Entries, spiretest.ByValue); diff != "" {
			t.Errorf("%s: after the update (-want +got):\n%s", field, diff)
		}
	}
}

func selectorTexts(e *types.Entry) []string {
	var out []string
	for _, s := range e.GetSelectors() {
		out = append(out, s.GetType()+":"+s.GetValue())
	}
	return out
}

func TestEntriesOfOthersAreNotTouched(t *testing.T) {
	tests := map[string]struct {
		theirs  func(*types.Entry)
		desired func(*spire.Registration)
		wantErr string
		ours    int
	}{
		"the same is enough": {theirs: nil},
		"another life": {theirs: func(e *types.Entry) { e.X509SvidTtl = 60 },
			wantErr: "spire-server entry delete -entryID theirs"},
		"an administrator":      {theirs: func(e *types.Entry) { e.Admin = true }, wantErr: "made by another writer"},
		"other selectors":       {theirs: func(e *types.Entry) { e.Selectors = e.GetSelectors()[:1] }, ours: 1},
		"selectors in disorder": {theirs: func(e *types.Entry) { slices.Reverse(e.GetSelectors()) }},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			server, client := start(t)
			foreign(t, server, func(e *types.Entry) {
				e.Id = "theirs"
				if tt.theirs != nil {
					tt.theirs(e)
				}
			})
			before := server.Entries()[0]
			done, err := reconcile(t, client, edge, spiretest.Entries(t, spiretest.Registration(tt.desired)))
			if (err == nil) != (tt.wantErr == "") ||
				err != nil && !(errors.Is(err, spire.ErrRefused) && strings.Contains(err.Error(), tt.wantErr)) {
				t.Errorf("error is %v, want one with %q", err, tt.wantErr)
			}
			if len(done) != tt.ours {
				t.Errorf("done: %v", done)
			}
			if _, err := reconcile(t, client, edge, nil); err != nil {
				t.Error(err)
			}
			if after := server.Entries(); len(after) != 1 || after[0].String() != before.String() {
				t.Errorf("theirs is now %v, was %v", after, before)
			}
		})
	}
}

// Someone creates the same between our look and our call.
func TestCreateMeetsWhatIsThere(t *testing.T) {
	desired := spiretest.Entries(t, spiretest.Registration(func(r *spire.Registration) { r.Hint = "stream" }))
	plan := spire.PlanEntries(edge, desired, nil)
	tests := map[string]struct {
		there   func(*types.Entry)
		wantErr error
		want    diff.Action
	}{
		"ours, as it should be": {there: func(e *types.Entry) { e.Id, e.Hint = desired[0].ID, "stream" }, want: diff.Keep},
		"ours, and otherwise":   {there: func(e *types.Entry) { e.Id = desired[0].ID }, want: diff.Update},
		"theirs, the same":      {there: func(e *types.Entry) { e.Id, e.Hint = "theirs", "stream" }, want: diff.Keep},
		"theirs, and otherwise": {there: func(e *types.Entry) { e.Id = "theirs" }, wantErr: spire.ErrRefused},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			server, client := start(t)
			foreign(t, server, tt.there)
			var done []diff.Change[spire.Entry]
			err := client.ApplyEntries(t.Context(), plan, func(c diff.Change[spire.Entry]) { done = append(done, c) })
			if !errors.Is(err, tt.wantErr) || (tt.wantErr == nil) != (len(done) == 1 && done[0].Action == tt.want) {
				t.Errorf("ApplyEntries() = %v, done %v", err, done)
			}
			entries := server.Entries()
			if len(entries) != 1 || tt.wantErr == nil && entries[0].GetHint() != "stream" {
				t.Errorf("entries: %v", entries)
			}
		})
	}
}

func TestPagingFindsAll(t *testing.T) {
	server, client := start(t) // two a page
	for i := range 10 {        // full pages, so the last is empty
		foreign(t, server, func(e *types.Entry) { e.Id, e.SpiffeId.Path = fmt.Sprintf("e%d", i), fmt.Sprintf("/w%d", i) })
	}
	var got []string
	err := client.ListEntries(t.Context(), serverapi.EntryFilter{}, func(e spire.Entry) error {
		got = append(got, e.ID)
		return nil
	})
	if err != nil || len(got) != 10 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 10 {
		t.Errorf("ListEntries() gave %v, %v", got, err)
	}
	if n := len(server.Calls()); n != 6 {
		t.Errorf("%d calls, want 6", n)
	}
	got = nil
	err = client.ListEntries(t.Context(),
		serverapi.EntryFilter{SPIFFEID: spiffeid.RequireFromString("spiffe://own.test/w3"), ParentID: node},
		func(e spire.Entry) error {
			got = append(got, e.ID)
			return nil
		})
	if err != nil || !slices.Equal(got, []string{"e3"}) {
		t.Errorf("with a filter: %v, %v", got, err)
	}
	stop := errors.New("enough")
	if err := client.ListEntries(t.Context(), serverapi.EntryFilter{},
		func(spire.Entry) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("ListEntries() = %v", err)
	}
}

func TestBatchesAreBounded(t *testing.T) {
	server, client := start(t)
	r := spiretest.Registration(func(r *spire.Registration) {
		r.ParentIDs = nil
		for i := range 120 {
			r.ParentIDs = append(r.ParentIDs, spiffeid.RequireFromString(fmt.Sprintf("spiffe://own.test/spire/agent/x/%d", i)))
		}
	})
	if done, err := reconcile(t, client, edge, spiretest.Entries(t, r)); err != nil || len(done) != 120 {
		t.Fatalf("%d done, %v", len(done), err)
	}
	if done, err := reconcile(t, client, edge, nil); err != nil || len(done) != 120 {
		t.Fatalf("%d taken back, %v", len(done), err)
	}
	count := map[string]int{}
	for _, method := range server.Calls() {
		count[method]++
	}
	if count["BatchCreateEntry"] != 3 || count["BatchDeleteEntry"] != 3 {
		t.Errorf("calls: %v, want three batches each", count)
	}
}

// One item that fails holds up no other, and is named.
func TestItemsFailAlone(t *testing.T) {
	server, client := start(t)
	desired := slices.Concat(
		spiretest.Entries(t, spiretest.Registration(nil)),
		spiretest.Entries(t, spiretest.Registration(func(r *spire.Registration) {
			r.IDs, r.FederatesWith = []spiffeid.ID{newID}, []spiffeid.TrustDomain{partner}
		})),
	)
	done, err := reconcile(t, client, edge, desired)
	if !errors.Is(err, spire.ErrNoBundle) || !strings.Contains(err.Error(), "partner.test") ||
		!strings.Contains(err.Error(), desired[1].ID) {
		t.Errorf("error is %v", err)
	}
	var item *serverapi.ItemError
	if !errors.As(err, &item) || item.Code != codes.Internal {
		t.Errorf("code is not that of the item: %v", err)
	}
	if len(done) != 1 || len(server.Entries()) != 1 {
		t.Errorf("done %v", done)
	}
	// What a failed one was to replace stays.
	desired[1].FederatesWith = nil
	if _, err := reconcile(t, client, edge, desired[1:]); err != nil {
		t.Fatal(err)
	}
	desired[0].FederatesWith = []spiffeid.TrustDomain{partner}
	if _, err := reconcile(t, client, edge, desired[:1]); !errors.Is(err, spire.ErrNoBundle) {
		t.Errorf("error is %v", err)
	}
	if left := server.Entries(); len(left) != 1 || left[0].GetId() != desired[1].ID {
		t.Errorf("what is left: %v", left)
	}
}

func TestDeleteRefusesWhatIsNotOurs(t *testing.T) {
	server, client := start(t)
	foreign(t, server, func(e *types.Entry) { e.Id = "argomesh.theirs" })
	if _, err := client.DeleteEntries(t.Context(),
		[]string{spire.EntryID(edge, edgeID, node), "argomesh.theirs"}); !errors.Is(err, spire.ErrRefused) {
		t.Errorf("DeleteEntries() = %v", err)
	}
	if len(server.Calls()) != 0 || len(server.Entries()) != 1 {
		t.Errorf("calls: %v", server.Calls())
	}
}

func TestErrorsHaveTheirKind(t *testing.T) {
	tests := map[string]struct {
		code codes.Code
		want error
	}{
		"denied":     {codes.PermissionDenied, spire.ErrDenied},
		"stranger":   {codes.Unauthenticated, spire.ErrDenied},
		"bad":        {codes.InvalidArgument, spire.ErrInvalid},
		"away":       {codes.Unavailable, spire.ErrUnavailable},
		"late":       {codes.DeadlineExceeded, spire.ErrUnavailable},
		"too much":   {codes.ResourceExhausted, spire.ErrUnavailable},
		"bad token":  {codes.Internal, spire.ErrReply},
		"older":      {codes.Unimplemented, spire.ErrReply},
		"not there":  {codes.NotFound, spire.ErrNotFound},
		"many lines": {codes.Unknown, spire.ErrReply},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			server, client := start(t)
			server.SetIntercept(func(context.Context, string) error {
				return status.Error(tt.code, "because\nof \x00"+strings.Repeat("x", 5000))
			})
			_, err := client.Observe(t.Context(), edge, nil)
			if !errors.Is(err, tt.want) || strings.ContainsAny(err.Error(), "\n\x00") || len(err.Error()) > 1000 {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func TestACallEnds(t *testing.T) {
	silent := func(t *testing.T) (address string, entered <-chan struct{}) {
		t.Helper()
		server, calls := spiretest.New(own), make(chan struct{}, 1)
		server.SetIntercept(func(ctx context.Context, _ string) error {
			calls <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})
		return serve(t, server), calls
	}
	t.Run("by its timeout", func(t *testing.T) {
		address, _ := silent(t) // which the call may not even reach by then
		client := connect(t, serverapi.ClientConfig{Address: address, CallTimeout: 50 * time.Millisecond})
		if _, err := client.Bundle(t.Context()); !errors.Is(err, spire.ErrUnavailable) {
			t.Errorf("Bundle() = %v", err)
		}
	})
	t.Run("by its caller", func(t *testing.T) {
		address, entered := silent(t)
		client := connect(t, serverapi.ClientConfig{Address: address})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-entered
			cancel()
		}()
		if _, err := client.Bundle(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Bundle() = %v", err)
		}
	})
	t.Run("when nobody is there", func(t *testing.T) {
		client := connect(t, serverapi.ClientConfig{Address: "unix:///nowhere/api.sock"})
		if _, err := client.Bundle(t.Context()); !errors.Is(err, spire.ErrUnavailable) {
			t.Errorf("Bundle() = %v", err)
		}
	})
}

func TestNewClientChecksItsConfig(t *testing.T) {
	for _, address := range []string{"", "x", "unix:x", "unix://x", "unix://host/x", "unix:///a?b", "/tmp/api.sock",
		"http://a:1", ":8081", "a:", "unix:///" + strings.Repeat("a", 120)} {
		if _, err := serverapi.NewClient(serverapi.ClientConfig{Address: address}); !errors.Is(err, spire.ErrInvalid) {
			t.Errorf("NewClient(%q) = %v", address, err)
		}
	}
	if _, err := serverapi.NewClient(serverapi.ClientConfig{Address: "spire.test:8081"}); !errors.Is(err,
		spire.ErrInvalid) {
		t.Errorf("TCP without credentials: %v", err)
	}
	if _, err := serverapi.NewClient(serverapi.ClientConfig{Address: "unix:///a", PageSize: -1}); !errors.Is(err,
		spire.ErrInvalid) {
		t.Errorf("negative page: %v", err)
	}
}

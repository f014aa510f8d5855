package registration

import (
	"fmt"
	"io"
	"time"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/mesh/spire"
)

// PrintDiff prints what plan does, one line for each thing, and one for each field
// that changes.
func PrintDiff[T any](w io.Writer, plan []spire.Change[T]) error {
	marks := map[spire.Action]string{spire.Create: "+", spire.Update: "~", spire.Delete: "-", spire.Keep: " ", spire.Refuse: "!"}
	for _, change := range plan {
		line := marks[change.Action] + " " + change.Name
		if change.Reason != "" {
			line += ": " + change.Reason
		}
		if _, err := fmt.Fprintln(w, cli.CleanText(line)); err != nil {
			return err
		}
		for _, d := range change.Differences {
			text := d.String()
			if change.Action == spire.Create {
				text = d.Field + ": " + d.Want
			}
			if _, err := fmt.Fprintln(w, "    "+cli.CleanText(text)); err != nil {
				return err
			}
		}
	}
	return nil
}

// CarryOut prints the difference for a dry run, else has apply carry out plan and prints
// a line for each thing that is done or was so already. A plan that is refused is an
// error in both cases.
func CarryOut[T any](w io.Writer, plan []spire.Change[T], dryRun bool, apply func(done func(spire.Change[T])) error) error {
	if dryRun {
		if err := PrintDiff(w, plan); err != nil {
			return err
		}
		if err := spire.Refusals(plan); err != nil {
			return err
		}
		return apply(func(spire.Change[T]) {})
	}
	var broken error
	say := func(change spire.Change[T]) {
		line := change.Name + " " + change.Action.String()
		if change.Reason != "" {
			line += ": " + change.Reason
		}
		if _, err := fmt.Fprintln(w, cli.CleanText(line)); err != nil {
			broken = err
		}
	}
	err := apply(func(change spire.Change[T]) {
		if change.Action != spire.Keep {
			say(change)
		}
	})
	if err != nil {
		return err
	}
	for _, change := range plan {
		if change.Action == spire.Keep {
			say(change)
		}
	}
	return broken
}

// View is an entry as it is printed, by SPIRE's names.
type View struct {
	ID            string   `json:"id"`
	SPIFFEID      string   `json:"spiffe_id"`
	ParentID      string   `json:"parent_id"`
	Selectors     []string `json:"selectors"`
	X509SVIDTTL   int64    `json:"x509_svid_ttl,omitempty"`
	JWTSVIDTTL    int64    `json:"jwt_svid_ttl,omitempty"`
	FederatesWith []string `json:"federates_with,omitempty"`
	DNSNames      []string `json:"dns_names,omitempty"`
	Hint          string   `json:"hint,omitempty"`
	Admin         bool     `json:"admin,omitempty"`
	Downstream    bool     `json:"downstream,omitempty"`
	StoreSVID     bool     `json:"store_svid,omitempty"`
	ExpiresAt     int64    `json:"expires_at,omitempty"`
}

// Views returns entries as -o json prints them.
func Views(entries []spire.Entry) []View {
	out := make([]View, len(entries))
	for i, e := range entries {
		out[i] = View{
			ID: e.ID, SPIFFEID: e.SPIFFEID.String(), ParentID: e.ParentID.String(), Selectors: cli.StringsOf(e.Selectors),
			X509SVIDTTL: int64(e.X509TTL / time.Second), JWTSVIDTTL: int64(e.JWTTTL / time.Second), FederatesWith: cli.StringsOf(e.FederatesWith),
			DNSNames: e.DNSNames, Hint: e.Hint, Admin: e.Admin, Downstream: e.Downstream, StoreSVID: e.StoreSVID,
		}
		if !e.ExpiresAt.IsZero() {
			out[i].ExpiresAt = e.ExpiresAt.Unix()
		}
	}
	return out
}

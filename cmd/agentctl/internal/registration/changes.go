package registration

import (
	"fmt"
	"io"
	"time"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/spire"
)

// PrintDiff prints what plan does, one line for each thing, and one for each field
// that changes.
func PrintDiff[T any](w io.Writer, plan []diff.Change[T]) error {
	marks := map[diff.Action]string{diff.Create: "+", diff.Update: "~", diff.Delete: "-", diff.Keep: " ", diff.Refuse: "!"}
	for _, change := range plan {
		line := marks[change.Action] + " " + change.Name
		if change.Reason != "" {
			line += ": " + change.Reason
		}
		if _, err := fmt.Fprintln(w, cli.CleanText(line)); err != nil {
			return err
		}
		for _, d := range change.Fields {
			text := d.String()
			if change.Action == diff.Create {
				text = d.Path + ": " + d.Want
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
func CarryOut[T any](w io.Writer, plan []diff.Change[T], dryRun bool,
	apply func(done func(diff.Change[T])) error) error {
	if dryRun {
		if err := PrintDiff(w, plan); err != nil {
			return err
		}
		if err := spire.Refusals(plan); err != nil {
			return err
		}
		return apply(func(diff.Change[T]) {})
	}
	var broken error
	say := func(change diff.Change[T]) {
		line := change.Name + " " + change.Action.Participle()
		if change.Reason != "" {
			line += ": " + change.Reason
		}
		if _, err := fmt.Fprintln(w, cli.CleanText(line)); err != nil {
			broken = err
		}
	}
	err := apply(func(change diff.Change[T]) {
		if change.Action != diff.Keep {
			say(change)
		}
	})
	if err != nil {
		return err
	}
	for _, change := range plan {
		if change.Action == diff.Keep {
			say(change)
		}
	}
	return broken
}

// Will says, before it is done, what carrying out plan will do, one line for each thing; nothing of what is so already.
func Will[T any](plan []diff.Change[T]) (lines []string) {
	for _, change := range plan {
		switch change.Action {
		case diff.Create, diff.Update, diff.Delete:
			lines = append(lines, cli.CleanText(change.Name+" will be "+change.Action.Participle()))
		case diff.Keep, diff.Refuse:
		}
	}
	return lines
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
			X509SVIDTTL: int64(e.X509TTL / time.Second), JWTSVIDTTL: int64(e.JWTTTL / time.Second),
			FederatesWith: cli.StringsOf(e.FederatesWith),
			DNSNames:      e.DNSNames, Hint: e.Hint, Admin: e.Admin, Downstream: e.Downstream, StoreSVID: e.StoreSVID,
		}
		if !e.ExpiresAt.IsZero() {
			out[i].ExpiresAt = e.ExpiresAt.Unix()
		}
	}
	return out
}

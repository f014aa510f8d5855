package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/mesh/spire"
)

// addDryRunFlag adds --dry-run, which alone shows the difference.
func addDryRunFlag(cmd *cobra.Command, dryRun *oneOf) {
	addEnumFlag(cmd, dryRun, "dry-run", "", "client: only print what would be written; server: print the difference from what is there, and store nothing")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = dryRunServer
}

func newDryRun() *oneOf {
	return &oneOf{value: dryRunNone, allowed: []string{dryRunNone, dryRunClient, dryRunServer}}
}

// printDiff prints what plan does, one line for each thing, and one for each field
// that changes.
func printDiff[T any](w io.Writer, plan []spire.Change[T]) error {
	marks := map[spire.Action]string{spire.Create: "+", spire.Update: "~", spire.Delete: "-", spire.Keep: " ", spire.Refuse: "!"}
	for _, change := range plan {
		line := marks[change.Action] + " " + change.Name
		if change.Reason != "" {
			line += ": " + change.Reason
		}
		if _, err := fmt.Fprintln(w, cleanText(line)); err != nil {
			return err
		}
		for _, d := range change.Differences {
			text := d.String()
			if change.Action == spire.Create {
				text = d.Field + ": " + d.Want
			}
			if _, err := fmt.Fprintln(w, "    "+cleanText(text)); err != nil {
				return err
			}
		}
	}
	return nil
}

// carryOut prints the difference for a dry run, else has apply carry out plan and prints
// a line for each thing that is done or was so already. A plan that is refused is an
// error in both cases.
func carryOut[T any](w io.Writer, plan []spire.Change[T], dryRun bool, apply func(done func(spire.Change[T])) error) error {
	if dryRun {
		if err := printDiff(w, plan); err != nil {
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
		if _, err := fmt.Fprintln(w, cleanText(line)); err != nil {
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

// objectList returns several objects as one, as kubectl prints them.
func objectList(items []*unstructured.Unstructured) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("v1")
	list.SetKind("List")
	for _, item := range items {
		list.Items = append(list.Items, *item)
	}
	return list
}

// objects prints one object as itself and several as a list.
func (o *output) objects(w io.Writer, items []*unstructured.Unstructured) error {
	if len(items) == 1 {
		return o.object(w, items[0])
	}
	return o.object(w, objectList(items))
}

// structured prints what is no object of Kubernetes, as json or yaml.
func (o *output) structured(w io.Writer, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	raw = append(raw, '\n')
	if o.value == "yaml" {
		if raw, err = yaml.JSONToYAML(raw); err != nil {
			return err
		}
	}
	_, err = w.Write(raw)
	return err
}

// entryView is an entry as it is printed, by SPIRE's names.
type entryView struct {
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

func viewEntries(entries []spire.Entry) []entryView {
	out := make([]entryView, len(entries))
	for i, e := range entries {
		out[i] = entryView{
			ID: e.ID, SPIFFEID: e.SPIFFEID.String(), ParentID: e.ParentID.String(), Selectors: stringsOf(e.Selectors),
			X509SVIDTTL: int64(e.X509TTL / time.Second), JWTSVIDTTL: int64(e.JWTTTL / time.Second), FederatesWith: stringsOf(e.FederatesWith),
			DNSNames: e.DNSNames, Hint: e.Hint, Admin: e.Admin, Downstream: e.Downstream, StoreSVID: e.StoreSVID,
		}
		if !e.ExpiresAt.IsZero() {
			out[i].ExpiresAt = e.ExpiresAt.Unix()
		}
	}
	return out
}

func stringsOf[T fmt.Stringer](items []T) []string {
	out := make([]string, len(items))
	for i, item := range items {
		out[i] = item.String()
	}
	return out
}

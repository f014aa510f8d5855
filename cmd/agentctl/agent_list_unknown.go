package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/fleet/strangers"
)

// strangers prints who was refused since no Agent has its SPIFFE ID, but those that have
// one by now.
func (c *listCommand) strangers(ctx context.Context, h *hub) error {
	if c.selector != "" {
		return errors.New("--unknown and --selector: a SPIFFE ID that belongs to no Agent has no labels")
	}
	if c.watch {
		return errors.New("--unknown and --watch: it is written once a minute; ask again")
	}
	if c.output.allNamespaces {
		return errors.New("--unknown and --all-namespaces: name the hub with --namespace, since each keeps its own")
	}
	if !c.output.isTable() && c.output.value != "json" {
		return errors.New("--unknown is printed as a table, or with -o json")
	}
	agents, err := h.agents.List(ctx, metav1.ListOptions{})
	if err != nil {
		return h.explain(err, "list agents")
	}
	owned := map[string]bool{}
	for i := range agents.Items {
		agent, err := parseAgent(&agents.Items[i])
		if err != nil {
			return err
		}
		for _, id := range agent.Spec.Identity.SPIFFEIDs {
			owned[id] = true
		}
	}
	kept, err := h.configMaps.Get(ctx, strangers.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		kept, err = &unstructured.Unstructured{}, nil
	}
	if err != nil {
		return h.explain(err, "read ConfigMap "+strangers.Name)
	}
	data, _, err := unstructured.NestedStringMap(kept.Object, "data")
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", strangers.Name, err)
	}
	list, err := strangers.Parse(data)
	if err != nil {
		return err
	}
	list = list.Without(func(id spiffeid.ID) bool { return owned[id.String()] })
	if !c.output.isTable() {
		if list == nil {
			list = strangers.List{}
		}
		encoder := json.NewEncoder(c.std.out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(list)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(c.std.err, "No SPIFFE ID was refused that belongs to no Agent.")
		return err
	}
	t := newTable(c.std.out, false)
	if !c.output.noHeaders {
		t.row([]string{"SPIFFE ID", "TIMES", "FIRST", "LAST"})
	}
	for _, s := range list {
		t.row([]string{s.ID.String(), strconv.FormatInt(s.Times, 10), s.First.Format(time.RFC3339), s.Last.Format(time.RFC3339)})
	}
	if err := t.flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.std.err, "Register one that is yours with: agentctl agent create NAME --mode managed --spiffe-id ID, or agentctl agent edit NAME.")
	return err
}

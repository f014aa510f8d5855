package agents

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

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/fleet/strangers"
)

// strangers prints who was refused since no Agent has its SPIFFE ID, but those that have
// one by now.
func (c *listCommand) strangers(ctx context.Context, h *cli.Hub) error {
	if err := c.checkUnknown(); err != nil {
		return err
	}
	list, err := unknownTo(ctx, h)
	if err != nil {
		return err
	}
	if !c.output.IsTable() {
		encoder := json.NewEncoder(c.std.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(list)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(c.std.Err, "No SPIFFE ID was refused that belongs to no Agent.")
		return err
	}
	t := cli.NewTable(c.std.Out, false)
	if !c.output.NoHeaders {
		t.Row([]string{"SPIFFE ID", "TIMES", "FIRST", "LAST"})
	}
	for _, s := range list {
		t.Row([]string{s.ID.String(), strconv.FormatInt(s.Times, 10), s.First.Format(time.RFC3339),
			s.Last.Format(time.RFC3339)})
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.std.Err,
		"Register one that is yours with: agentctl agent create NAME --mode managed --spiffe-id ID, or agentctl agent edit NAME.")
	return err
}

// checkUnknown refuses flags that mean nothing with --unknown.
func (c *listCommand) checkUnknown() error {
	switch {
	case c.selector != "":
		return errors.New("--unknown and --selector: a SPIFFE ID that belongs to no Agent has no labels")
	case c.watch:
		return errors.New("--unknown and --watch: it is written once a minute; ask again")
	case c.output.AllNamespaces:
		return errors.New("--unknown and --all-namespaces: name the hub with --namespace, since each keeps its own")
	case !c.output.IsTable() && c.output.Value != "json":
		return errors.New("--unknown is printed as a table, or with -o json")
	}
	return nil
}

// unknownTo reads who was refused by a hub and belongs to no Agent of it; never nil.
func unknownTo(ctx context.Context, h *cli.Hub) (strangers.List, error) {
	agents, err := h.Agents.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, h.Explain(err, "list agents")
	}
	owned := map[string]bool{}
	for i := range agents.Items {
		agent, err := cli.ParseAgent(&agents.Items[i])
		if err != nil {
			return nil, err
		}
		for _, id := range agent.Spec.Identity.SPIFFEIDs {
			owned[id] = true
		}
	}
	kept, err := h.ConfigMaps.Get(ctx, strangers.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		kept, err = &unstructured.Unstructured{}, nil
	}
	if err != nil {
		return nil, h.Explain(err, "read ConfigMap "+strangers.Name)
	}
	data, _, err := unstructured.NestedStringMap(kept.Object, "data")
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %w", strangers.Name, err)
	}
	list, err := strangers.Parse(data)
	if err != nil {
		return nil, err
	}
	if list = list.Without(func(id spiffeid.ID) bool { return owned[id.String()] }); list == nil {
		list = strangers.List{}
	}
	return list, nil
}

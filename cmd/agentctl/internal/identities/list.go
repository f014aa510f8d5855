package identities

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/mesh/spire/serverapi"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/mesh/spire"
)

type identityListCommand struct {
	std    cli.Streams
	conn   *cli.Connection
	output *cli.Output
	server registration.Server
	all    bool
}

func newIdentityListCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &identityListCommand{std: std, conn: conn, output: cli.NewOutput("wide", "json", "yaml", "name")}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List registrations and federated trust domains",
		Long: "List what \"agentctl identity register\" and \"federate\" made, or with --all everything\n" +
			"of the kind. A SPIRE server does not know who federated it, so all of that is listed.",
		Example: "  agentctl identity list -o wide\n" +
			"  agentctl identity list --all --spire-server unix:///tmp/spire-server/private/api.sock",
		Args: cli.None,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	c.output.AddFlag(cmd)
	c.server.AddFlags(cmd)
	cmd.Flags().BoolVarP(&c.all, "all", "A", false, "list also what others made")
	cmd.Flags().BoolVar(&c.output.NoHeaders, "no-headers", false, "print a table without its first line")
	return cmd
}

func (c *identityListCommand) run(ctx context.Context) error {
	if c.server.IsSet() {
		return c.listServer(ctx)
	}
	return c.listObjects(ctx)
}

// row is a line of the table.
type row struct {
	registration, spiffeID, parent, selectors, federates, id string
}

// federationView is a federation as it is printed.
type federationView struct {
	TrustDomain string `json:"trust_domain"`
	EndpointURL string `json:"bundle_endpoint_url"`
	Profile     string `json:"bundle_endpoint_profile"`
	EndpointID  string `json:"endpoint_spiffe_id,omitempty"`
}

func (c *identityListCommand) listServer(ctx context.Context) error {
	if c.output.Value == "name" {
		return fmt.Errorf("-o name: entries of a SPIRE server are not Kubernetes objects; leave it out")
	}
	client, err := c.server.Connect(ctx, spiffeid.TrustDomain{})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // nothing is under way
	var entries []spire.Entry
	err = client.ListEntries(ctx, serverapi.EntryFilter{}, func(e spire.Entry) error {
		if _, ours := spire.Owner(e.ID); ours || c.all {
			entries = append(entries, e)
		}
		return nil
	})
	if err != nil {
		return c.server.Explain(err, "list identities")
	}
	federations, err := client.Federations(ctx)
	if err != nil {
		return c.server.Explain(err, "list identities")
	}
	slices.SortFunc(entries, func(a, b spire.Entry) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(federations, func(a, b spire.Federation) int { return a.TrustDomain.Compare(b.TrustDomain) })
	if !c.output.IsTable() {
		return c.output.Structured(c.std.Out,
			map[string]any{"entries": registration.Views(entries), "federations": viewFederations(federations)})
	}
	var rows []row
	for _, e := range entries {
		owner := "-"
		if name, ours := spire.Owner(e.ID); ours {
			owner = name.String()
		}
		rows = append(rows, row{
			owner, e.SPIFFEID.String(), e.ParentID.String(), strings.Join(cli.StringsOf(e.Selectors), ","),
			strings.Join(cli.StringsOf(e.FederatesWith), ","), e.ID,
		})
	}
	return c.print(rows, viewFederations(federations))
}

func viewFederations(federations []spire.Federation) []federationView {
	out := make([]federationView, len(federations))
	for i, f := range federations {
		out[i] = federationView{TrustDomain: f.TrustDomain.Name(), EndpointURL: f.EndpointURL, Profile: profileWeb}
		if !f.EndpointID.IsZero() {
			out[i].Profile, out[i].EndpointID = profileSPIFFE, f.EndpointID.String()
		}
	}
	return out
}

func (c *identityListCommand) listObjects(ctx context.Context) error {
	target, err := registration.NewObjects(c.conn)
	if err != nil {
		return err
	}
	selector := spire.ManagedByLabel + "=" + spire.ManagedBy
	if c.all {
		selector = ""
	}
	var items []*unstructured.Unstructured
	for _, kind := range append(slices.Clone(registration.Kinds), spire.ClusterFederatedTrustDomainKind) {
		list, err := target.List(ctx, kind, selector)
		if err != nil {
			return err
		}
		items = append(items, list...)
	}
	if !c.output.IsTable() {
		return c.output.Object(c.std.Out, cli.ObjectList(items))
	}
	var (
		rows        []row
		federations []federationView
	)
	for _, obj := range items {
		if obj.GetKind() == spire.ClusterFederatedTrustDomainKind {
			federations = append(federations, federationView{
				TrustDomain: text(obj, "trustDomain"), EndpointURL: text(obj, "bundleEndpointURL"),
				Profile:    text(obj, "bundleEndpointProfile", "type"),
				EndpointID: text(obj, "bundleEndpointProfile", "endpointSPIFFEID"),
			})
			continue
		}
		rows = append(rows, rowOf(obj))
	}
	return c.print(rows, federations)
}

// text returns a field of an object's spec; empty when there is none.
func text(obj *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(obj.Object, append([]string{"spec"}, path...)...)
	return s
}

func rowOf(obj *unstructured.Unstructured) row {
	list := func(field string) string {
		items, _, _ := unstructured.NestedStringSlice(obj.Object, "spec", field)
		return strings.Join(items, ",")
	}
	r := row{registration: "-", federates: list("federatesWith"), id: strings.ToLower(obj.GetKind()) + "/" + obj.GetName()}
	if name, ours := spire.RegistrationOf(obj); ours {
		r.registration = name.String()
	}
	if obj.GetKind() == spire.ClusterStaticEntryKind {
		r.spiffeID, r.parent, r.selectors = text(obj, "spiffeID"), text(obj, "parentID"), list("selectors")
		return r
	}
	r.spiffeID, r.parent = text(obj, "spiffeIDTemplate"), "(node of each pod)"
	var selected []string
	for _, field := range []string{"namespaceSelector", "podSelector"} {
		labels, _, _ := unstructured.NestedStringMap(obj.Object, "spec", field, "matchLabels")
		for key, value := range labels {
			selected = append(selected, key+"="+value)
		}
	}
	slices.Sort(selected)
	if extra := list("workloadSelectorTemplates"); extra != "" {
		selected = append(selected, extra)
	}
	r.selectors = strings.Join(selected, ",")
	return r
}

// print prints both tables.
func (c *identityListCommand) print(rows []row, federations []federationView) error {
	if len(rows)+len(federations) == 0 {
		_, err := fmt.Fprintln(c.std.Err, "No registrations and no federated trust domains.")
		return err
	}
	tabs := cli.NewTable(c.std.Out, c.output.Value == "wide")
	if len(rows) > 0 && !c.output.NoHeaders {
		tabs.Row([]string{"REGISTRATION", "SPIFFE ID", "FEDERATES WITH"}, "PARENT", "SELECTORS", "ID")
	}
	for _, r := range rows {
		tabs.Row([]string{r.registration, r.spiffeID, r.federates}, r.parent, r.selectors, r.id)
	}
	if len(rows) > 0 && len(federations) > 0 {
		tabs.Section()
	}
	if len(federations) > 0 && !c.output.NoHeaders {
		tabs.Row([]string{"TRUST DOMAIN", "BUNDLE ENDPOINT", "PROFILE"}, "ENDPOINT ID")
	}
	for _, f := range federations {
		tabs.Row([]string{f.TrustDomain, f.EndpointURL, f.Profile}, f.EndpointID)
	}
	return tabs.Flush()
}

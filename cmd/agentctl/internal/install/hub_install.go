package install

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/argocd"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/chartvalues"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/gitops"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/istiosetup"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/rights"
	"github.com/argomesh/argomesh/cmd/internal/meshconfig"
	"github.com/argomesh/argomesh/mesh/spire"
)

const kept = "Values that were given once are kept: --values and --set are laid over them. A release that helm made\n" +
	"is taken over, and helm goes on working with it. Where nothing has to change nothing is written."

const bare = "On a cluster without SPIRE or Argo CD, --with spire,argocd brings what is not there. With --with istio\n" +
	"the pods are in the Istio that is there, with identities of SPIRE.\n\n"

type hubCommand struct {
	std         cli.Streams
	conn        *cli.Connection
	options     options
	trustDomain string
	terminal    bool
}

// NewHubCommand returns `agentctl hub install`.
func NewHubCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &hubCommand{std: std, conn: conn}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install the principal beside the hub's Argo CD, or upgrade it",
		Long: "Install the chart argomesh-principal, which is in agentctl, into the namespace of the hub's\n" +
			"Argo CD, or upgrade it, and wait until the principal is ready. Before anything is written it\n" +
			"looks for what must be there, as \"agentctl check hub --pre\" does, and asks the Kubernetes API whether\n" +
			"it would refuse an object.\n\n" +
			"Where agents reach the principal its load balancer says, or --address.\n\n" +
			"With --trust-domain the principal is registered with SPIRE. The Redis of Argo CD is filled in, and\n" +
			"argocd-server is told of the Redis proxy, by which Argo CD shows the trees of spokes, and to take\n" +
			"Applications of all namespaces where nothing says of which: two arguments of its Deployment, which\n" +
			"\"agentctl hub uninstall\" takes away, as it does what --terminal sets. What another tool manages is not\n" +
			"changed; what to set there is said.\n\n" + bare + kept,
		Example: "  agentctl hub install --context hub --registry registry.example/argomesh --trust-domain hub.example",
		Args:    cli.None,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	c.options.addFlags(cmd)
	c.options.with.istio.addHubFlags(cmd)
	cmd.Flags().StringVar(&c.trustDomain, "trust-domain", "",
		"trust domain of the hub: the principal is registered with SPIRE as spiffe://<trust domain>/argomesh/principal")
	cmd.Flags().BoolVar(&c.terminal, "terminal", false,
		"have Argo CD offer terminals: exec.enabled in its ConfigMap argocd-cm; to whom, its RBAC says (exec, create)")
	cli.Register(cmd, "trust-domain", cobra.NoFileCompletions)
	return cmd
}

func (c *hubCommand) run(ctx context.Context) error {
	o := &c.options
	if err := o.checkOutput(); err != nil {
		return err
	}
	s := &side{std: c.std, conn: c.conn, chart: charts.Principal, namespace: c.conn.Namespace}
	if err := s.connect(); err != nil {
		return err
	}
	values, err := c.given()
	if err != nil {
		return err
	}
	if err := c.hasRights(ctx, s, values); err != nil {
		return err
	}
	if err := hasImages(s, values); err != nil {
		return err
	}
	if missing, err := bring(ctx, s, o, argocd.Hub, c.trustDomain, gitops.HubFolder, values); err != nil || missing {
		return err
	}
	if err := s.check(ctx, o, values); err != nil {
		return err
	}
	w, err := c.plan(ctx, s, values)
	if err != nil {
		return err
	}
	if o.outputDir != "" {
		return s.writeHub(ctx, o, w)
	}
	if err := s.install(ctx, o, w); err != nil || o.dryRun.Value != cli.DryRunNone {
		return err
	}
	told, err := c.offerTerminal(ctx, s, false)
	if err := errors.Join(err, sayAll(s, told)); err != nil {
		return err
	}
	known, err := s.known(w.values)
	if err != nil {
		return err
	}
	return s.say("next: agentctl spoke install NAME --context SPOKE --hub-context HUB --trust-domain TRUST_DOMAIN%s",
		istiosetup.WayOf(known).Flags())
}

// given returns the values that the flags say.
func (c *hubCommand) given() (map[string]any, error) {
	o, base := &c.options, map[string]any{}
	if o.registry != "" {
		base["image"] = o.image("principal")
		base["envoy"] = map[string]any{"bootstrapImage": o.image("agentctl")}
	}
	address := o.with.istio.address
	if address == "" || o.with.has(withIstio) {
		return o.merged(base)
	}
	named, err := chartvalues.OfAddress(address)
	if err != nil {
		return nil, err
	}
	return o.merged(loader.MergeMaps(base, named))
}

// plan returns what is to be on the hub.
func (c *hubCommand) plan(ctx context.Context, s *side, values map[string]any) (w wanted, err error) {
	if w.values, err = shareFromHub(s, &c.options, values); err != nil {
		return w, err
	}
	var argo argocd.State
	if c.options.argoCD {
		if w.values, argo, err = s.fillIn(ctx, w.values, argocd.State.HubValues); err != nil {
			return w, err
		}
		known, err := s.known(w.values)
		if err != nil {
			return w, err
		}
		if w.server, err = s.planServer(ctx, argo, known); err != nil {
			return w, err
		}
	}
	if c.options.with.has(withIstio) {
		istio := &c.options.with.istio
		w.values, err = istio.onHub(ctx, s, c.options.identity.className, c.trustDomain, argo, w.values)
		if err != nil {
			return w, err
		}
		if w.told, err = istio.outside(ctx, s, argo); err != nil {
			return w, err
		}
	}
	told, err := c.offerTerminal(ctx, s, true)
	if err != nil {
		return w, err
	}
	if c.options.outputDir != "" || c.options.dryRun.Value != cli.DryRunNone {
		w.told = append(w.told, told...)
	}
	known, err := s.known(w.values)
	if err != nil {
		return w, err
	}
	if c.options.with.istio.address != "" && istiosetup.Uses(known) && !c.options.with.has(withIstio) {
		return w, errors.New("--address: the principal is in Istio, behind its gateway: --with istio is missing")
	}
	if w.mesh, err = planMesh(ctx, s, known); err != nil {
		return w, err
	}
	if c.trustDomain == "" || !c.options.identity.register || istiosetup.Keeps(known, meshconfig.PartSPIRE) {
		return w, nil
	}
	r, err := principalRegistration(c.trustDomain, s.namespace)
	if err != nil {
		return w, err
	}
	if r.FederatesWith, err = partners(ctx, s); err != nil {
		return w, err
	}
	w.identity, err = s.planIdentity(ctx, &c.options.identity, r)
	return w, err
}

// offerTerminal has Argo CD offer terminals, if it is to, and returns what there is to tell.
func (c *hubCommand) offerTerminal(ctx context.Context, s *side, dryRun bool) (told []string, err error) {
	switch {
	case !c.terminal:
	case c.options.outputDir != "":
		return []string{argocd.TerminalByHand}, nil
	default:
		if told, err = argocd.OfferTerminal(ctx, s.client, s.namespace, dryRun); err != nil {
			return nil, s.explain(err, "set exec.enabled in ConfigMap argocd-cm")
		}
	}
	return told, nil
}

// hasRights refuses a first install of the principal by a user who lacks rights.
func (c *hubCommand) hasRights(ctx context.Context, s *side, values map[string]any) error {
	if !needsRights(s, &c.options) {
		return nil
	}
	var needs []rights.Right
	if c.trustDomain != "" && c.options.identity.register {
		needs = rights.OfSPIRE(spire.ClusterSPIFFEIDKind)
	}
	if c.options.argoCD {
		needs = append(needs, rights.To("list,patch", "apps", "deployments", s.namespace)...)
	}
	if c.terminal {
		needs = append(needs, rights.To("get,patch", "", "configmaps", s.namespace)...)
	}
	return refuseWithoutRights(ctx, s, &c.options, needs, values)
}

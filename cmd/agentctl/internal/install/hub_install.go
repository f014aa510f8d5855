package install

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/argocd"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/istiosetup"
	"github.com/argomesh/argomesh/cmd/internal/meshconfig"
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
}

// NewHubCommand returns `agentctl hub install`.
func NewHubCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &hubCommand{std: std, conn: conn}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install the principal beside the hub's Argo CD, or upgrade it",
		Long: "Install the chart argomesh-principal, which is in agentctl, into the namespace of the hub's\n" +
			"Argo CD, or upgrade it, and wait until the principal is ready. Before anything is written it\n" +
			"looks for what must be there, and asks the Kubernetes API whether it would refuse an object.\n\n" +
			"With --trust-domain the principal is registered with SPIRE. The Redis of Argo CD is filled in, and\n" +
			"argocd-server is told of the Redis proxy, by which Argo CD shows the trees of spokes: one argument of\n" +
			"its Deployment, which \"agentctl hub uninstall\" takes away. An argocd-server that another tool manages\n" +
			"is not changed; what to set there is said.\n\n" + bare + kept,
		Example: "  agentctl hub install --context hub --registry registry.example/argomesh --trust-domain hub.example",
		Args:    cli.None,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	c.options.addFlags(cmd)
	c.options.with.istio.addHubFlags(cmd)
	cmd.Flags().StringVar(&c.trustDomain, "trust-domain", "",
		"trust domain of the hub: the principal is registered with SPIRE as spiffe://<trust domain>/argomesh/principal")
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
	base := map[string]any{}
	if o.registry != "" {
		base["image"] = o.image("principal")
		base["envoy"] = map[string]any{"bootstrapImage": o.image("agentctl")}
	}
	values, err := o.merged(base)
	if err != nil {
		return err
	}
	if err := s.hasImages(values); err != nil {
		return err
	}
	if missing, err := bring(ctx, s, o, argocd.Hub, c.trustDomain, hubFolder); err != nil || missing {
		return err
	}
	if err := s.check(ctx); err != nil {
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
	known, err := s.known(w.values)
	if err != nil {
		return err
	}
	return s.say("next: agentctl spoke install NAME --context SPOKE --hub-context HUB --trust-domain TRUST_DOMAIN%s", wayIn(known))
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
	known, err := s.known(w.values)
	if err != nil {
		return w, err
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
	if r.FederatesWith, err = s.partners(ctx); err != nil {
		return w, err
	}
	w.identity, err = s.planIdentity(ctx, &c.options.identity, r)
	return w, err
}

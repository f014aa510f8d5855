package mesh

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/istio"
	"github.com/argomesh/argomesh/mesh/spire"
)

// What `agentctl mesh render` renders.
const (
	renderIstio       = "istio"
	renderIstioSpoke  = "istio-spoke"
	renderIstioValues = "istio-values"
	renderSPIRE       = "spire"
)

var renderings = []string{renderIstio, renderIstioSpoke, renderIstioValues, renderSPIRE}

type meshRenderCommand struct {
	std       cli.Streams
	conn      *cli.Connection
	output    *cli.Output
	config    string
	agents    agentSource
	spoke     string
	className string
}

func newMeshRenderCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &meshRenderCommand{std: std, conn: conn, output: cli.NewOutput("yaml", "json", "name")}
	cmd := &cobra.Command{
		Use:   "render (istio | istio-spoke | istio-values | spire) --config FILE",
		Short: "Print the mesh's objects for a principal",
		Long: "Print what a mesh needs for the principal with the configuration FILE, whose block mesh says\n" +
			"how it is reached, and for the Agents of the hub or of the files:\n\n" +
			"  istio         objects of the hub: who may connect to which port, and the way there\n" +
			"  istio-spoke   objects of a spoke whose agent runs inside its Istio\n" +
			"  istio-values  what Istio's installation and the principal's pod must say, as YAML\n" +
			"  spire         ClusterSPIFFEIDs of the principal, its gateway and Argo CD\n\n" +
			"Nothing is changed anywhere. The same input gives the same output. What the mesh could not\n" +
			"keep is refused. Objects for Agents that are gone are to be deleted.",
		Example: "  agentctl mesh render istio --config principal.yaml | kubectl diff -f -\n" +
			"  agentctl mesh render istio --config principal.yaml -f agents.yaml > istio.yaml",
		ValidArgs: renderings,
		Args:      oneRendering,
		RunE:      func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	c.output.AddFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&c.config, "config", "", "the principal's YAML file; of it namespace and mesh are read")
	c.agents.addFlag(cmd)
	flags.StringVar(&c.spoke, "agent-namespace", cli.DefaultNamespace,
		"for istio-spoke: the namespace of the agent on its spoke")
	flags.StringVar(&c.className, "class-name", "",
		"for spire: class of the spire-controller-manager that is to handle the objects; mesh.live.spire_class unless given")
	for _, name := range []string{"agent-namespace", "class-name"} {
		cli.Register(cmd, name, cobra.NoFileCompletions)
	}
	return cmd
}

func oneRendering(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || !slices.Contains(renderings, args[0]) {
		return fmt.Errorf("one of %s is expected: %s", cli.JoinOr(renderings), cmd.UseLine())
	}
	return nil
}

func (c *meshRenderCommand) run(ctx context.Context, what string) error {
	cfg, err := loadMesh(config.File{Path: c.config})
	if err != nil {
		return err
	}
	snapshot, err := c.agents.snapshot(ctx, c.std, c.conn, cfg)
	if err != nil {
		return err
	}
	if what == renderIstioValues {
		return c.values(snapshot, cfg)
	}
	objects, err := c.render(snapshot, cfg, what)
	if err != nil {
		return meshProblems(err)
	}
	if c.output.Value == "" {
		c.output.Value = "yaml"
	}
	return c.output.Objects(c.std.Out, objects)
}

func (c *meshRenderCommand) values(snapshot mesh.Snapshot, cfg meshSettings) error {
	if c.output.Value != "" && c.output.Value != "yaml" {
		return fmt.Errorf("-o %s: %s are not Kubernetes objects; leave it out", c.output.Value, renderIstioValues)
	}
	settings, err := istio.SettingsFor(snapshot, cfg.Mesh.Istio(cfg.Namespace))
	if err != nil {
		return err
	}
	return settings.Write(c.std.Out)
}

func (c *meshRenderCommand) render(snapshot mesh.Snapshot, cfg meshSettings,
	what string) ([]*unstructured.Unstructured, error) {
	var (
		objects []istio.Object
		err     error
	)
	switch what {
	case renderSPIRE:
		hub := cfg.Mesh.SPIRE(cfg.Namespace)
		hub.ClassName = cmp.Or(c.className, hub.ClassName)
		return spire.HubObjects(snapshot, hub)
	case renderIstioSpoke:
		objects, err = istio.RenderSpoke(snapshot, istio.SpokeConfig{Namespace: c.spoke})
	default:
		objects, err = istio.Render(snapshot, cfg.Mesh.Istio(cfg.Namespace))
	}
	if err != nil {
		return nil, err
	}
	return istio.AllUnstructured(objects)
}

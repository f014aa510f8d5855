package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/meshconfig"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
)

// NewCommand returns `agentctl mesh`.
func NewCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mesh",
		Short: "Set up the service mesh around the principal",
		Args:  cli.NoCommand,
		RunE:  cli.ShowHelp,
	}
	cmd.AddCommand(
		newMeshRenderCommand(std, conn), newMeshVerifyCommand(std, conn), newMeshDiffCommand(std, conn),
		newMeshApplyCommand(std, conn),
	)
	return cmd
}

// meshSettings are the keys of a principal's configuration that its mesh depends on, and
// that are validated. The others have to be keys of a principal.
type meshSettings struct {
	Namespace string          `koanf:"namespace"`
	Mesh      meshconfig.Mesh `koanf:"mesh"`
}

// loadMesh reads them.
func loadMesh(file config.File) (meshSettings, error) {
	if file.Path == "" {
		return meshSettings{}, errors.New("--config is missing: name the YAML file the principal runs with")
	}
	file.Program, file.Flag = "principal", "config"
	all, err := config.Read(file, principalconfig.Default())
	cfg := meshSettings{Namespace: all.Namespace, Mesh: all.Mesh}
	if err == nil {
		err = config.Validate(&cfg)
	}
	if err == nil && cfg.Mesh.Exposure == "" {
		err = fmt.Errorf("--config %s: mesh.exposure is not set, so there is no mesh to render for: use direct, passthrough or gateway", file.Path)
	}
	return cfg, err
}

// meshProblems returns the problems of what cannot be rendered as one line.
func meshProblems(err error) error {
	return errors.New(strings.Join(strings.Split(err.Error(), "\n"), "; "))
}

// agentSource says where the Agents come from: files, or the hub.
type agentSource struct {
	files []string
}

func (a *agentSource) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&a.files, "filename", "f", nil,
		"YAML or JSON file with Agents, or - for standard input; may be repeated. Without it they are read from the hub")
}

// snapshot returns what the mesh has to know.
func (a *agentSource) snapshot(ctx context.Context, std cli.Streams, conn *cli.Connection,
	cfg meshSettings) (mesh.Snapshot, error) {
	agents, err := a.agents(ctx, std, conn)
	if err != nil {
		return mesh.Snapshot{}, err
	}
	return cfg.Mesh.Snapshot(agents)
}

// agents returns the SPIFFE IDs of the Agents that may connect, as the principal's
// registry has them.
func (a *agentSource) agents(ctx context.Context, std cli.Streams,
	conn *cli.Connection) (map[identity.AgentName][]spiffeid.ID, error) {
	list, err := a.list(ctx, std, conn)
	if err != nil {
		return nil, err
	}
	return admitted(list)
}

// admitted returns the SPIFFE IDs of those of the Agents that may connect.
func admitted(list []unstructured.Unstructured) (map[identity.AgentName][]spiffeid.ID, error) {
	agents := make([]v1alpha1.Agent, len(list))
	seen := map[string]bool{}
	for i := range list {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list[i].Object, &agents[i]); err != nil {
			return nil, fmt.Errorf("agent %s: %s", list[i].GetName(), cli.OneLine(err))
		}
		if err := checkAgent(agents[i]); err != nil {
			return nil, err
		}
		if seen[agents[i].Name] {
			return nil, fmt.Errorf("agent %s is there twice: leave one out", agents[i].Name)
		}
		seen[agents[i].Name] = true
	}
	var registry fleet.Registry
	registry.Set(agents)
	return registry.Admitted(), nil
}

// checkAgent returns an error for what an API server would not have taken.
func checkAgent(agent v1alpha1.Agent) error {
	if _, err := identity.ParseAgentName(agent.Name); err != nil {
		return fmt.Errorf("agent %q: %w", agent.Name, err)
	}
	for _, text := range agent.Spec.Identity.SPIFFEIDs {
		if _, err := identity.ParseID(text); err != nil {
			return fmt.Errorf("agent %s: %w", agent.Name, err)
		}
	}
	return nil
}

func (a *agentSource) list(ctx context.Context, std cli.Streams,
	conn *cli.Connection) ([]unstructured.Unstructured, error) {
	if len(a.files) > 0 {
		return a.read(std)
	}
	h, err := conn.Hub()
	if err != nil {
		return nil, err
	}
	list, err := h.Agents.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, h.Explain(err, "list agents")
	}
	return list.Items, nil
}

// read returns the Agents of the files. What else is in them is passed over.
func (a *agentSource) read(std cli.Streams) ([]unstructured.Unstructured, error) {
	var out []unstructured.Unstructured
	for _, name := range a.files {
		some, err := readAgents(std, name)
		if err != nil {
			return nil, fmt.Errorf("--filename %s: %s", name, cli.OneLine(err))
		}
		out = append(out, some...)
	}
	return out, nil
}

func readAgents(std cli.Streams, name string) ([]unstructured.Unstructured, error) {
	in := std.In
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }() // only read
		in = file
	}
	var out []unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(in, 4096); ; {
		object := unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		items := []unstructured.Unstructured{object}
		if object.IsList() {
			list, err := object.ToList()
			if err != nil {
				return nil, err
			}
			items = list.Items
		}
		for _, item := range items {
			if item.GetKind() == "Agent" && item.GetAPIVersion() == v1alpha1.SchemeGroupVersion.String() {
				out = append(out, item)
			}
		}
	}
}
